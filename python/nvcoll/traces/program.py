"""The operations of one rank with dependencies, as traces know them, and the step made of them.

A trace gives the stream of each operation and the operations for which it waits. `nvcoll._nvcoll.StepBuilder` makes
events and waits of them, names of groups, and the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, TypeAlias

from nvcoll._nvcoll import Issue, RankBuilder, StepBuilder, WorkStep

MOST: Final = 1 << 20
"""The most operations of a step that are read: the most that a step on streams may have."""

HOST: Final = -1
"""The stream number of operations of the processor."""


@dataclass(frozen=True)
class Host:
    """Time of the processor."""

    seconds: float


@dataclass(frozen=True)
class Timed:
    """A kernel of known time."""

    name: str
    seconds: float


@dataclass(frozen=True)
class Moved:
    """A kernel that moves bytes."""

    name: str
    nbytes: float


@dataclass(frozen=True)
class Product:
    """Products of (m, k) and (k, n) in one kernel."""

    name: str
    m: float
    n: float
    k: float
    dtype: str
    batch: int = 1

    @property
    def flops(self) -> float:
        """Its FLOPs."""
        return 2.0 * self.m * self.n * self.k * self.batch


@dataclass(frozen=True)
class Members:
    """A group of ranks: its ranks, or if they are not known its size and the distance of two of them."""

    ranks: tuple[int, ...] = ()
    size: int = 1
    stride: int = 1
    called: str = ""

    @property
    def extent(self) -> int:
        """The number of ranks that a step with such a group has at least."""
        if not self.ranks:
            return self.size * self.stride
        ranks = sorted(self.ranks)
        return len(ranks) * min((after - one for one, after in pairwise(ranks)), default=1)

    def number(self, builder: StepBuilder, rank: int) -> int:
        """Returns its number."""
        if self.ranks:
            return builder.group(self.ranks, rank=rank, called=self.called)
        return builder.shape(self.size, self.stride, called=self.called)


@dataclass(frozen=True)
class Call:
    """A collective; bytes as nccl-tests counts them. ``measured_s`` is its time in the trace, if it has one."""

    name: str
    pattern: str
    nbytes: float
    members: Members
    measured_s: float = 0.0


@dataclass(frozen=True)
class Message:
    """A message that is sent to a peer (``send``) or received from it (``recv``)."""

    name: str
    way: str
    nbytes: float
    peer: int
    tag: int


Work: TypeAlias = Host | Timed | Moved | Product | Call | Message | None


@dataclass(frozen=True)
class Node:
    """One operation (None: it only waits), its stream, and the numbers of operations for which it waits."""

    work: Work
    stream: int = HOST
    after: Sequence[int] = ()


@dataclass(frozen=True)
class Measured:
    """Measured seconds of one rank in a step; computing, exposed and idle time add up to the step."""

    seconds: float
    computing_s: float
    exposed_s: float
    idle_s: float
    collectives: Sequence[tuple[str, str, float, float]]
    """Pattern, group, bytes and seconds of each."""
    is_virtual: bool
    """Whether the GPU was a virtual one: then the processor's time is of another machine than the GPU's."""
    replay: WorkStep
    """The step with measured collectives: its prediction differs from `seconds` by order, waits and processor alone."""


@dataclass
class Trace:
    """The steps of a file, and the assumptions made in reading it."""

    steps: list[WorkStep]
    notes: list[str] = field(default_factory=list)
    measured: Measured | None = None
    """The measured times of a profiler's trace, otherwise None."""


def issue(builder: StepBuilder, rank: RankBuilder, number: int, nodes: Sequence[Node]) -> None:
    """Adds the operations of a rank in their order.

    Args:
        builder: the builder of the step.
        rank: the builder of the rank.
        number: the rank.
        nodes: its operations.
    """
    handles: list[int | None] = []
    for node in nodes:
        waits = [handle for other in node.after if (handle := handles[other]) is not None]
        if waits:
            rank.after(None if node.stream == HOST else node.stream, waits)
        handles.append(_added(builder, rank, number, node))


def _added(builder: StepBuilder, rank: RankBuilder, number: int, node: Node) -> int | None:
    """Adds an operation, and returns its handle; None: it only waits, or is of the processor."""
    stream = max(node.stream, 0)
    match node.work:
        case Host(seconds):
            rank.host(seconds)
            return None
        case Timed(name, seconds):
            return rank.timed(Issue(stream, name), seconds)
        case Moved(name, nbytes):
            return rank.move(Issue(stream, name), nbytes)
        case Product(name, m, n, k, dtype, batch):
            return rank.gemm(Issue(stream, name), m, n, k, dtype=dtype, batch=batch)
        case Call(name, pattern, nbytes, members, _):
            return rank.collective(Issue(stream, name), pattern, nbytes, members.number(builder, number))
        case Message(name, way, nbytes, peer, tag):
            return rank.message(Issue(stream, name), way, nbytes, peer, tag=tag)
    return None
