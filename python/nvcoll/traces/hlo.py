"""Reads a compiled function of JAX as text: ``jax.jit(f).lower(...).compile().as_text()``, for any number of devices.

``XLA_FLAGS=--xla_force_host_platform_device_count=512`` gives a CPU 512 devices, so no GPU is needed. The text is the
program of one device::

    %ag = f32[128,512]{1,0} all-gather(%x), replica_groups={{0,1},{2,3}}, ...     a collective
    %y = f32[128,64]{1,0} dot(%ag, %w), lhs_contracting_dims={1}, ...             a product
    %z = f32[128,64]{1,0} fusion(%y), calls=%fused_computation                    a kernel that moves bytes

A fusion with products counts as these products; any other fusion moves the bytes of its operands and its result. Of an
operand that is sliced, or updated in place, the slice counts; conversions alone move nothing. Collectives that start
and end apart (``-start``, ``-done``) run on their own stream, others between computing. Loops are unrolled; of branches
the most costly one counts. XLA for CPUs converts bf16 to f32: a product of f32 that comes from bf16, or a promoted
reduction, counts as bf16. XLA for CPUs keeps an all-reduce whose ranks each read only their own part; it counts as a
reduce-scatter, which XLA emits for GPUs.

What it does not know: memory, other fusions and kernels of GPUs, time of the processor.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Final

import numpy as np

from nvcoll._nvcoll import StepBuilder
from nvcoll.errors import InvalidArgument
from nvcoll.traces.hlo_module import Array, Computation, Instruction, Module, parsed, whole_numbers
from nvcoll.traces.program import MOST, Call, Members, Moved, Node, Product, Trace, Work, issue

COMPUTE, COMMUNICATION = 0, 1
"""The streams."""

FREE: Final = {
    *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id", "replica-id"),
    *("opt-barrier", "iota", "domain", "add-dependency", "get-dimension-size", "rng-get-and-update-state"),
}
"""Instructions that move no bytes."""

COLLECTIVES: Final = {
    "all-reduce": "all_reduce",
    "all-gather": "all_gather",
    "reduce-scatter": "reduce_scatter",
    "all-to-all": "all_to_all",
    "ragged-all-to-all": "all_to_all",
    "collective-permute": "sendrecv",
    "collective-broadcast": "broadcast",
}

VIEWS: Final = {"bitcast", "copy", "reshape", "transpose", "slice", "broadcast", "dynamic-slice", "concatenate"}
"""Instructions whose result has the precision of their operand."""

WHOLE: Final = {"bitcast", "reshape", "copy", "convert", "transpose"}
"""Instructions whose result contains all elements of their operand."""

WIDENED: Final = "f32 that was converted from bf16 or promoted counts as bf16: a CPU widens it"

Outside = tuple[Computation, Instruction] | None
"""For what is inside of a fusion or call: the instruction that calls, and the computation that this is in."""


def is_read(text: str) -> bool:
    """Says whether a text is a module of HLO."""
    return text.lstrip("\ufeff\r\n\t ").startswith("HloModule")


def read(where: str, text: str, gpu: str) -> Trace:
    """Returns the step of a text; `gpu` is the model of GPU on which it is to run.

    Raises:
        InvalidArgument: the text is no module, is cut, or has a loop without a known number of rounds.
    """
    module = parsed(where, text)
    steps = _Steps(module)
    steps.run(module.computations[module.entry], 1)
    if not steps.nodes:
        raise InvalidArgument(f"{where} computes nothing: pass the text of a compiled function that computes")
    if module.devices == 1:
        module.notes["it is compiled for one device"] = None
    title = re.sub(r"[^\w.\-]", "", text.split(None, 2)[1].rstrip(","))[:60]
    builder = StepBuilder(title, gpus=module.devices, gpu=gpu)
    issue(builder, builder.rank(0, stands_for=module.devices, name="rank 0", operators=0), 0, steps.nodes)
    step = builder.finish()
    return Trace([step], [*module.notes, *builder.notes])


class _Steps:
    """The operations of a module, in order."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.nodes: list[Node] = []
        self.started: dict[str, int] = {}  # collectives that run, by name, and their numbers

    def run(self, inside: Computation, depth: int) -> None:
        """Adds the operations of a computation."""
        if depth > 64:
            raise InvalidArgument(f"{self.module.where} calls computations in a ring: pass the text as XLA writes it")
        for one in inside.values():
            if len(self.nodes) > MOST // 4:
                raise self.module.error(one, f"loops make more than {MOST // 4} operations: compile a shorter step")
            self.add(inside, one, depth)

    def add(self, inside: Computation, one: Instruction, depth: int) -> None:
        """Adds the operations of one instruction."""
        opcode = one.opcode.removesuffix("-start")
        if opcode in COLLECTIVES:
            self.collective(inside, one, one.opcode != opcode)
        elif opcode == "async" and (called := self.module.computation(one, "calls")):
            self.asynchronous(called, one)
        elif one.opcode.endswith("-done"):
            self.wait(one)
        elif one.opcode == "while":
            for _ in range(self.rounds(one)):
                self.run(self.module.computation(one, "body"), depth + 1)
        elif one.opcode == "call":
            self.run(self.module.computation(one, "to_apply"), depth + 1)
        elif one.opcode == "conditional":
            self.conditional(one, depth)
        elif one.opcode not in FREE:
            for row in self.kernel(inside, one):
                self.nodes.append(Node(row, COMPUTE))

    def rounds(self, one: Instruction) -> int:
        """Returns the number of rounds of a loop."""
        found = re.search(r'"known_trip_count":\{"n":"(\d{1,7})"', one.rest)
        if found is None:
            raise self.module.error(
                one, f"the loop `{one.name}` has no known number of rounds: use lax.scan or a fixed number of rounds"
            )
        return int(found[1])

    def conditional(self, one: Instruction, depth: int) -> None:
        """Adds the most costly branch."""
        keys = ("branch_computations", "true_computation", "false_computation")
        branches = [self.module.computations.get(name) for key in keys for name in one.called(key)]
        made: list[list[Node]] = []
        before = self.nodes
        for branch in branches:
            self.nodes = []
            self.run(branch or Computation(), depth + 1)
            made.append(self.nodes)
        self.nodes = before
        start = len(before)
        longest = max(made, key=_size, default=[])
        self.nodes += [replace(row, after=tuple(start + other for other in row.after)) for row in longest]
        self.module.notes["the most costly branch of a conditional counts"] = None

    def asynchronous(self, called: Computation, one: Instruction) -> None:
        """Starts the collective inside an ``async-start``; computing inside of it runs at once."""
        for inner in called.values():
            if inner.opcode in COLLECTIVES:
                self.collective(called, inner, True)
                self.started[one.name] = len(self.nodes) - 1
            elif inner.opcode not in FREE:
                self.nodes += [Node(row, COMPUTE) for row in self.kernel(called, inner)]

    def collective(self, inside: Computation, one: Instruction, is_started: bool) -> None:
        """Adds a collective; one that is started runs beside computing until it is done."""
        name = one.opcode.removesuffix("-start")
        sources = [inside[other] for other in one.operands if other in inside]
        members = self.members(one)
        size = len(members.ranks) or members.size
        scale = (size if name == "all-gather" else 1) / (2 if self.is_narrow(inside, one, sources) else 1)
        nbytes = {COLLECTIVES[name]: scale * sum(source.bytes for source in sources)}
        if name == "all-reduce" and size > 1:
            sliced = scale * sum(array.bytes for array in self.sliced(inside, one, size))
            nbytes = {"reduce_scatter": sliced, "all_reduce": nbytes["all_reduce"] - sliced}
        last = next((n for n in range(len(self.nodes) - 1, -1, -1) if self.nodes[n].stream == COMPUTE), None)
        stream = COMMUNICATION if is_started else COMPUTE
        for pattern, most in nbytes.items() if size > 1 else ():
            if most:
                self.nodes.append(
                    Node(Call(_title(one), pattern, most, members), stream, () if last is None else (last,))
                )
        if is_started and self.nodes:
            self.started[one.name] = len(self.nodes) - 1

    def sliced(self, inside: Computation, one: Instruction, size: int) -> Iterator[Array]:
        """Yields the results of an all-reduce whose ranks each read only their own part: XLA scatters them on GPUs."""
        for number, array in enumerate(one.result):
            parts = [one]
            if len(one.result) > 1:
                parts = [each for each in inside.readers[one.name] if re.search(rf"\bindex={number}\b", each.rest)]
            readers = [*self.readers(inside, parts[0])] if len(parts) == 1 and array.elements > 1 else []
            part = array.elements // size
            if readers and all(each.opcode == "dynamic-slice" and each.result[0].elements == part for each in readers):
                self.module.notes["an all-reduce whose ranks read only their own parts is a reduce-scatter"] = None
                yield array

    def readers(
        self, inside: Computation, one: Instruction, call: Outside = None, depth: int = 0
    ) -> Iterator[Instruction]:
        """Yields what reads an array, also through views of all of it and through fusions."""
        if one.is_root and call:
            yield from self.readers(*call, None, depth + 1)
            return
        for each in inside.readers[one.name]:
            if each.opcode == "fusion" and not call and depth < 8:
                called = self.module.computation(each, "calls")
                for inner in called.values():
                    if inner.opcode == "parameter" and each.operands[inner.place : inner.place + 1] == (one.name,):
                        yield from self.readers(called, inner, (inside, each), depth + 1)
            elif each.opcode in WHOLE and depth < 8 and (call or not each.is_root):
                yield from self.readers(inside, each, call, depth + 1)
            else:
                yield each

    def wait(self, one: Instruction) -> None:
        """Makes computing wait for a collective that was started."""
        for name in one.operands:
            if (number := self.started.pop(name, None)) is not None and number < len(self.nodes):
                self.nodes.append(Node(None, COMPUTE, (number,)))

    def members(self, one: Instruction) -> Members:
        """Returns the group of a collective."""
        if one.opcode.startswith("collective-permute"):
            pairs = re.search(r"source_target_pairs=\{\{(\d{1,9}),(\d{1,9})\}", one.rest)
            far = abs(int(pairs[1]) - int(pairs[2])) if pairs else 0
            return Members(size=2, stride=far) if far else Members()
        return Members(ranks=tuple(self.ranks(one)))

    def ranks(self, one: Instruction) -> list[int]:
        """Returns the first group of a collective, in any of XLA's three notations."""
        text = one.rest.partition("replica_groups=")[2]
        if listed := re.match(r"\{\{([\d,]+)\}", text):
            return whole_numbers(listed[1])
        if tiles := re.match(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", text):
            shape, dims, order = (whole_numbers(one or "") for one in tiles.groups())
            if prod(dims) > 2**20 or sorted(order or range(len(dims))) != [*range(len(dims))] or not shape:
                raise self.module.error(one, f"`{text[:60]}` is no list of groups: pass the text as XLA writes it")
            ranks = np.arange(prod(dims)).reshape(dims).transpose(order or None)
            return [int(rank) for rank in ranks.flat[: shape[-1]]]
        if mesh := re.match(r"mesh\[([^\]]*)\]\s*\{([^}]*)\}", text):
            axes = [(name, int(size)) for name, size in re.findall(r"'([^']+)'=(\d{1,7})", mesh[1])]
            chosen = re.findall(r"'([^']+)'", mesh[2])
            if prod(size for _, size in axes) > 2**20 or ":" in mesh[2]:
                raise self.module.error(one, f"`{text[:60]}` is a mesh that is not read: set replica groups by lists")
            within = tuple(slice(None) if name in chosen else 0 for name, _ in axes)
            sizes = [size for _, size in axes]
            return [int(rank) for rank in np.arange(prod(sizes)).reshape(sizes)[within].flat]
        if re.match(r"\{\}|\{\{\}\}", text) or not text:
            return [*range(self.module.devices)]
        raise self.module.error(one, f"the groups `{text[:60]}` are in no form that is read: a list, iota or mesh")

    def is_narrow(self, inside: Computation, one: Instruction, sources: Sequence[Instruction]) -> bool:
        """Says whether XLA for CPUs converted the elements of a collective from 16 to 32 bits."""
        if any(array.dtype != "f32" for source in sources for array in source.result):
            return False
        promoted = any(name.endswith("_promoted") for name in one.called("to_apply"))
        narrow = promoted or all(self.was_narrow(inside, source) for source in sources)
        if narrow:
            self.module.notes[WIDENED] = None
        return narrow

    def was_narrow(self, inside: Computation, one: Instruction, call: Outside = None, depth: int = 0) -> bool:
        """Says whether an array of f32 holds values of 16 bits, also through views, fusions and calls."""
        source = inside.get(one.operands[0]) if one.operands else None
        if depth > 64:
            return False
        if one.opcode == "convert" and source and source.result and source.result[0].dtype in ("bf16", "f16"):
            return True
        if one.opcode in ("fusion", "call") and not call:
            called = self.module.computation(one, "calls" if one.opcode == "fusion" else "to_apply")
            root = next((each for each in called.values() if each.is_root), None)
            return bool(root and self.was_narrow(called, root, (inside, one), depth + 1))
        if one.opcode == "parameter" and call:
            (inside, caller), call = call, None
            source = inside.get(next(iter(caller.operands[one.place :]), ""))
        elif one.opcode not in VIEWS:
            return False
        return bool(source and self.was_narrow(inside, source, call, depth + 1))

    def kernel(self, inside: Computation, one: Instruction) -> Iterator[Work]:
        """Yields the products of an instruction other than a collective, or else the bytes that it moves."""
        title = _title(one)
        if one.opcode in ("dot", "convolution"):
            yield self.product(inside, one, title)
            return
        if one.opcode == "custom-call":
            yield from self.custom(inside, one, title)
            return
        if self.converts_alone(one):
            return
        moved = self.touched(inside, one)
        if one.opcode == "fusion":
            called = self.module.computation(one, "calls")
            products = [inner for inner in called.values() if inner.opcode in ("dot", "convolution")]
            yield from (self.product(called, inner, title, (inside, one)) for inner in products)
            moved = 0 if products else self.moved(one, called)
        elif one.opcode == "dynamic-update-slice" and len(one.operands) > 1:
            moved = 2 * self.module.operand(inside, one, 1).bytes
        elif one.opcode in ("dynamic-slice", "slice"):
            moved = 2 * one.bytes
        if moved:
            yield Moved(title, moved)

    def touched(self, inside: Computation, one: Instruction) -> float:
        """Returns the bytes of the operands and the result."""
        return one.bytes + sum(inside[name].bytes for name in one.operands if name in inside)

    def converts_alone(self, one: Instruction) -> bool:
        """Says whether an instruction only converts types, as XLA for CPUs adds them; on GPUs the next kernel does."""
        called = self.module.computation(one, "calls").values() if one.opcode == "fusion" else [one]
        opcodes = {inner.opcode for inner in called} - {"parameter", "bitcast", "copy", "reshape"}
        return opcodes == {"convert"}

    def moved(self, one: Instruction, called: Computation) -> float:
        """Returns the bytes that a fusion reads and writes; of slices only the slice."""
        total, updated = 0.0, 0.0
        for inner in called.values():
            if inner.opcode == "dynamic-update-slice" and len(inner.operands) > 1:
                updated += self.module.operand(called, inner, 1).bytes
        for inner in called.values():
            if inner.opcode != "parameter":
                continue
            readers = [*self.readers(called, inner)]
            if readers and all(each.opcode in ("dynamic-slice", "slice") for each in readers):
                total += sum(each.bytes for each in readers)
            elif not (readers and all(each.opcode == "dynamic-update-slice" for each in readers) and updated):
                total += inner.bytes
        return total + (updated or one.bytes)

    def product(self, inside: Computation, one: Instruction, title: str, call: Outside = None) -> Product:
        """Returns a product, or a convolution as a product of the same FLOPs."""
        left, right = (self.module.operand(inside, one, number) for number in (0, 1))
        if not left.result or not right.result or not one.result:
            raise self.module.error(one, f"`{one.name}` has an operand without a shape: pass the text as XLA writes it")
        a, b, c = left.result[0].dims, right.result[0].dims, one.result[0].dims
        if one.opcode == "dot":
            along, batched = one.numbers("lhs_contracting_dims"), one.numbers("lhs_batch_dims")
            if any(dim >= len(a) for dim in along + batched):
                raise self.module.error(one, f"`{one.name}` contracts dimensions that {a} lacks: correct the text")
            k, batch = prod(a[dim] for dim in along), prod(a[dim] for dim in batched)
            m = prod(a) // max(k * batch, 1)
            n = prod(c) // max(m * batch, 1)
        else:
            k, m, n, batch = self.convolved(one, b, c)
        dtype = _dtype(left.result[0].dtype)
        if all(each.result[0].dtype == "f32" for each in (left, right)) and (
            self.was_narrow(inside, left, call) or self.was_narrow(inside, right, call)
        ):
            self.module.notes[WIDENED], dtype = None, "bf16"
        return Product(title, m, n, k, dtype, batch)

    def convolved(self, one: Instruction, b: tuple[int, ...], c: tuple[int, ...]) -> tuple[int, int, int, int]:
        """Returns k, m, n and batch of the product for a convolution."""
        labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", one.rest)
        groups = int((re.search(r"feature_group_count=(\d{1,9})", one.rest) or ["", "1"])[1]) or 1
        if labels is None or len(labels[2]) != len(b) or len(labels[3]) != len(c) or "o" not in labels[2]:
            raise self.module.error(one, f"`{one.name}` has no dim_labels that fit its shapes: correct the text")
        n = b[labels[2].index("o")] // groups
        return prod(b) // max(b[labels[2].index("o")], 1), prod(c) // max(n * groups, 1), n, groups

    def custom(self, inside: Computation, one: Instruction, title: str) -> Iterator[Work]:
        """Yields a call of a library: products of cuBLAS as products, others by the bytes that they move."""
        found = re.search(r'custom_call_target="([^"]*)"', one.rest)
        target = found[1] if found else ""
        if "gemm" in target or "matmul" in target:
            left = self.module.operand(inside, one, 0)
            dims = re.search(r'"lhs_contracting_dimensions":\[([^\]]*)\]', one.rest)
            along = whole_numbers(dims[1]) if dims else []
            if along and left.result and one.result and all(dim < len(left.result[0].dims) for dim in along):
                k = prod(left.result[0].dims[dim] for dim in along)
                m = prod(left.result[0].dims) // max(k, 1)
                n = max(prod(one.result[0].dims) // max(m, 1), 1)
                dtype = _dtype(left.result[0].dtype)
                yield Product(title, m, n, k, dtype)
                return
        if target in ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "AllocateBuffer"):
            return
        self.module.notes[f"calls of `{target[:40]}` count by the bytes that they move"] = None
        if moved := self.touched(inside, one):
            yield Moved(title, moved)


def _title(one: Instruction) -> str:
    """Returns the name of the JAX operator, or else of the instruction."""
    found = re.search(r'op_name="([^"]*)"', one.rest)
    return (found[1].rsplit("/", 2)[-1] if found else one.name)[:80] or one.opcode


def _dtype(name: str) -> str:
    """Returns nvcoll's name of a precision; XLA computes products of f32 on GPUs as TF32."""
    if name.startswith("f8"):
        return "fp8"
    if name.startswith("f4"):
        return "fp4"
    return {"bf16": "bf16", "f16": "fp16", "f64": "fp64", "s8": "int8", "u8": "int8"}.get(name, "tf32")


def _size(nodes: Sequence[Node]) -> float:
    """Returns the cost in FLOPs: a byte of memory counts as 100 FLOPs, a byte of a link as 1,000. Chosen."""
    total = 0.0
    for node in nodes:
        match node.work:
            case Product():
                total += node.work.flops
            case Call():
                total += 1000 * node.work.nbytes
            case Moved():
                total += 100 * node.work.nbytes
    return total
