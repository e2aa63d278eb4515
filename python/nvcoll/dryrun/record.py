"""Makes a recorded training step of the recordings of ranks.

::

    Recording of a rank (nvcoll.dryrun.recording)        operation of the step (docs/training-step.md)
    gemm                                                 gemm: m, n, k, batch, precision
    launches of an operator of attention                 attention: its shapes, then kernels
    launches of a convolution                            gemm of the same FLOPs
    launches of products of experts                      gemm: experts with equal rows, then kernels
    launches of any other operator                       one move of the operator's bytes
    collective                                           collective: pattern, bytes as nccl-tests counts, group
    sends and receives to all ranks, in one group call   all_to_all
    other sends and receives                             message: global rank of the peer
    event, wait, host wait, copies, memset               the same

Consecutive launches of one operator on one stream are one operation with a count. Events for which nothing waits are
left out, and so are waits for events that the step does not record. Captured work of a CUDA graph does not run; its
launch appends copies to the recording, which the processor issues together with the first of them.

FLOPs and bytes are as exact as the recording. An operator that reads a part of a tensor, as an index does, counts the
whole tensor.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from nvcoll.dryrun import attention, roles
from nvcoll.dryrun.groups import Shape, shapes_of
from nvcoll.dryrun.products import bytes_of, convolution, grouped, product
from nvcoll.dryrun.recording import Op, Recording
from nvcoll.dryrun.rows import LogRow, rows_of
from nvcoll.dryrun.totals import Totals
from nvcoll.dryrun.wire import Kind
from nvcoll.training.group_words import moved

Row = dict[str, Any]

LINES = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer state": "optimizer",
    "communication buffers": "buffers",
    "activations": "activations",
    "temporary": "temporary",
    "CUDA graphs": "graphs",
}
"""Lines of the table of memory by category of the recording; others are ``other``."""

SCHEMA = "nvcoll.step/1"

SHARES = frozenset({"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"})
"""Collectives whose recorded bytes are one rank's share; nccl-tests counts the shares of all ranks."""

DIRECTIONS = {1: "d2h", 2: "h2d", 3: "d2d"}
"""Directions of copies by cudaMemcpyKind. Copies within the host do not use the GPU."""


def training_step(recordings: Sequence[Recording], *, gpu: str, name: str, tokens: float | None = None) -> Row:
    """Makes the step of one or more ranks that ran at the same time; arguments are those of `step_and_places`."""
    return step_and_places(recordings, gpu=gpu, name=name, tokens=tokens)[0]


def step_and_places(
    recordings: Sequence[Recording], *, gpu: str, name: str, tokens: float | None = None
) -> tuple[Row, list[list[int]]]:
    """Makes the step of one or more ranks that ran at the same time.

    Args:
        recordings: one for each kind of rank.
        gpu: the model of GPU on which they were recorded, as ``h100-sxm``.
        name: the name of the step.
        tokens: tokens in a step of all ranks. Default: found in the recordings.

    Returns:
        The step as JSON has it. For each rank, and each of its records that ran, the position of its operation, or -1.

    Raises:
        InvalidArgument: a group has a rank twice.
    """
    shapes = shapes_of(recordings)
    groups = {shape.name: shape.row for one in shapes for shape in one.values()}
    order = {group: nth for nth, group in enumerate(sorted(groups))}
    ranks = [one.rank for one in recordings]
    world_size, lines = recordings[0].world_size, _Lines()
    stands_for, names = roles.stand_for(ranks, world_size), roles.names_of(ranks, recordings)
    makers = [_Rank(one, of_rank, order, lines) for one, of_rank in zip(recordings, shapes, strict=True)]
    rows = [
        {
            "rank": one.rank,
            "stands_for": count,
            "name": called,
            "host": {"launches": {"operators": one.host_ops or None}},
            "memory": {"allocator": _memory(one)},
            "issued": maker.ops(),
        }
        for one, count, called, maker in zip(recordings, stands_for, names, makers, strict=True)
    ]
    totals = Totals.of(recordings, stands_for)
    row = {
        "schema": SCHEMA,
        "name": name,
        "gpus": world_size,
        "tokens": (totals.tokens or None) if tokens is None else tokens,
        "model_flops": totals.model_flops or None,
        "dtype": totals.dtype,
        "groups": dict(sorted(groups.items())),
        "streams": {"gpu": gpu, "lines": lines.texts, "ranks": rows},
    }
    return row, [maker.places for maker in makers]


def _memory(recording: Recording) -> Row:
    memory = recording.memory
    return {
        "allocated": memory.allocated,
        "reserved": memory.reserved,
        "parts": [{"name": LINES.get(name, "other"), "bytes": nbytes} for name, nbytes in memory.parts],
        "stack": list(reversed(memory.stack)),
    }


class _Lines:
    """Lines of all ranks, each once."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._known: dict[str, int] = {}

    def number(self, text: str) -> int:
        if text not in self._known:
            self._known[text] = len(self.texts)
            self.texts.append(text)
        return self._known[text]


class _Rank:
    """The operations of one rank."""

    def __init__(
        self, recording: Recording, shapes: Mapping[int, Shape], order: Mapping[str, int], lines: _Lines
    ) -> None:
        self._recording, self._shapes, self._order, self._lines = recording, shapes, order, lines
        rows = rows_of(recording.records)
        self._launches = Counter(op for kind, *_, op, _ in rows if kind == Kind.LAUNCH)
        self._products = defaultdict[int, float](float)
        for kind, *_, op, args in rows:
            if kind == Kind.GEMM:
                self._products[op] += bytes_of(args)
        awaited = {args[0] for kind, *_, args in rows if kind == Kind.STREAM_WAIT}
        self._awaited = awaited | {args[1] for kind, *_, args in rows if kind == Kind.HOST_WAIT and args[0] == 2}
        self._recorded = {args[0] for kind, *_, args in rows if kind == Kind.EVENT_RECORD}
        self._attended: set[int] = set()
        self._exchanges = _exchanges(rows, recording)
        self._rows = rows
        self._found: list[Row] = []
        self._of_graph, self._is_launched = 0, False
        self.places: list[int] = []

    def ops(self) -> list[Row]:
        """Returns the operations, in the order in which the processor issued them."""
        last: tuple[int, int] | None = None
        for kind, stream, name, op, args in self._rows:
            before = len(self._found)
            key = (stream, op) if kind == Kind.LAUNCH and op else None
            if key is None or key != last or not self._is_more_of(op):
                self._found += self._of(kind, stream, name, op, args)
                last = key if len(self._found) > before or key == last else None
            self._mark(kind, args, self._found[before:])
            self.places.append(len(self._found) - 1 if len(self._found) > before or key is not None else -1)
        return self._found

    def _mark(self, kind: int, args: Sequence[int], new: Sequence[Row]) -> None:
        """Marks operations that a CUDA graph launches; its first one stands for the launch of the graph."""
        for row in new if self._is_launched else ():
            row["by_graph"] = True
        if self._of_graph:
            self._of_graph -= 1
            self._is_launched = self._of_graph > 0 and (self._is_launched or bool(new))
        elif kind == Kind.GRAPH_LAUNCH:
            self._of_graph = args[0]

    def _is_more_of(self, op: int) -> bool:
        """Counts one more launch of the operator whose kernel was the last operation."""
        row = self._found[-1]
        if row["work"] != "move":
            return False
        row["bytes"] += self._share(op)
        row["launches"] = row.get("launches", 1) + 1
        return True

    def _of(self, kind: int, stream: int, name: int, op: int, args: Sequence[int]) -> list[Row]:
        match kind:
            case Kind.LAUNCH:
                return [self._launch(stream, name, op)]
            case Kind.GEMM:
                return [self._placed(stream, op, self._recording.names[name]) | product(args)]
            case Kind.COPY if args[1] in DIRECTIONS:
                row = {"work": "copy", "bytes": args[0], "direction": DIRECTIONS[args[1]]}
                return [self._placed(stream, op, "copy") | row]
            case Kind.FILL:
                return [self._placed(stream, op, "memset") | {"work": "move", "bytes": args[0]}]
            case Kind.EVENT_RECORD if args[0] in self._awaited:
                return [{"stream": stream, "work": "record", "event": args[0]}]
            case Kind.STREAM_WAIT if args[0] in self._recorded:
                return [{"stream": stream, "work": "stream_wait", "event": args[0]}]
            case Kind.HOST_WAIT:
                return self._host_waits(stream, args)
            case Kind.COLLECTIVE:
                return self._call(stream, self._recording.names[name], op, args)
        return []

    def _op(self, op: int) -> Op:
        return self._recording.ops[op] if 0 < op < len(self._recording.ops) else Op("")

    def _placed(self, stream: int, op: int, name: str) -> Row:
        row, found = {"stream": stream, "name": self._op(op).name or name}, self._op(op)
        if found.line:
            row["line"] = self._lines.number(self._recording.lines[found.line])
        return row

    def _share(self, op: int) -> float:
        """Returns the bytes of one launch of an operator, without the bytes that its products move."""
        return max(0.0, self._op(op).bytes - self._products[op]) / max(1, self._launches[op])

    def _launch(self, stream: int, name: int, op: int) -> Row:
        found, row = self._op(op), self._placed(stream, op, self._recording.names[name])
        if "convolution" in found.name and found.flops and not self._products[op]:
            return row | convolution(found, self._launches[op])
        if op not in self._attended:
            work = attention.work_of(found) if attention.is_attention(found) else grouped(found)
            if work is not None:
                self._attended.add(op)
                return row | work
        return row | moved(row["name"], self._share(op))

    def _host_waits(self, stream: int, args: Sequence[int]) -> list[Row]:
        if args[0] == 2 and args[1] not in self._recorded:
            return []
        target: Any = ("device", {"stream": stream}, {"event": args[1]})[min(args[0], 2)]
        return [{"work": "host_wait", "for": target}]

    def _call(self, stream: int, call: str, op: int, args: Sequence[int]) -> list[Row]:
        _, _, communicator, peer, together, nbytes = args
        shape, group = self._shapes.get(communicator), self._recording.groups.get(communicator)
        if shape is None or group is None:
            return []
        row = self._placed(stream, op, call)
        if (total := self._exchanges.pop((communicator, together), None)) is not None:
            row |= {"name": f"{shape.name} all_to_all", "work": "collective", "pattern": "all_to_all"}
            return [row | {"bytes": total, "group": shape.name}]
        if (communicator, together) in self._exchanges.done:
            return []
        part_of = {"together": together} if together else {}
        if call in ("send", "recv"):
            other = group.ranks[peer]
            if other == self._recording.rank:
                return [row | {"work": "copy", "bytes": nbytes, "direction": "d2d"}] if call == "send" else []
            tag = {"tag": self._order[shape.name]} if self._order[shape.name] else {}
            named = {"name": f"{shape.name} {call}", "work": "message", "way": call, "bytes": nbytes, "peer": other}
            return [row | named | tag | part_of]
        if shape.size == 1:
            return [row | {"work": "move", "bytes": 2 * nbytes}]
        total = nbytes * (shape.size if call in SHARES else 1)
        row |= {"name": f"{shape.name} {call}", "work": "collective", "pattern": call, "bytes": total}
        return [row | {"group": shape.name} | part_of]


class _Exchanges(dict[tuple[int, int], int]):
    """Bytes of group calls that are all_to_alls, by communicator and number of the group call.

    Attributes:
        done: the group calls that were taken out.
    """

    def __init__(self) -> None:
        super().__init__()
        self.done: set[tuple[int, int]] = set()

    def pop(self, key: tuple[int, int], default: Any = None) -> Any:
        """Takes a group call out."""
        if key in self:
            self.done.add(key)
        return super().pop(key, default)


def _exchanges(rows: Sequence[LogRow], recording: Recording) -> _Exchanges:
    """Returns the group calls in which a rank sends to all others and receives from all: all_to_all."""
    sent: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    received: dict[tuple[int, int], set[int]] = defaultdict(set)
    for kind, _, name, _, args in rows:
        if kind != Kind.COLLECTIVE or not args[4]:
            continue
        key, call = (args[2], args[4]), recording.names[name]
        if call == "send":
            sent[key][args[3]] = sent[key].get(args[3], 0) + args[5]
        elif call == "recv":
            received[key].add(args[3])
    found = _Exchanges()
    for key, peers in sent.items():
        group = recording.groups.get(key[0])
        if group is None or recording.rank not in group.ranks:
            continue
        size, me = len(group.ranks), group.ranks.index(recording.rank)
        others = set(range(size)) - {me}
        if others <= set(peers) and others <= received[key] and (size > 3 or me in peers):
            found[key] = sum(peers.values())
    return found
