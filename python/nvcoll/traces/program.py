"""The operations of one rank with dependencies, and the recorded step made of them.

A trace gives the stream of each operation and the operations for which it waits. A recorded step has streams, events
and waits instead::

    operation 3 on stream 7                        record event 3 on stream 7
    operation 5 on stream 9, after operation 3  -> stream 9 waits for event 3
    the processor goes on after operation 5        the processor waits for event 5

Operations of one stream run in order, so a wait for an earlier operation of the same stream is left out. A second wait
of a stream for the same operation is left out, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import Any, Final

from nvcoll._nvcoll import WorkStep
from nvcoll.training.group_words import word_of

Row = dict[str, Any]

MOST: Final = 1 << 20
"""The most operations of a step that are read: the most that a recorded step may have."""

HOST: Final = -1
"""The stream number of operations of the processor."""


@dataclass(frozen=True)
class Node:
    """One operation: its fields in a recorded step, its stream, and the numbers of operations for which it waits."""

    op: Row
    stream: int = HOST
    after: Sequence[int] = ()


@dataclass
class Groups:
    """Groups of ranks as (size, stride), by name: their parallelism, or if it is not known, the number of ranks."""

    rows: dict[str, Row] = field(default_factory=dict)
    notes: set[str] = field(default_factory=set)

    def named(self, ranks: Sequence[int], description: str = "") -> str:
        """Returns the name of a group of ranks. The description of torch's process group, if any, decides the name."""
        ranks = sorted(set(ranks))
        strides = {second - first for first, second in pairwise(ranks)}
        if len(strides) > 1:
            self.notes.add(f"{len(ranks)} ranks at unequal distances, as {ranks[:6]}, are placed at equal ones")
        return self.shaped(len(ranks), min(strides, default=1), description)

    def shaped(self, size: int, stride: int, description: str = "") -> str:
        """Returns the name of a group of some size and stride."""
        kind = word_of(description)
        row: Row = ({"kind": kind} if kind else {}) | {"size": size, "stride": stride}
        names: Iterable[str] = (f"{size} ranks", f"{size} ranks, {stride} apart")
        if kind is not None:
            names = (kind if nth == 1 else f"{kind} {nth}" for nth in count(1))
        return next(name for name in names if self.rows.setdefault(name, row) == row)


@dataclass
class Trace:
    """The steps of a file, and the assumptions made in reading it."""

    steps: list[WorkStep]
    notes: list[str] = field(default_factory=list)
    measured: Any = None
    """The measured times of a profiler's trace, otherwise None."""


def ops_of(nodes: Sequence[Node]) -> list[Row]:
    """Returns the operations of a rank in the order in which the processor issues them."""
    waited_for = _waited_for(nodes)
    recorded = {one for some in waited_for for one in some}
    ops: list[Row] = []
    for number, node in enumerate(nodes):
        for other in waited_for[number]:
            wait = {"work": "host_wait", "for": {"event": other}}
            ops.append(wait if node.stream == HOST else {"work": "stream_wait", "stream": node.stream, "event": other})
        if node.op:
            ops.append(node.op if node.stream == HOST else {"stream": node.stream, **node.op})
        if number in recorded:
            ops.append({"work": "record", "stream": node.stream, "event": number})
    return ops


def _waited_for(nodes: Sequence[Node]) -> list[list[int]]:
    """Returns for each operation those of other streams for which it has to wait, each wait once."""
    seen: dict[tuple[int, int], int] = {}
    found: list[list[int]] = []
    for node in nodes:
        last: dict[int, int] = {}
        for other in node.after:
            stream = nodes[other].stream
            if stream not in (HOST, node.stream) and other > seen.get((node.stream, stream), -1):
                last[stream] = max(other, last.get(stream, -1))
        seen |= {(node.stream, stream): other for stream, other in last.items()}
        found.append(sorted(last.values()))
    return found


def recorded_step(
    *,
    name: str,
    gpus: int,
    groups: Groups,
    ranks: Iterable[tuple[int, int, Sequence[Row]]],
    gpu: str,
    host: str | Row = "timed",
    dtype: str = "bf16",
) -> WorkStep:
    """Makes a recorded step.

    Args:
        name: of the step, for people.
        gpus: the number of GPUs.
        groups: the groups of its collectives.
        ranks: the number of each rank, the number of ranks that it stands for, and its operations.
        gpu: the model of GPU for which its kernels were chosen.
        host: the clock of the processor; by default operations have all its time, and launches take none.
        dtype: the precision of most products.

    Raises:
        InvalidArgument: it contradicts itself.
    """
    rows = [
        {"rank": rank, "stands_for": count, "name": f"rank {rank}", "host": host, "issued": list(ops)}
        for rank, count, ops in ranks
    ]
    step = {
        "schema": "nvcoll.step/1",
        "name": name,
        "gpus": gpus,
        "dtype": dtype,
        "groups": groups.rows,
        "streams": {"gpu": gpu, "ranks": rows},
    }
    return WorkStep.from_json(json.dumps(step))
