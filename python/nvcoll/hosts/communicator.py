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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nvcoll._nvcoll import Busy, Error, InvalidArgument, Mismatch, _op
from nvcoll._nvcoll import Communicator as HostCommunicator
from nvcoll._nvcoll import ops as _ops
from nvcoll.hosts import copies, reductions
from nvcoll.hosts.arrays import Operand, even, row_of
from nvcoll.hosts.channel import Channel
from nvcoll.hosts.group import Group
from nvcoll.hosts.lane import Lane
from nvcoll.hosts.meeting import WITH_RECORD_IN_HOST, Meeting
from nvcoll.hosts.messages import Message, Messages, Outbox
from nvcoll.hosts.outer import Bytes, Late, Lost, Outer, Stopped
from nvcoll.hosts.places import Places
from nvcoll.hosts.reductions import Reduction
from nvcoll.hosts.subsets import Numbers
from nvcoll.hosts.team import Team
from nvcoll.hosts.watch import Failure, Watch

OPS = {row.name: set(row.dtypes) for row in _ops()}

LEAVING_S = 5.0
"""How long a rank that leaves waits for its calls in flight. Chosen."""

RECENT = 15
"""How many calls a communicator remembers, as on one host."""

Made = Callable[[Bytes], Any]
"""What a call does once the ranks of the host have compared its record."""


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
    """

    def __init__(
        self, world: World, places: Places, inner: HostCommunicator, channel: Channel, timeout: float | None
    ) -> None:
        self._world, self._places, self._inner, self._timeout = world, places, inner, timeout
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

    def all_reduce(
        self, x: Any, op: Any = None, *, out: Any = None, algorithm: Any = None, path: Any = None, **how: Any
    ) -> Any:
        """Reduces the arrays of all ranks element by element and gives every rank the result.

        Args, results, errors: as `nvcoll.Communicator.all_reduce`; ``algorithm`` is ``auto`` or ``two_level``.
        """
        into, source, target = self._in_and_out(x, out)
        reduce, name, is_nested = self._reduction("all_reduce", source, op, algorithm, path)

        def make(record: Bytes) -> Any:
            red = reduce()
            reductions.all_reduce(self._team, self._meeting, record, source, target, red, is_nested=is_nested)
            target.put_back()
            return into

        return self._make(name, make, into, payload=source.bytes, **how)

    def reduce(
        self,
        x: Any,
        op: Any = None,
        *,
        root: int = 0,
        out: Any = None,
        algorithm: Any = None,
        path: Any = None,
        **how: Any,
    ) -> Any:
        """Reduces the arrays of all ranks element by element and gives the root the result.

        Args, results, errors: as `nvcoll.Communicator.reduce`.
        """
        is_root = self._checked(root) == self.rank
        into, source, target = self._in_and_out(x, out) if is_root else (None, Operand(x, "x"), None)
        reduce, name, is_nested = self._reduction("reduce", source, op, algorithm, path)

        def make(record: Bytes) -> Any:
            to = target or source.like(source.count)
            reductions.all_reduce(self._team, self._meeting, record, source, to, reduce(), is_nested=is_nested)
            if target:
                target.put_back()
            return into

        return self._make(f"{name}, root {root}", make, into, payload=source.bytes, **how)

    def reduce_scatter(
        self,
        x: Any,
        op: Any = None,
        *,
        counts: Any = None,
        out: Any = None,
        algorithm: Any = None,
        path: Any = None,
        **how: Any,
    ) -> Any:
        """Reduces the arrays of all ranks element by element and gives rank r part r of the result.

        Args, results, errors: as `nvcoll.Communicator.reduce_scatter`.
        """
        source = Operand(x, "x")
        row = even(source.count, self.world_size) if counts is None else row_of(counts, self.world_size, "counts")
        self._check_sum("x", source, sum(row))
        target = self._output(out, source, row[self.rank], row, row[: self.rank])
        reduce, name, is_nested = self._reduction("reduce_scatter", source, op, algorithm, path)

        def make(record: Bytes) -> Any:
            red = reduce()
            self._meeting.agree(record)
            reductions.reduce_scatter(self._team, source, row, target, red, is_nested=is_nested)
            target.put_back()
            return target.x

        return self._make(name + _digest(row), make, target.x, **how)

    def scan(self, x: Any, op: Any = None, **how: Any) -> Any:
        """Gives rank r the reduction of the arrays of ranks 0 to r: see `nvcoll.Communicator.scan`."""
        return self._scan("scan", x, op, **how)

    def exscan(self, x: Any, op: Any = None, **how: Any) -> Any:
        """Gives rank r the reduction of the arrays of ranks 0 to r - 1: see `nvcoll.Communicator.exscan`."""
        return self._scan("exscan", x, op, **how)

    def _scan(
        self, name: str, x: Any, op: Any, *, out: Any = None, algorithm: Any = None, path: Any = None, **how: Any
    ) -> Any:
        into, source, target = self._in_and_out(x, out)
        reduce, name, _ = self._reduction(name, source, op, algorithm, path)
        if "avg" in name or "premul_sum" in name or algorithm == "two_level":
            raise InvalidArgument(f"{name}: scans take any op but avg and premul_sum, in the order of ranks")
        is_exclusive = name.startswith("exscan")

        def make(record: Bytes) -> Any:
            self._meeting.agree(record)
            reductions.scan(self._team, source, target, reduce(), is_exclusive=is_exclusive)
            target.put_back()
            return into

        return self._make(name, make, into, **how)

    # Copies

    def all_gather(
        self, x: Any, *, counts: Any = None, out: Any = None, algorithm: Any = None, path: Any = None, **how: Any
    ) -> Any:
        """Gives every rank the arrays of all ranks, one after the other: see `nvcoll.Communicator.all_gather`."""
        self._refuse(algorithm, path)
        source = Operand(x, "x")
        row = [source.count] * self.world_size if counts is None else row_of(counts, self.world_size, "counts")
        self._check_sum("x", source, row[self.rank])
        target = self._output(out, source, sum(row), row, row[: self.rank])

        def make(record: Bytes) -> Any:
            self._meeting.agree(record)
            copies.all_gather(self._team, source.bytes, [n * source.itemsize for n in row], target.bytes)
            target.put_back()
            return target.x

        return self._make(f"all_gather of {sum(row)} {source.dtype}{_digest(row)}", make, target.x, **how)

    def broadcast(
        self, x: Any, *, root: int = 0, out: Any = None, algorithm: Any = None, path: Any = None, **how: Any
    ) -> Any:
        """Gives every rank the array of the root: see `nvcoll.Communicator.broadcast`."""
        self._refuse(algorithm, path)
        is_root = self._checked(root) == self.rank
        target = Operand(x if out is None else out, "x" if out is None else "out", is_written=True)
        source = Operand(x, "x") if is_root and out is not None else target
        self._check_sum("out", target, source.count)

        def make(record: Bytes) -> Any:
            self._meeting.agree(record)
            if source is not target:
                target.bytes[:] = source.bytes
            copies.broadcast(self._team, target.bytes, root)
            target.put_back()
            return target.x

        return self._make(f"broadcast of {target.count} {target.dtype}, root {root}", make, target.x, **how)

    def gather(
        self,
        x: Any,
        *,
        root: int = 0,
        counts: Any = None,
        out: Any = None,
        algorithm: Any = None,
        path: Any = None,
        **how: Any,
    ) -> Any:
        """Gives the root the arrays of all ranks, one after the other: see `nvcoll.Communicator.gather`."""
        self._refuse(algorithm, path)
        source = Operand(x, "x")
        row = [source.count] * self.world_size if counts is None else row_of(counts, self.world_size, "counts")
        self._check_sum("x", source, row[self.rank])
        is_root = self._checked(root) == self.rank
        target = self._output(out, source, sum(row), row, row[:root]) if is_root else None
        table = np.zeros((self.world_size,) * 2, np.int64)
        table[:, root] = np.array(row) * source.itemsize
        name = f"gather of {sum(row)} {source.dtype}, root {root}{_digest(row)}"
        return self._exchange(name, source.bytes, table, target, **how)

    def scatter(
        self,
        x: Any,
        *,
        root: int = 0,
        counts: Any = None,
        out: Any = None,
        algorithm: Any = None,
        path: Any = None,
        **how: Any,
    ) -> Any:
        """Gives rank r part r of the root's array: see `nvcoll.Communicator.scatter`."""
        self._refuse(algorithm, path)
        is_root = self._checked(root) == self.rank
        if x is None and (is_root or out is None):
            raise InvalidArgument("`x` is None: the root passes its array, and other ranks one like it or `out`")
        like = Operand(out, "out", is_written=True) if x is None else Operand(x, "x")
        n = like.count * self.world_size if x is None else like.count
        row = even(n, self.world_size) if counts is None else row_of(counts, self.world_size, "counts")
        if x is None:
            target = like
            self._check_sum("out", like, row[self.rank])
        else:
            self._check_sum("x", like, sum(row))
            target = self._output(out, like, row[self.rank], row, row[:root] if is_root else None)
        table = np.zeros((self.world_size,) * 2, np.int64)
        table[root] = np.array(row) * like.itemsize
        source = like.bytes if is_root else like.bytes[:0]
        name = f"scatter of {sum(row)} {like.dtype}, root {root}{_digest(row)}"
        return self._exchange(name, source, table, target, **how)

    def all_to_all(
        self,
        x: Any,
        *,
        counts: Any = None,
        recv_counts: Any = None,
        out: Any = None,
        algorithm: Any = None,
        path: Any = None,
        **how: Any,
    ) -> Any:
        """Gives rank r part r of the array of every rank: see `nvcoll.Communicator.all_to_all`."""
        self._refuse(algorithm, path)
        source, size = Operand(x, "x"), self.world_size
        is_row = counts is not None and not (len(counts) and np.ndim(counts[0]))
        if recv_counts is not None and not is_row:
            raise InvalidArgument("`recv_counts` is given without a row of `counts`: pass what this rank sends")
        if is_row:
            return self._rows_first(source, row_of(counts, size, "counts"), recv_counts, out, how)
        rows = [even(source.count, size)] * size if counts is None else [row_of(r, size, "counts") for r in counts]
        if len(rows) != size:
            raise InvalidArgument(f"`counts` has {len(rows)} rows: pass {size}, one per rank")
        table = np.array(rows, np.int64)
        self._check_sum("x", source, int(table[self.rank].sum()))
        column = table[:, self.rank].tolist()
        target = self._output(out, source, sum(column), column)
        name = f"all_to_all of {source.dtype}{_digest(table.tolist())}"
        return self._exchange(name, source.bytes, table * source.itemsize, target, **how)

    def _rows_first(self, source: Operand, row: list[int], expected: Any, out: Any, how: dict[str, Any]) -> Any:
        """Makes an all_to_all whose ranks tell each other their rows first."""
        size = self.world_size
        wanted = None if expected is None else row_of(expected, size, "recv_counts")
        self._check_sum("x", source, sum(row))
        given = None if out is None else Operand(out, "out", is_written=True)

        def make(record: Bytes) -> Any:
            self._meeting.agree(record)
            table = np.empty((size, size), np.int64)
            own = np.array(row, np.int64)
            copies.all_gather(self._team, own.view(np.uint8), [own.nbytes] * size, table.reshape(-1).view(np.uint8))
            column = table[:, self.rank].tolist()
            if wanted is not None and wanted != column:
                q = next(q for q in range(size) if wanted[q] != column[q])
                raise Mismatch(
                    f"rank {q} sends {column[q]} elements to rank {self.rank}, which expects {wanted[q]}: "
                    "pass `counts` and `recv_counts` that agree"
                )
            target = given or source.like(sum(column), column)
            self._check_sum("out", target, sum(column))
            copies.exchange(self._team, source.bytes, table * source.itemsize, target.bytes)
            target.put_back()
            return target.x

        return self._make(f"all_to_all of {source.dtype}, by rows", make, out, **how)

    def _exchange(self, name: str, x: Bytes, table: copies.Table, target: Operand | None, **how: Any) -> Any:
        def make(record: Bytes) -> Any:
            self._meeting.agree(record)
            copies.exchange(self._team, x, table, np.empty(0, np.uint8) if target is None else target.bytes)
            if target is None:
                return None
            target.put_back()
            return target.x

        return self._make(name, make, None if target is None else target.x, **how)

    def barrier(self, **how: Any) -> Any:
        """Waits until every rank has called it: see `nvcoll.Communicator.barrier`."""

        def make(record: Bytes) -> None:
            self._meeting.agree(record)

        return self._make("barrier", make, None, **how)

    # Messages

    def send(self, x: Any, dst: int, *, tag: int | None = None, timeout: float | None = None) -> None:
        """Sends an array to a rank, which calls `recv`: see `nvcoll.Communicator.send`."""
        dst = self._checked(dst, "dst")
        if self._opened:
            patience = self._patience(timeout)
            self._opened[0].add(lambda: self._messages.isend(x, dst, tag, patience))
        else:
            self._messages.isend(x, dst, tag, timeout).wait()

    def recv(self, x: Any, src: int | None = None, *, tag: int | None = None, timeout: float | None = None) -> Message:
        """Receives an array that a rank sends: see `nvcoll.Communicator.recv`."""
        message, src = Message(), None if src is None else self._checked(src, "src")
        if self._opened:
            patience = self._patience(timeout)
            self._opened[0].add(lambda: self._messages.irecv(x, src, tag, patience, message))
        else:
            self._messages.irecv(x, src, tag, timeout, message).wait()
        return message

    def isend(self, x: Any, dst: int, *, tag: int | None = None, timeout: float | None = None) -> Any:
        """Begins to send an array to a rank: see `nvcoll.Communicator.isend`."""
        return self._messages.isend(x, self._checked(dst, "dst"), tag, timeout)

    def irecv(self, x: Any, src: int | None = None, *, tag: int | None = None, timeout: float | None = None) -> Any:
        """Begins to receive an array that a rank sends: see `nvcoll.Communicator.irecv`."""
        return self._messages.irecv(x, None if src is None else self._checked(src, "src"), tag, timeout)

    def sendrecv(
        self,
        x: Any,
        dst: int,
        out: Any,
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
        received = self.irecv(out, src, tag=recv_tag, timeout=timeout)
        self.isend(x, dst, tag=tag, timeout=timeout).wait()
        message: Message = received.wait()
        return message

    # Communicators

    def subset(self, ranks: Sequence[int], tag: int | None = None, *, timeout: float | None = None) -> Any:
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
        inner = self._inner.subset(local, tag, timeout=patience)
        if len(places.hosts) == 1:
            return inner
        with self._world.watch.guard(places, patience) as deadline:
            number = self._world.numbers.agree(places, tag or 0, deadline)
        channel = Channel(self._team.channel.outer, number, places)
        return Communicator(self._world, places, inner, channel, self._timeout)

    def split(self, color: int | None, key: int | None = None, *, timeout: float | None = None) -> Any:
        """Splits the ranks into groups, each with its own communicator: see `nvcoll.Communicator.split`."""
        for name, number, least in (("color", color, 0), ("key", key, -(2**31))):
            if number is not None and not (isinstance(number, (int, np.integer)) and least <= number < 2**31):
                raise InvalidArgument(f"`{name}` is {number!r}: pass a whole number, {least} to {2**31 - 1}, or None")
        if self._opened:
            raise InvalidArgument("split in a group: its ranks talk to each other, and a group begins at its end")
        own = np.array([-1 if color is None else color, key or 0], np.int64)
        rows = self.all_gather(own, timeout=timeout).reshape(-1, 2).tolist()
        if color is None:
            return None
        among = sorted((rank for rank, row in enumerate(rows) if row[0] == color), key=lambda rank: rows[rank][1])
        return self.subset(among, timeout=timeout)

    def shrink(self, *, timeout: float | None = None) -> Any:
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
        self._world.watch.tell(Failure("Aborted", text, self._world.places.rank, self._world.places.host))

    # Memory

    def empty(self, shape: Any, dtype: Any = None) -> NDArray[Any]:
        """Makes an uninitialized array that every rank of this host can reach: see `nvcoll.Communicator.empty`."""
        return self._inner.empty(shape, dtype)

    def zeros(self, shape: Any, dtype: Any = None) -> NDArray[Any]:
        """Makes an array of zeros that every rank of this host can reach."""
        return self._inner.zeros(shape, dtype)

    def full(self, shape: Any, fill_value: Any, dtype: Any = None) -> NDArray[Any]:
        """Makes an array of one value that every rank of this host can reach."""
        return self._inner.full(shape, fill_value, dtype)

    def array(self, x: Any, dtype: Any = None) -> NDArray[Any]:
        """Copies an array into one that every rank of this host can reach."""
        return self._inner.array(x, dtype)

    # How a call is made

    def _make(
        self,
        name: str,
        make: Made,
        result: Any,
        *,
        payload: Bytes | None = None,
        timeout: float | None = None,
        async_op: bool = False,
    ) -> Any:
        """Makes a call in its turn, or collects it for the open group.

        Args:
            name: the call, as records compare it.
            make: what it does.
            result: what it returns in a group.
            payload: what goes with the record inside the host, if it is small.
            timeout: seconds that it may take, from its turn.
            async_op: whether to return a work at once.
        """
        patience = self._patience(timeout)
        early = payload if payload is not None and len(payload) <= WITH_RECORD_IN_HOST else None

        def call() -> Any:
            self._count += 1
            self._recent.append((self._count, name))
            with self._world.watch.guard(self._places, patience):
                self._team.begin(patience)
                return make(self._meeting.in_host(name, early))

        if self._opened:
            self._opened[0].add(call)
            return result
        return self._lane.issue(call, name) if async_op else self._lane.run(call, name)

    def _patience(self, timeout: float | None) -> float | None:
        """Returns the seconds that a call may take: its own, else those of the open group, else the communicator's."""
        if timeout is not None and not (isinstance(timeout, (int, float)) and timeout >= 0):
            raise InvalidArgument(f"`timeout` is {timeout!r}: pass seconds, 0 or more, or None to wait without a limit")
        of_group = self._opened[0].timeout if self._opened else None
        return next((one for one in (timeout, of_group) if one is not None), self._timeout)

    def _reduction(
        self, name: str, x: Operand, op: Any, algorithm: Any, path: Any
    ) -> tuple[Callable[[], Reduction], str, bool]:
        """Returns what makes the reduction of a call, the name of the call, and whether sums of hosts may be added."""
        self._refuse(algorithm, path, "two_level")
        op_name, scalars = ("sum", []) if op is None else _op(op)
        if x.dtype not in OPS[op_name]:
            raise InvalidArgument(
                f"{op_name} is not defined on {x.dtype}: pass one of {', '.join(sorted(OPS[op_name]))}"
            )
        is_nested = algorithm == "two_level" or (algorithm is None and self._world.is_nested)
        call = f"{name} of {x.count} {x.dtype}, {op_name}{', two_level' if is_nested else ''}"

        def reduce() -> Reduction:
            if not scalars:
                return Reduction(op_name, x, self.world_size)
            own, all_of_them = np.array(scalars[:1]), np.empty(self.world_size)
            copies.all_gather(self._team, own.view(np.uint8), [8] * self.world_size, all_of_them.view(np.uint8))
            return Reduction(op_name, x, self.world_size, all_of_them.tolist())

        return reduce, call, is_nested

    def _in_and_out(self, x: Any, out: Any) -> tuple[Any, Operand, Operand]:
        """Returns the result, the input and the output of a call that is in place without ``out``."""
        if out is None:
            operand = Operand(x, "x", is_written=True)
            return x, operand, operand
        source, target = Operand(x, "x"), Operand(out, "out", is_written=True)
        self._check_like(source, target, 0)
        self._check_sum("out", target, source.count)
        return out, source, target

    def _output(
        self, out: Any, like: Operand, count: int, parts: Sequence[int], before: Sequence[int] | None = None
    ) -> Operand:
        """Returns the output of a call, a new array by default.

        Args:
            out: what the program passed.
            like: the input.
            count: the elements of the output.
            parts: the elements of each of its parts.
            before: the parts of the longer of both before this rank's, which may be the shorter of both; None: the call
                is never in place.
        """
        if out is None:
            return like.like(count, parts)
        target = Operand(out, "out", is_written=True)
        self._check_like(like, target, None if before is None else sum(before) * like.itemsize)
        self._check_sum("out", target, count)
        return target

    @staticmethod
    def _check_like(x: Operand, out: Operand, before: int | None) -> None:
        """Refuses an output of another dtype, or that shares bytes with the input elsewhere than `before` bytes in."""
        if x.dtype != out.dtype:
            raise InvalidArgument(f"`out` is {out.dtype}, and `x` {x.dtype}: pass arrays of one dtype")
        shorter, longer = sorted((x.bytes, out.bytes), key=len)
        apart = shorter.ctypes.data - longer.ctypes.data
        if before != apart and -len(shorter) < apart < len(longer) and len(shorter):
            raise InvalidArgument("`x` and `out` overlap, and one is written: pass arrays that share no byte")

    @staticmethod
    def _check_sum(name: str, x: Operand, count: int) -> None:
        if x.count != count:
            raise InvalidArgument(f"`{name}` has {x.count} elements, and the call {count}: pass an array of {count}")

    def _checked(self, rank: Any, name: str = "root") -> int:
        if isinstance(rank, bool) or not isinstance(rank, (int, np.integer)) or not 0 <= rank < self.world_size:
            raise InvalidArgument(f"`{name}` is {rank!r}: pass a rank, 0 to {self.world_size - 1}")
        return int(rank)

    @staticmethod
    def _refuse(algorithm: Any, path: Any, *others: str) -> None:
        if algorithm not in (None, "auto", *others):
            known = " or ".join(("auto", *others))
            raise InvalidArgument(f"`algorithm` is {algorithm!r}: ranks are on several hosts, pass {known}")
        if path is not None:
            raise InvalidArgument(f"`path` is {path!r}: ranks are on several hosts, leave it out")

    def _refuse_in_flight(self, arrays: Sequence[Any], is_written: bool) -> None:
        """Refuses nothing: calls of a communicator of several hosts run in their order."""


def _digest(counts: Any) -> str:
    """Returns what tells apart calls with different counts."""
    return f" #{zlib.crc32(repr(counts).encode()):08x}" if len(set(map(str, counts))) > 1 else ""


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
