"""Makes a recorded training step of the recordings of ranks.

::

    recording of a rank (wire.rank_recording)    operation of the step (docs/training-step.md)
    gemm                                                 gemm: m, n, k, batch, precision
    launches of an operator of attention                 attention: its shapes, then kernels
    launches of a convolution                            gemm of the same FLOPs
    launches of products of experts                      gemm: experts with equal rows, then kernels
    launches of any other operator                       one move of the operator's bytes
    collective                                           collective: pattern, bytes as nccl-tests counts, group
    sends and receives to all ranks, in one group call   all_to_all
    other sends and receives                             message: global rank of the peer
    event, wait, host wait, copies, memset               the same

Consecutive launches of one operator on one stream are one operation. `nvcoll._nvcoll.StepBuilder` names groups, leaves
out events for which nothing waits, and counts the FLOPs of the model. Captured work of a CUDA graph does not run; its
launch appends copies to the recording, which the processor issues together with the first of them.

FLOPs and bytes are as exact as the recording. An operator that reads a part of a tensor, as an index does, counts the
whole tensor.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nvcoll._nvcoll import RankBuilder, StepBuilder, WorkStep
from nvcoll.dryrun.parent import attention, roles
from nvcoll.dryrun.parent.products import bytes_of, convolution, grouped, product
from nvcoll.dryrun.parent.rows import LogRow, rows_of
from nvcoll.dryrun.parent.tokens import tokens_of
from nvcoll.dryrun.wire.rank_recording import Group, Op, RankRecording
from nvcoll.dryrun.wire.virtual_gpu import Kind

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

SHARES = frozenset({"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"})
"""Collectives whose recorded bytes are one rank's share; nccl-tests counts the shares of all ranks."""

DIRECTIONS = {1: "d2h", 2: "h2d", 3: "d2d"}
"""Directions of copies by cudaMemcpyKind. Copies within the host do not use the GPU."""


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
    groups: list[dict[str, Any]]
    tokens: str
    notes: list[str]

    @property
    def row(self) -> dict[str, Any]:
        """The step as JSON has it."""
        row: dict[str, Any] = json.loads(self.step.to_json())
        return row


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
    groups: dict[str, dict[str, Any]] = {}
    for maker in makers:
        for group, number in maker.communicating():
            name = builder.name_of(number)
            groups.setdefault(name, {"name": name, "called": group.name, **shapes[name], "first": min(group.ranks)})
    order = sorted(groups.values(), key=lambda row: (row["stride"], row["size"], row["name"]))
    return Made(step, places, order, found, builder.notes)


def _memory(recording: RankRecording) -> tuple[float, float, dict[str, float], list[str]]:
    memory, parts = recording.memory, Counter[str]()
    for name, nbytes in memory.parts:
        parts[LINES.get(name, "other")] += nbytes
    return memory.allocated, memory.reserved, dict(parts), list(reversed(memory.stack))


class _Rank:
    """The operations of one rank.

    Attributes:
        rank: the builder of the rank.
        handles: for each record that ran the handle of its operation, or None.
    """

    def __init__(self, recording: RankRecording, builder: StepBuilder, rank: RankBuilder) -> None:
        self.rank, self.handles = rank, list[int | None]()
        self._recording, self._builder = recording, builder
        self._rows = rows_of(recording.records)
        self._launches = Counter(op for kind, *_, op, _ in self._rows if kind == Kind.LAUNCH)
        self._products = defaultdict[int, float](float)
        for kind, *_, op, args in self._rows:
            if kind == Kind.GEMM:
                self._products[op] += bytes_of(args)
        self._exchanges = _exchanges(self._rows, recording)
        self._exchanged: set[tuple[int, int]] = set()
        self._attended: set[int] = set()
        self._groups: dict[int, int] = {}
        self._of_graph, self._is_launched = 0, False

    def issue(self) -> None:
        """Issues the operations in the order in which the processor issued them."""
        last: tuple[int, int] | None = None
        handle: int | None = None
        for kind, stream, name, op, args in self._rows:
            key = (stream, op) if kind == Kind.LAUNCH and op else None
            is_more = key is not None and key == last and handle is not None and self.rank.more(handle, self._share(op))
            if not is_more:
                handle = self._issued(kind, stream, name, op, args)
                last = key
            self._mark(kind, args, handle is not None and not is_more)
            self.handles.append(handle)

    def communicating(self) -> list[tuple[Group, int]]:
        """Returns the groups that communicate, with their numbers in the builder."""
        return [(self._recording.groups[number], of) for number, of in sorted(self._groups.items())]

    def _mark(self, kind: int, args: Sequence[int], is_new: bool) -> None:
        """Notes what a CUDA graph launches; its first operation stands for the launch of the graph."""
        if self._of_graph:
            self._of_graph -= 1
            works = is_new and kind not in (Kind.EVENT_RECORD, Kind.STREAM_WAIT)
            self._is_launched = self._of_graph > 0 and (self._is_launched or works)
        elif kind == Kind.GRAPH_LAUNCH:
            self._of_graph = args[0]

    def _issued(self, kind: int, stream: int, name: int, op: int, args: Sequence[int]) -> int | None:
        by_graph = self._is_launched
        match kind:
            case Kind.LAUNCH:
                return self._launch(stream, name, op)
            case Kind.GEMM:
                found = product(args)
                placed = self._placed(op, self._recording.names[name])
                return self.rank.gemm(stream, **found, **placed, backward=self._op(op).is_backward)
            case Kind.COPY if args[1] in DIRECTIONS:
                return self.rank.copy(stream, args[0], DIRECTIONS[args[1]], **self._placed(op, "copy"))
            case Kind.FILL:
                return self.rank.move(stream, args[0], **self._placed(op, "memset"))
            case Kind.EVENT_RECORD:
                return self.rank.record(stream, args[0], by_graph=by_graph)
            case Kind.STREAM_WAIT:
                return self.rank.wait(stream, args[0], by_graph=by_graph)
            case Kind.HOST_WAIT:
                of_stream, of_event = (stream if args[0] == 1 else None), (args[1] if args[0] == 2 else None)
                return self.rank.host_wait(stream=of_stream, event=of_event, by_graph=by_graph)
            case Kind.COLLECTIVE:
                return self._call(stream, self._recording.names[name], op, args)
        return None

    def _op(self, op: int) -> Op:
        return self._recording.ops[op] if 0 < op < len(self._recording.ops) else Op("")

    def _placed(self, op: int, name: str) -> dict[str, Any]:
        """Returns name and line of an operation, and whether a CUDA graph launched it."""
        found = self._op(op)
        line = self._recording.lines[found.line] if found.line else None
        return {"name": found.name or name, "line": line, "by_graph": self._is_launched}

    def _share(self, op: int) -> float:
        """Returns the bytes of one launch of an operator, without the bytes that its products move."""
        return max(0.0, self._op(op).bytes - self._products[op]) / max(1, self._launches[op])

    def _launch(self, stream: int, name: int, op: int) -> int:
        found, placed = self._op(op), self._placed(op, self._recording.names[name])
        backward = found.is_backward or "backward" in found.name
        if "convolution" in found.name and found.flops and not self._products[op]:
            return self.rank.gemm(stream, **convolution(found, self._launches[op]), **placed, backward=backward)
        if op not in self._attended and attention.is_attention(found):
            self._attended.add(op)
            return self.rank.attention(stream, **attention.work_of(found), **placed, backward=found.is_backward)
        if op not in self._attended and (experts := grouped(found)) is not None:
            self._attended.add(op)
            return self.rank.gemm(stream, **experts, **placed, backward=found.is_backward)
        return self.rank.move(stream, self._share(op), **placed)

    def _group(self, communicator: int, group: Group) -> int:
        if communicator not in self._groups:
            number = self._builder.group(group.ranks, rank=self._recording.rank, called=group.name)
            self._groups[communicator] = number
        return self._groups[communicator]

    def _call(self, stream: int, call: str, op: int, args: Sequence[int]) -> int | None:
        _, _, communicator, peer, together, nbytes = args
        group, key = self._recording.groups.get(communicator), (communicator, together)
        if group is None or key in self._exchanged:
            return None
        number, placed = self._group(communicator, group), self._placed(op, call)
        named = placed | {"name": ""}  # the builder names it by its group
        if (total := self._exchanges.get(key)) is not None:
            self._exchanged.add(key)
            return self.rank.collective(stream, "all_to_all", total, number, **named)
        named |= {"together": together or None}
        if call not in ("send", "recv"):
            named = placed if len(group.ranks) == 1 else named  # its kernel reads and writes the bytes
            return self.rank.collective(stream, call, nbytes, number, share=call in SHARES, **named)
        if (other := group.ranks[peer]) != self._recording.rank:
            return self.rank.message(stream, call, nbytes, other, group=number, **named)
        return self.rank.copy(stream, nbytes, "d2d", **placed) if call == "send" else None


def _exchanges(rows: Sequence[LogRow], recording: RankRecording) -> Mapping[tuple[int, int], int]:
    """Returns the bytes of group calls in which a rank sends to all others and receives from all: all_to_all."""
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
