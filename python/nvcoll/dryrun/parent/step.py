"""Makes a recorded training step of the recordings of ranks.

::

    recording of a rank (wire.rank_recording)    operation of the step (docs/reference/training-step.md)
    gemm                                                 gemm: m, n, k, batch, precision
    gemm of a convolution                                the same, with bytes of images, which move first if channels
                                                         come first; depthwise: move of its bytes
    launches of an operator of attention                 attention: its shapes, then kernels
    other launches of a convolution                      gemm of the same FLOPs; depthwise: move of its bytes
    launches of products of experts                      gemm: experts with equal rows, then kernels
    launches of another operator with FLOPs              gemm of its FLOPs and bytes: quantised weights
    launches of any other operator                       one move of the operator's bytes; kernels of Triton: a bound
    collective                                           collective: pattern, bytes as nccl-tests counts, group
    sends and receives to all ranks, in one group call   all_to_all
    other sends and receives                             message: global rank of the peer
    event, wait, host wait, copies, memset               the same

Consecutive launches of one operator on one stream are one operation. `nvcoll._nvcoll.StepBuilder` names groups, leaves
out events for which nothing waits, and counts the FLOPs of the model. Captured work of a CUDA graph does not run; its
launch appends copies to the recording, which the processor issues together with the first of them.

FLOPs and bytes are as exact as the recording. Kernels that are compiled count whole tensors, each once.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

from nvcoll._nvcoll import Issue, RankBuilder, StepBuilder, WorkStep
from nvcoll.dryrun.parent import attention, roles, serving
from nvcoll.dryrun.parent.products import (
    bytes_between,
    bytes_of,
    bytes_of_convolution,
    convolution,
    gemm_of,
    grouped,
    is_convolution,
    is_depthwise,
    is_routed,
    passes_of,
    product_of,
)
from nvcoll.dryrun.parent.recording import GroupFacts
from nvcoll.dryrun.parent.rows import Call, Product, Row, rows_of
from nvcoll.dryrun.parent.tokens import tokens_of
from nvcoll.dryrun.wire.rank_recording import Op, RankRecording
from nvcoll.dryrun.wire.virtual_gpu import Kind

LINES = {
    "parameters": "parameters",
    "frozen parameters": "frozen",
    "gradients": "gradients",
    "optimizer state": "optimizer",
    "communication buffers": "buffers",
    "activations": "activations",
    "temporary": "temporary",
    "CUDA graphs": "graphs",
}
"""Lines of the table of memory by category of the recording; others are ``other``."""

SHARES = frozenset({"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"})
"""Collectives whose recorded bytes are one rank's share; nccl-tests counts the shares of all ranks."""

DIRECTIONS = {1: "d2h", 2: "h2d", 3: "d2d"}
"""Directions of copies by cudaMemcpyKind. Copies within the host do not use the GPU."""


STREAM, EVENT = 1, 2
"""What the processor waits for (`Kind.HOST_WAIT`), if not for the device."""


@dataclass(frozen=True)
class Made:
    """A step that was made of recordings.

    Attributes:
        step: the step.
        places: for each rank, and each of its records that ran, the position of its operation, or -1.
        groups: the groups that communicate: name, description, shape and first rank.
        tokens: how tokens were counted, in words.
        notes: what was assumed of groups.
    """

    step: WorkStep
    places: list[list[int]]
    groups: list[GroupFacts]
    tokens: str
    notes: list[str]


def made_of(recordings: Sequence[RankRecording], *, gpu: str, name: str, tokens: float | None = None) -> Made:
    """Makes the step of one or more ranks that ran at the same time.

    Args:
        recordings: one for each kind of rank.
        gpu: the model of GPU on which they were recorded, as ``h100-sxm``.
        name: the name of the step.
        tokens: tokens in a step of all ranks. Default: found in the recordings.

    Raises:
        InvalidArgument: a group has a rank twice.
    """
    ranks = [one.rank for one in recordings]
    builder = StepBuilder(name, gpus=recordings[0].world_size, gpu=gpu)
    stands_for, names = roles.stand_for(ranks, recordings[0].world_size), roles.names_of(ranks, recordings)
    makers = []
    for one, count, called in zip(recordings, stands_for, names, strict=True):
        operators = float(one.host_ops) if one.host_ops else None
        rank = builder.rank(one.rank, stands_for=count, name=called, operators=operators, memory=_memory(one))
        makers.append(_Rank(one, builder, rank))
        makers[-1].issue()
    counted, found = tokens_of(recordings)
    step = builder.finish(tokens=tokens if tokens is not None else counted or None, has_passes=True)
    places = [[-1 if one is None else maker.rank.place(one) for one in maker.handles] for maker in makers]
    shapes = json.loads(step.to_json())["groups"]
    groups: dict[str, GroupFacts] = {}
    for one, maker in zip(recordings, makers, strict=True):
        for communicator, number in sorted(maker.groups.items()):
            group, name = one.groups[communicator], builder.name_of(number)
            row = {"name": name, "called": group.name, **shapes[name], "first": min(group.ranks)}
            groups.setdefault(name, cast(GroupFacts, row))
    order = sorted(groups.values(), key=lambda row: (row["stride"], row["size"], row["name"]))
    return Made(step, places, order, found, [*builder.notes, *_outside(recordings)])


def _outside(recordings: Sequence[RankRecording]) -> Iterator[str]:
    """Says which kernels no operator of torch launched: nothing is known of their tensors."""
    rows = [(one, row) for one in recordings for row in rows_of(one.records) if row.kind == Kind.LAUNCH and not row.op]
    if names := Counter(one.names[row.name] for one, row in rows):
        more = f" and {len(names) - 1} others" if len(names) > 1 else ""
        which = f"`{names.most_common(1)[0][0]}`{more}, {len(rows)} launches"
        yield f"kernels that no operator of torch launches take no time: {which}"


def _memory(recording: RankRecording) -> tuple[float, float, dict[str, float], list[str]]:
    memory, parts = recording.memory, Counter[str]()
    for name, nbytes in memory.parts:
        parts[LINES.get(name, "other")] += nbytes
    if recording.served is not None:  # whose cache is there before the iteration
        parts["cache"] = min(recording.served.cache.bytes, parts["other"])
        parts["other"] -= parts["cache"]
    return memory.allocated, memory.reserved, dict(parts), list(reversed(memory.stack))


@dataclass
class _Graph:
    """The launch of a CUDA graph: its first operation stands for the launch, and the graph issues the others."""

    left: int = 0
    has_begun: bool = False

    def passed(self, row: Row, is_new: bool) -> None:
        """Goes past a record; a new operation begins the graph, events do not."""
        if self.left:
            self.left -= 1
            begins = is_new and row.kind not in (Kind.EVENT_RECORD, Kind.STREAM_WAIT)
            self.has_begun = self.left > 0 and (self.has_begun or begins)
        elif row.kind == Kind.GRAPH_LAUNCH:
            self.left = row.args[0]


class _Rank:
    """The operations of one rank.

    Attributes:
        rank: the builder of the rank.
        handles: for each record that ran the handle of its operation, or None.
        groups: number in the builder, for each communicator that communicates.
    """

    def __init__(self, recording: RankRecording, builder: StepBuilder, rank: RankBuilder) -> None:
        self.rank, self.handles, self.groups = rank, list[int | None](), dict[int, int]()
        self._recording, self._builder = recording, builder
        self._rows = rows_of(recording.records)
        self._launches = Counter(row.op for row in self._rows if row.kind == Kind.LAUNCH)
        self._products = defaultdict[int, float](float)
        for row in self._rows:
            if row.kind == Kind.GEMM:
                self._products[row.op] += bytes_of(Product(*row.args))
        routed = list(dict.fromkeys(row.op for row in self._rows if is_routed(self._op(row))))
        self._next_routed = dict(pairwise(routed))
        self._last_routed: int | None = None
        """The product of experts that was issued just before."""
        self._exchanges = _exchanges(self._rows, recording)
        self._attended = 0
        self._made: set[int | tuple[int, int]] = set()
        """Operators and group calls whose first record stands for all records."""
        self._graph = _Graph()

    def issue(self) -> None:
        """Issues the operations in the order in which the processor issued them."""
        last: tuple[int, int] | None = None
        handle: int | None = None
        for row in self._rows:
            key = (row.stream, row.op) if row.kind == Kind.LAUNCH and row.op else None
            is_more = bool(key) and key == last and handle is not None and self.rank.more(handle, self._share(row))
            if not is_more:
                handle, last = self._issued(row), key
            self._graph.passed(row, is_new=handle is not None and not is_more)
            self.handles.append(handle)

    def _issued(self, row: Row) -> int | None:
        stream, args, by_graph = row.stream, row.args, self._graph.has_begun
        match row.kind:
            case Kind.LAUNCH:
                return self._launch(row)
            case Kind.GEMM:
                return self._product(row, Product(*args))
            case Kind.COPY if args[1] in DIRECTIONS:
                return self.rank.copy(self._placed(row, "copy"), args[0], DIRECTIONS[args[1]])
            case Kind.FILL:
                return self.rank.move(self._placed(row, "memset"), args[0])
            case Kind.EVENT_RECORD:
                return self.rank.record(Issue(stream, by_graph=by_graph), args[0])
            case Kind.STREAM_WAIT:
                return self.rank.wait(Issue(stream, by_graph=by_graph), args[0])
            case Kind.HOST_WAIT:
                waits_for, event = args[:2]
                of_stream, of_event = stream if waits_for == STREAM else None, event if waits_for == EVENT else None
                return self.rank.host_wait(stream=of_stream, event=of_event, by_graph=by_graph)
            case Kind.COLLECTIVE:
                return self._call(row, Call(*args))
        return None

    def _op(self, row: Row) -> Op:
        return self._recording.ops[row.op] if 0 < row.op < len(self._recording.ops) else Op("")

    def _placed(self, row: Row, name: str | None, *, backward: bool = False, together: int | None = None) -> Issue:
        """Returns where an operation is issued, with its line; a name of None: the builder names it by its group."""
        found, by_graph = self._op(row), self._graph.has_begun
        line = self._recording.lines[found.line] if found.line else None
        called = "" if name is None else found.name or name
        return Issue(row.stream, called, line=line, backward=backward, by_graph=by_graph, together=together)

    def _share(self, row: Row) -> float:
        """Returns the bytes of one launch of an operator, without the bytes that its products move."""
        found, served = self._op(row), self._recording.served
        if attention.is_attention(found) and not attention.is_backward(found):
            return attention.bytes_beside(found) * (served.joined if served else 1.0)
        return passes_of(found) * max(0.0, found.bytes - self._products[row.op]) / max(1, self._launches[row.op])

    def _is_first(self, of: int | tuple[int, int]) -> bool:
        is_first = of not in self._made
        self._made.add(of)
        return is_first

    def _product(self, row: Row, product: Product) -> int:
        found, name = self._op(row), self._recording.names[row.name]
        placed, gemm = self._placed(row, name, backward=found.is_backward), gemm_of(product)
        if not (is_convolution(found) and name.startswith("cudnn")):
            return self.rank.gemm(placed, **gemm)
        one, other, filters = bytes_of_convolution(found)
        if is_depthwise(found):
            flops = found.flops if self._is_first(row.op) else 0
            return self.rank.move(placed, (one + other + filters) * passes_of(found), flops=flops)
        if product.transposes:  # kernels read channels last, and write either
            self.rank.move(placed, 2 * (one + other if name.endswith("Filter") else one))
        return self.rank.gemm(placed, **gemm, nbytes=one + other + filters)

    def _launch(self, row: Row) -> int:
        found = self._op(row)
        is_convolved = is_convolution(found)
        backward = found.is_backward or (is_convolved and "backward" in found.name)
        placed = self._placed(row, self._recording.names[row.name], backward=backward)
        last, self._last_routed = self._last_routed, row.op if is_routed(found) else None
        if last is not None and row.op in self._made:  # of the operator around the products
            following = self._recording.ops[self._next_routed.get(last, 0)]
            return self.rank.move(placed, bytes_between(self._recording.ops[last], following, found))
        if is_convolved and self._products[row.op]:
            gradient, output, _ = bytes_of_convolution(found)  # the bias is added to the output, or its gradient summed
            return self.rank.move(placed, gradient if backward else 2 * output)
        if is_convolved and is_depthwise(found):
            return self.rank.move(placed, self._share(row), flops=found.flops if self._is_first(row.op) else 0)
        if is_convolved:
            return self.rank.gemm(placed, **convolution(found, self._launches[row.op]))
        if self._is_first(row.op):
            if (served := self._recording.served) is not None:
                if name := serving.collective(found):
                    group = self._builder.group(served.ranks, rank=self._recording.rank, called="tp")
                    total, rule = serving.bytes_of(found), serving.rule_of(served.server)
                    return self.rank.collective(self._placed(row, None), name, total, group, server=rule)
                if serving.attends(found):
                    self._attended += 1
                    return serving.attend(self.rank, placed, found, served, self._attended - 1)
            if attention.is_attention(found):
                return attention.issue(self.rank, placed, found)
            if (experts := grouped(found, served.holders if served else 1)) is not None:
                return self.rank.gemm(placed, **experts)
            if not self._products[row.op] and (product := product_of(found)) is not None:
                return self.rank.gemm(placed, **product, nbytes=passes_of(found) * found.bytes)
        return self.rank.move(placed, self._share(row), bound=found.is_bound)

    def _call(self, row: Row, call: Call) -> int | None:
        group, key = self._recording.groups.get(call.communicator), (call.communicator, call.together)
        total = self._exchanges.get(key)
        if group is None or (total is not None and not self._is_first(key)):
            return None
        name, me, served = self._recording.names[row.name], self._recording.rank, self._recording.served
        server = served.server if served is not None and group.ranks == served.ranks else ""
        if call.communicator not in self.groups:
            passes_rows = served is not None and served.holders > 1 and name in SHARES
            called = "tp" if server else "ep" if passes_rows else group.name  # to experts of other ranks
            self.groups[call.communicator] = self._builder.group(group.ranks, rank=me, called=called)
        number, placed = self.groups[call.communicator], self._placed(row, None, together=call.together or None)
        if total is not None:
            return self.rank.collective(self._placed(row, None), "all_to_all", total, number)
        if name not in ("send", "recv"):
            if len(group.ranks) == 1:  # its kernel reads and writes the bytes
                placed = self._placed(row, name)
            rule = serving.rule_of(server) if name == "all_reduce" else None
            return self.rank.collective(placed, name, call.nbytes, number, share=name in SHARES, server=rule)
        if (other := group.ranks[call.peer]) != me:
            return self.rank.message(placed, name, call.nbytes, other, group=number)
        return self.rank.copy(self._placed(row, name), call.nbytes, "d2d") if name == "send" else None


def _exchanges(rows: Sequence[Row], recording: RankRecording) -> Mapping[tuple[int, int], int]:
    """Returns the bytes of group calls in which a rank sends to all others and receives from all: all_to_all."""
    sent: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    received: dict[tuple[int, int], set[int]] = defaultdict(set)
    for row in rows:
        if row.kind == Kind.COLLECTIVE and (call := Call(*row.args)).together:
            key, name = (call.communicator, call.together), recording.names[row.name]
            if name == "send":
                sent[key][call.peer] += call.nbytes
            elif name == "recv":
                received[key].add(call.peer)
    found: dict[tuple[int, int], int] = {}
    for key, peers in sent.items():
        group = recording.groups.get(key[0])
        if group is None or recording.rank not in group.ranks:
            continue
        size, me = len(group.ranks), group.ranks.index(recording.rank)
        others = set(range(size)) - {me}
        if others <= set(peers) and others <= received[key] and (size > 3 or me in peers):
            found[key] = sum(peers.values())
    return found
