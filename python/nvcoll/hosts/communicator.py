"""The collectives of one rank whose communicator has ranks on several hosts, as on one host: see `nvcoll.Communicator`.

Every call is checked here, gets a name that records compare, and runs in its turn on the lane of the communicator.
What is not there yet refuses with its reason: algorithms but ``auto`` and ``two_level``, paths, `shrink`.
"""

from __future__ import annotations

import time
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypedDict, Unpack

import numpy as np

from nvcoll._nvcoll import Busy, Error, InvalidArgument, Mismatch
from nvcoll._nvcoll import Communicator as HostCommunicator
from nvcoll.hosts import copies, reductions
from nvcoll.hosts.arrays import Arguments
from nvcoll.hosts.channel import Channel
from nvcoll.hosts.group import Group
from nvcoll.hosts.lane import Lane, Work
from nvcoll.hosts.meeting import WITH_RECORD_IN_HOST, Meeting
from nvcoll.hosts.messages import Message, Messages, Outbox
from nvcoll.hosts.outer import Bytes, Late, Lost, Outer, Stopped
from nvcoll.hosts.places import Places
from nvcoll.hosts.reductions import Reduction
from nvcoll.hosts.subsets import Numbers
from nvcoll.hosts.team import Team
from nvcoll.hosts.watch import Failure, Watch

if TYPE_CHECKING:
    from nvcoll._nvcoll import _Op

    Counts = Sequence[int] | Sequence[Sequence[int]]

LEAVING_S = 5.0
"""How long a rank that leaves waits for its calls in flight. Chosen."""

RECENT = 15
"""How many calls a communicator remembers, as on one host."""

Made = Callable[[Bytes], object]
"""What a call does once the ranks of the host have compared its record."""


class How(TypedDict, total=False):
    """How a call is made: see the calls of `nvcoll.Communicator`."""

    algorithm: str | None
    path: str | None
    timeout: float | None
    async_op: bool


@dataclass
class World:
    """What the communicators of a job share.

    Attributes:
        watch: failures.
        numbers: the numbers of communicators.
        places: the ranks of the job.
        is_nested: whether sums of hosts are added by default.
        outboxes: the sends of its communicators.
    """

    watch: Watch
    numbers: Numbers
    places: Places
    is_nested: bool = False
    outboxes: list[Outbox] = field(default_factory=list)


class Communicator:
    """The collectives of one rank, with ranks on several hosts.

    Args:
        world: what the communicators of the job share.
        places: the ranks.
        inner: the communicator of those on this host.
        channel: the messages to the others.
        timeout: seconds that each call may take; default for calls that do not say.

    Attributes:
        empty, zeros, full, array: make arrays that every rank of this host can reach, as on one host.
    """

    def __init__(
        self, world: World, places: Places, inner: HostCommunicator, channel: Channel, timeout: float | None
    ) -> None:
        self._world, self._places, self._inner, self._timeout = world, places, inner, timeout
        self.empty, self.zeros, self.full, self.array = inner.empty, inner.zeros, inner.full, inner.array
        inner._name_ranks(places.mine)
        self._team = Team(places, inner, channel)
        with world.watch.guard(places, timeout):  # other ranks may be in a call, and fail, before this one is ready
            self._meeting = Meeting(self._team)
        self._lane = Lane(f"communicator {channel.number}")
        self._messages = Messages(places, inner, channel, world.watch, timeout)
        world.outboxes.append(self._messages.outbox)
        self._opened: list[Group] = []
        self._recent: deque[tuple[int, str]] = deque(maxlen=RECENT)
        self._count = 0

    # Who

    @property
    def rank(self) -> int:
        """This rank, from 0."""
        return self._places.rank

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return self._places.size

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of the job that form this communicator, in the order of ranks here."""
        return self._places.world

    @property
    def hosts(self) -> tuple[tuple[int, ...], ...]:
        """The ranks of each host; hosts by their lowest rank."""
        return self._places.hosts

    def recent_calls(self) -> list[tuple[int, str]]:
        """Returns the last calls of this rank, newest first, at most 15, each a number and a description."""
        return list(reversed(self._recent))

    # Reductions

    def all_reduce(self, x: object, op: _Op | None = None, *, out: object = None, **how: Unpack[How]) -> object:
        """Reduces the arrays of all ranks element by element and gives every rank the result.

        Args, results, errors: as `nvcoll.Communicator.all_reduce`; ``algorithm`` is ``auto`` or ``two_level``.
        """
        return self._all_reduce(Arguments(self._places, "all_reduce", x, op=op, out=out), how)

    def reduce(
        self, x: object, op: _Op | None = None, *, root: int = 0, out: object = None, **how: Unpack[How]
    ) -> object:
        """Reduces the arrays of all ranks element by element and gives the root the result.

        Args, results, errors: as `nvcoll.Communicator.reduce`.
        """
        return self._all_reduce(Arguments(self._places, "reduce", x, op=op, root=root, out=out), how)

    def _all_reduce(self, given: Arguments, how: How) -> object:
        is_nested = self._takes("two_level", how)

        def make(record: Bytes) -> object:
            target = given.out if given.out.count else given.x.like(given.x.count)
            red = self._reduction(given)
            reductions.all_reduce(self._team, self._meeting, record, given.x, target, red, is_nested=is_nested)
            return given.finish()

        name = _reduces(given, is_nested) + (f", root {given.passed.root}" if given.collective == "reduce" else "")
        return self._make(name, make, given.passed.result, how, payload=given.x.bytes)

    def reduce_scatter(
        self, x: object, op: _Op | None = None, *, counts: object = None, out: object = None, **how: Unpack[How]
    ) -> object:
        """Reduces the arrays of all ranks element by element and gives rank r part r of the result.

        Args, results, errors: as `nvcoll.Communicator.reduce_scatter`; ``algorithm`` is ``auto`` or ``two_level``.
        """
        is_nested = self._takes("two_level", how)
        given = Arguments(self._places, "reduce_scatter", x, op=op, counts=counts, out=out)
        row = given.passed.counts

        def move(red: Reduction) -> None:
            reductions.reduce_scatter(self._team, given.x, row, given.out, red, is_nested=is_nested)

        name = _reduces(given, is_nested) + _digest(row)
        return self._agreed(name, given, how, lambda: move(self._reduction(given)))

    def scan(self, x: object, op: _Op | None = None, *, out: object = None, **how: Unpack[How]) -> object:
        """Gives rank r the reduction of the arrays of ranks 0 to r: see `nvcoll.Communicator.scan`."""
        return self._scan(Arguments(self._places, "scan", x, op=op, out=out), how)

    def exscan(self, x: object, op: _Op | None = None, *, out: object = None, **how: Unpack[How]) -> object:
        """Gives rank r the reduction of the arrays of ranks 0 to r - 1: see `nvcoll.Communicator.exscan`."""
        return self._scan(Arguments(self._places, "exscan", x, op=op, out=out), how)

    def _scan(self, given: Arguments, how: How) -> object:
        self._takes(None, how)

        def move() -> None:
            target = given.out if given.out.count else given.x.like(given.x.count)
            is_exclusive = given.collective == "exscan"
            reductions.scan(self._team, given.x, target, self._reduction(given), is_exclusive=is_exclusive)

        return self._agreed(_reduces(given, False), given, how, move)

    # Copies

    def all_gather(self, x: object, *, counts: object = None, out: object = None, **how: Unpack[How]) -> object:
        """Gives every rank the arrays of all ranks, one after the other: see `nvcoll.Communicator.all_gather`."""
        self._takes(None, how)
        given = Arguments(self._places, "all_gather", x, counts=counts, out=out)
        sizes = [count * given.x.itemsize for count in given.passed.counts]
        name = f"all_gather of {given.out.count} {given.x.dtype}{_digest(sizes)}"
        move = partial(copies.all_gather, self._team, given.x.bytes, sizes, given.out.bytes)
        return self._agreed(name, given, how, move)

    def broadcast(self, x: object, *, root: int = 0, out: object = None, **how: Unpack[How]) -> object:
        """Gives every rank the array of the root: see `nvcoll.Communicator.broadcast`."""
        self._takes(None, how)
        given = Arguments(self._places, "broadcast", x, root=root, out=out)
        root = given.passed.root

        def move() -> None:
            if self.rank == root and out is not None:
                given.out.bytes[:] = given.x.bytes
            copies.broadcast(self._team, given.out.bytes, root)

        return self._agreed(f"broadcast of {given.out.count} {given.x.dtype}, root {root}", given, how, move)

    def gather(
        self, x: object, *, root: int = 0, counts: object = None, out: object = None, **how: Unpack[How]
    ) -> object:
        """Gives the root the arrays of all ranks, one after the other: see `nvcoll.Communicator.gather`."""
        given = Arguments(self._places, "gather", x, root=root, counts=counts, out=out)
        return self._exchange(given, np.s_[:, given.passed.root], how)

    def scatter(
        self, x: object, *, root: int = 0, counts: object = None, out: object = None, **how: Unpack[How]
    ) -> object:
        """Gives rank r part r of the root's array: see `nvcoll.Communicator.scatter`."""
        given = Arguments(self._places, "scatter", x, root=root, counts=counts, out=out)
        return self._exchange(given, np.s_[given.passed.root, :], how)

    def all_to_all(
        self,
        x: object,
        *,
        counts: Counts | None = None,
        recv_counts: Sequence[int] | None = None,
        out: object = None,
        **how: Unpack[How],
    ) -> object:
        """Gives rank r part r of the array of every rank: see `nvcoll.Communicator.all_to_all`."""
        is_row = counts is not None and not (len(counts) and np.ndim(counts[0]))
        if recv_counts is not None and not is_row:
            raise InvalidArgument("`recv_counts` is given without a row of `counts`: pass what this rank sends")
        if is_row:
            return self._rows_first(x, counts, recv_counts, out, how)
        given = Arguments(self._places, "all_to_all", x, counts=counts, out=out)
        return self._exchange(given, np.s_[:, :], how)

    def _exchange(self, given: Arguments, moved: tuple[slice | int, slice | int], how: How) -> object:
        """Makes a call that moves parts: those of a table from each rank (row) to each."""
        self._takes(None, how)
        counts, size = given.passed.counts, self.world_size
        table = np.zeros((size, size), np.int64)
        table[moved] = np.reshape(counts, table[moved].shape)
        of_root = "" if given.collective == "all_to_all" else f", root {given.passed.root}"
        name = f"{given.collective} of {sum(counts)} {given.x.dtype}{of_root}{_digest(counts)}"
        move = partial(copies.exchange, self._team, given.x.bytes, table * given.x.itemsize, given.out.bytes)
        return self._agreed(name, given, how, move)

    def _rows_first(
        self, x: object, counts: Counts | None, expected: Sequence[int] | None, out: object, how: How
    ) -> object:
        """Makes an all_to_all whose ranks tell each other their rows first."""
        self._takes(None, how)
        size = self.world_size
        sent = Arguments(self._places, "scatter", x, root=self.rank, counts=counts)
        wanted = None if expected is None else np.asarray(expected).tolist()
        if wanted is not None and not (len(wanted) == size and all(isinstance(count, int) for count in wanted)):
            raise InvalidArgument(f"`recv_counts` is {expected!r}: pass {size} whole numbers, one for each rank")

        def make(record: Bytes) -> object:
            self._meeting.agree(record)
            table = np.empty((size, size), np.int64)
            own = np.array(sent.passed.counts, np.int64)
            copies.all_gather(self._team, own.view(np.uint8), [own.nbytes] * size, table.reshape(-1).view(np.uint8))
            column = table[:, self.rank].tolist()
            if wanted not in (None, column):
                q = next(q for q in range(size) if wanted[q] != column[q])
                raise Mismatch(
                    f"rank {q} sends {column[q]} elements to rank {self.rank}, which expects {wanted[q]}: "
                    "pass `counts` and `recv_counts` that agree",
                    ranks=(q, self.rank),
                )
            given = Arguments(self._places, "all_to_all", x, counts=table.tolist(), out=out)
            copies.exchange(self._team, given.x.bytes, table * given.x.itemsize, given.out.bytes)
            return given.finish()

        return self._make(f"all_to_all of {sent.x.dtype}, by rows", make, out, how)

    def barrier(self, **how: Unpack[How]) -> object:
        """Waits until every rank has called it: see `nvcoll.Communicator.barrier`."""
        self._takes(None, how)
        return self._make("barrier", self._meeting.agree, None, how)

    # Messages

    def send(self, x: object, dst: int, *, tag: int | None = None, timeout: float | None = None) -> None:
        """Sends an array to a rank, which calls `recv`: see `nvcoll.Communicator.send`."""
        dst = self._checked(dst, "dst")
        if self._opened:
            patience = self._patience(timeout)
            self._opened[0].add(lambda: self._messages.isend(x, dst, tag, patience))
        else:
            self._messages.isend(x, dst, tag, timeout).wait()

    def recv(
        self, x: object, src: int | None = None, *, tag: int | None = None, timeout: float | None = None
    ) -> Message:
        """Receives an array that a rank sends: see `nvcoll.Communicator.recv`."""
        message, src = Message(), None if src is None else self._checked(src, "src")
        if self._opened:
            patience = self._patience(timeout)
            self._opened[0].add(lambda: self._messages.irecv(x, src, tag, patience, message))
        else:
            self._messages.irecv(x, src, tag, timeout, message).wait()
        return message

    def isend(self, x: object, dst: int, *, tag: int | None = None, timeout: float | None = None) -> Work:
        """Begins to send an array to a rank: see `nvcoll.Communicator.isend`."""
        return self._messages.isend(x, self._checked(dst, "dst"), tag, timeout)

    def irecv(self, x: object, src: int | None = None, *, tag: int | None = None, timeout: float | None = None) -> Work:
        """Begins to receive an array that a rank sends: see `nvcoll.Communicator.irecv`."""
        return self._messages.irecv(x, None if src is None else self._checked(src, "src"), tag, timeout)

    def sendrecv(
        self,
        x: object,
        dst: int,
        out: object,
        src: int | None = None,
        *,
        tag: int | None = None,
        recv_tag: int | None = None,
        timeout: float | None = None,
    ) -> Message:
        """Sends an array to one rank and receives an array from one: see `nvcoll.Communicator.sendrecv`."""
        if self._opened:
            self.send(x, dst, tag=tag, timeout=timeout)
            return self.recv(out, src, tag=recv_tag, timeout=timeout)
        message, src = Message(), None if src is None else self._checked(src, "src")
        received = self._messages.irecv(out, src, recv_tag, timeout, message)
        self.isend(x, dst, tag=tag, timeout=timeout).wait()
        received.wait()
        return message

    # Communicators

    def subset(
        self, ranks: Sequence[int], tag: int | None = None, *, timeout: float | None = None
    ) -> Communicator | HostCommunicator:
        """Makes a communicator of some ranks, which call it: see `nvcoll.Communicator.subset`.

        If they are all on this host, it is a communicator of this host.
        """
        ranks = [self._checked(rank, "ranks") for rank in ranks]
        if len(set(ranks)) != len(ranks) or self.rank not in ranks:
            raise InvalidArgument(f"`ranks` is {ranks}: pass each rank once, and this one, {self.rank}, among them")
        places = self._places.subset(ranks)
        mine = self._places.mine
        local = [mine.index(ranks[one]) for one in places.mine]
        patience = self._timeout if timeout is None else timeout
        with self._world.watch.guard(self._places, patience):
            inner = self._inner.subset(local, tag, timeout=patience)
        if len(places.hosts) == 1:
            return inner
        with self._world.watch.guard(places, patience) as deadline:
            number = self._world.numbers.agree(places, tag or 0, deadline)
        channel = Channel(self._team.channel.outer, number, places)
        return Communicator(self._world, places, inner, channel, self._timeout)

    def split(
        self, color: int | None, key: int | None = None, *, timeout: float | None = None
    ) -> Communicator | HostCommunicator | None:
        """Splits the ranks into groups, each with its own communicator: see `nvcoll.Communicator.split`."""
        for name, number, least in (("color", color, 0), ("key", key, -(2**31))):
            if number is not None and not (isinstance(number, (int, np.integer)) and least <= number < 2**31):
                raise InvalidArgument(f"`{name}` is {number!r}: pass a whole number, {least} to {2**31 - 1}, or None")
        if self._opened:
            raise InvalidArgument("split in a group: its ranks talk to each other, and a group begins at its end")
        own = np.array([-1 if color is None else color, key or 0], np.int64)
        rows = np.empty((self.world_size, 2), np.int64)
        self.all_gather(own, out=rows.reshape(-1), timeout=timeout)
        if color is None:
            return None
        among = sorted(np.flatnonzero(rows[:, 0] == color).tolist(), key=lambda rank: int(rows[rank, 1]))
        return self.subset(among, timeout=timeout)

    def shrink(self, *, timeout: float | None = None) -> Communicator:
        """Refuses: a job on several hosts cannot go on without a rank yet."""
        raise InvalidArgument(
            "shrink: the ranks are on several hosts, and only ranks of one host can go on without one"
        )

    def group(self, *, timeout: float | None = None, async_op: bool = False) -> Group:
        """Collects the calls of a ``with`` block, which run one after the other: see `nvcoll.Communicator.group`.

        Args:
            timeout: seconds that each of its calls may take. Default: that of the communicator.
            async_op: whether the program continues after the block while the calls run.
        """
        return Group(self._lane, self._opened, timeout, async_op=async_op)

    def abort(self) -> None:
        """Ends the calls of all communicators of the job, on every rank."""
        self._world.watch.abort(self._places)

    def add_sums_of_hosts(self) -> None:
        """Makes ``two_level`` the default of all communicators of this job, on this rank: all ranks call it."""
        self._world.is_nested = True

    def leave(self) -> None:
        """Leaves the job in order, after the calls in flight.

        Raises:
            Busy: another thread is in a call.
        """
        if not self._lane.drain(LEAVING_S):
            raise Busy("a call is in flight: wait for it before this rank leaves")
        with suppress(Late, Lost, Stopped, Error):
            end = time.monotonic() + LEAVING_S
            for outbox in self._world.outboxes:
                outbox.drain(end)
        self._world.watch.end()

    def fail(self, text: str) -> None:
        """Leaves the job as a rank that has failed: the calls of all ranks end with `Aborted`."""
        self._world.watch.tell(Failure("Aborted", text, (self._world.places.rank,), host=self._world.places.host))

    # How a call is made

    def _agreed(self, name: str, given: Arguments, how: How, move: Callable[[], None]) -> object:
        """Makes a call whose ranks have all met before it moves data."""

        def make(record: Bytes) -> object:
            self._meeting.agree(record)
            move()
            return given.finish()

        return self._make(name, make, given.passed.result, how)

    def _make(self, name: str, make: Made, result: object, how: How, *, payload: Bytes | None = None) -> object:
        """Makes a call in its turn, or collects it for the open group.

        Args:
            name: the call, as records compare it.
            make: what it does.
            result: what it returns in a group.
            how: the seconds that it may take, from its turn, and whether to return a work at once.
            payload: what goes with the record inside the host, if it is small.
        """
        patience = self._patience(how.get("timeout"))
        early = payload if payload is not None and len(payload) <= WITH_RECORD_IN_HOST else None

        def call() -> object:
            self._count += 1
            self._recent.append((self._count, name))
            with self._world.watch.guard(self._places, patience, has_begun=True):
                self._team.begin(patience)
                return make(self._meeting.in_host(name, early))

        if self._opened:
            self._opened[0].add(call)
            return result
        return self._lane.issue(call, name) if how.get("async_op") else self._lane.run(call, name)

    def _patience(self, timeout: float | None) -> float | None:
        """Returns the seconds that a call may take: its own, else those of the open group, else the communicator's."""
        if timeout is not None and not (isinstance(timeout, (int, float)) and timeout >= 0):
            raise InvalidArgument(f"`timeout` is {timeout!r}: pass seconds, 0 or more, or None to wait without a limit")
        of_group = self._opened[0].timeout if self._opened else None
        return next((one for one in (timeout, of_group) if one is not None), self._timeout)

    def _reduction(self, given: Arguments) -> Reduction:
        """Returns the op of a call, with the scalars of all ranks if they have some."""
        passed, size = given.passed, self.world_size
        if passed.op != "premul_sum":
            return Reduction(passed.op, given.x, size)
        scalars = np.empty(size)
        copies.all_gather(self._team, np.array([passed.scalar]).view(np.uint8), [8] * size, scalars.view(np.uint8))
        return Reduction(passed.op, given.x, size, scalars.tolist())

    def _takes(self, other: str | None, how: How) -> bool:
        """Takes ``algorithm`` and ``path`` from the arguments of a call; says whether sums of hosts may be added.

        Args:
            other: the algorithm that the call knows beside ``auto``.
            how: the arguments.
        """
        algorithm, path = how.pop("algorithm", None), how.pop("path", None)
        if algorithm not in (None, "auto", other):
            known = "auto" if other is None else f"auto or {other}"
            raise InvalidArgument(f"`algorithm` is {algorithm!r}: ranks are on several hosts, pass {known}")
        if unknown := how.keys() - {"timeout", "async_op"}:
            raise TypeError(f"got an unexpected keyword argument {unknown.pop()!r}")
        if path is not None:
            raise InvalidArgument(f"`path` is {path!r}: ranks are on several hosts, leave it out")
        return other is not None and (self._world.is_nested if algorithm is None else algorithm == other)

    def _checked(self, rank: object, name: str) -> int:
        if isinstance(rank, bool) or not isinstance(rank, (int, np.integer)) or not 0 <= rank < self.world_size:
            raise InvalidArgument(f"`{name}` is {rank!r}: pass a rank, 0 to {self.world_size - 1}")
        return int(rank)

    def _refuse_in_flight(self, arrays: Sequence[object], is_written: bool) -> None:
        """Refuses nothing: calls of a communicator of several hosts run in their order."""


def _reduces(given: Arguments, is_nested: bool) -> str:
    """Returns the name of a call that reduces, as records compare it."""
    how = f"{given.passed.op}{', two_level' if is_nested else ''}"
    return f"{given.collective} of {given.x.count} {given.x.dtype}, {how}"


def _digest(counts: Sequence[int]) -> str:
    """Returns what tells apart calls with different counts."""
    return f" #{zlib.crc32(repr(counts).encode()):08x}" if len(set(counts)) > 1 else ""


def across(places: Places, inner: HostCommunicator, outer: Outer, timeout: float | None) -> Communicator:
    """Makes the communicator of all ranks of a job.

    Args:
        places: the ranks.
        inner: the communicator of those on this host.
        outer: the connected engine between hosts.
        timeout: seconds that each call may take; default for calls that do not say. None: no limit.
    """
    world = World(Watch(outer, inner, places), Numbers(outer), places)
    return Communicator(world, places, inner, Channel(outer, 1, places), timeout)
