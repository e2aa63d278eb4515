"""The communicator of one rank with ranks on several hosts: the calls of `nvcoll.Communicator`, as on one host.

Arguments, groups, works, messages and arrays are as on one host. A collective gets a name that records compare, and
runs in its turn among the calls of the communicator. What is not there yet refuses with its reason: algorithms but
``auto`` and ``two_level``, paths, `shrink`, receives from any rank.
"""

from __future__ import annotations

import time
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial, wraps
from itertools import filterfalse
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import numpy as np
from numpy.typing import NDArray

from nvcoll import _nvcoll
from nvcoll._nvcoll import Busy, Error, InvalidArgument, Message, Mismatch, Work
from nvcoll.hosts import copies, reductions
from nvcoll.hosts.arrays import Arguments, Given
from nvcoll.hosts.carrier import Bytes, Carrier, Late, Lost, Stopped
from nvcoll.hosts.failures import Failure, Failures
from nvcoll.hosts.issued_calls import IssuedCalls
from nvcoll.hosts.messages import Incoming, Outgoing
from nvcoll.hosts.peers import Peers
from nvcoll.hosts.placement import Placement
from nvcoll.hosts.records import WITH_RECORD_IN_HOST, Records
from nvcoll.hosts.reductions import Reduction
from nvcoll.hosts.subsets import Numbers

if TYPE_CHECKING:
    from nvcoll.hosts.arrays import Counts

LEAVING_S = 5.0
"""How long a rank that leaves waits for its calls in flight. Chosen."""

RECENT = 15
"""How many calls a communicator remembers, as on one host."""

COLLECTIVES = {row.name: row for row in _nvcoll.collectives()}

NESTED = ("all_reduce", "reduce", "reduce_scatter")
"""Collectives that ``two_level`` knows."""

Number = TypeVar("Number", bound=np.generic)

Move = Callable[[Bytes], object]
"""What a call does with its record, which the ranks of the host have compared."""

Begin = Callable[[float | None], Callable[[], object] | None]
"""Makes a call of a group with its timeout; or begins a message, and returns what waits for it."""


@dataclass
class World:
    """What the communicators of a job share.

    Attributes:
        failures: of the job.
        numbers: the numbers of communicators.
        placement: the ranks of the job.
        is_nested: whether sums of hosts are added by default.
        outgoing: the sends of its communicators, also of those that the program has dropped.
    """

    failures: Failures
    numbers: Numbers
    placement: Placement
    is_nested: bool = False
    outgoing: list[Outgoing] = field(default_factory=list)


class Communicator(_nvcoll.Communicator):
    """The calls of one rank, with ranks on several hosts.

    Args:
        world: what the communicators of the job share.
        placement: the ranks.
        inner: the communicator of those on this host.
        peers: what collectives use.
        timeout: seconds that each call may take; default for calls that do not say.
    """

    def __new__(cls, _world: World, peers: Peers, _timeout: float | None) -> Communicator:
        """Makes the base, which has groups and arrays."""
        return super().__new__(cls, peers.inner)

    def __init__(self, world: World, peers: Peers, timeout: float | None) -> None:
        self._world, self._peers, self._timeout = world, peers, timeout
        self._placement, self._inner = placement, inner = peers.placement, peers.inner
        inner._name_ranks([*placement.mine, *filterfalse(placement.mine.__contains__, range(placement.size))])
        world.failures.watch(self, inner)
        with world.failures.guard(placement, timeout):  # other ranks may be in a call, and fail, already
            self._records = Records(peers)
        self._calls = IssuedCalls(f"calls of ranks {placement.world}")
        self._incoming: dict[int, Incoming] = {}
        self._outgoing: dict[int, Outgoing] = {}
        self._recent: deque[tuple[int, str]] = deque(maxlen=RECENT)
        self._count = 0

    # Who

    @property
    def rank(self) -> int:
        """This rank, from 0."""
        return self._placement.rank

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return self._placement.size

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of the job that form this communicator, in the order of ranks here."""
        return self._placement.world

    @property
    def hosts(self) -> tuple[tuple[int, ...], ...]:
        """The ranks of each host; hosts by their lowest rank."""
        return self._placement.hosts

    def __repr__(self) -> str:
        return f"<nvcoll.Communicator rank {self.rank} of {self.world_size}, on {len(self.hosts)} hosts>"

    def recent_calls(self) -> list[tuple[int, str]]:
        """Returns the last calls of this rank, newest first, at most 15, each a number and a description."""
        return list(reversed(self._recent))

    # Collectives

    def _collective(
        self,
        name: str,
        x: object,
        *,
        algorithm: object = None,
        path: object = None,
        timeout: float | None = None,
        async_op: bool = False,
        recv_counts: Sequence[int] | None = None,
        **given: Unpack[Given],
    ) -> object:
        """Makes a collective: its arguments are those on one host."""
        is_nested = self._is_nested(name, algorithm, path)
        counts = given.get("counts")
        if name == "all_to_all" and counts is not None and not (len(counts) and np.ndim(counts[0])):
            return self._rows_first(x, counts, recv_counts, given.get("out"), timeout, async_op)
        if recv_counts is not None:
            raise InvalidArgument("`recv_counts` is given without a row of `counts`: pass what this rank sends")
        arguments = Arguments(self._placement, name, x, **given)
        passed, row = arguments.passed, COLLECTIVES[name]
        said = [f"{name} of {sum(passed.counts)} {arguments.x.dtype}"]
        said += [passed.op] * (row.folds != "nothing") + ["two_level"] * is_nested
        said += [f"root {passed.root}"] * row.has_root
        move = partial(self._moved, arguments, is_nested)
        payload = arguments.x.bytes if name in ("all_reduce", "reduce") else None
        return self._make(", ".join(said) + _digest(passed.counts), move, passed.result, timeout, async_op, payload)

    def _moved(self, given: Arguments, is_nested: bool, record: Bytes) -> object:
        """Moves the data of a collective, and returns its result."""
        peers, x, out, counts = self._peers, given.x, given.out, given.passed.counts
        target = out if out.count else x.like(x.count)  # of a rank that gets no result
        if given.collective not in ("all_reduce", "reduce"):
            self._records.agree(record)
        if given.collective in ("all_reduce", "reduce"):
            op = self._reduction(given, record)
            reductions.all_reduce(peers, self._records, record, x, target, op, is_nested=is_nested)
        elif given.collective == "reduce_scatter":
            reductions.reduce_scatter(peers, x, counts, out, self._reduction(given, record), is_nested=is_nested)
        elif given.collective in ("scan", "exscan"):
            reductions.scan(peers, x, target, self._reduction(given, record), is_exclusive=given.collective == "exscan")
        elif given.collective == "all_gather":
            copies.all_gather(peers, x.bytes, [count * x.itemsize for count in counts], out.bytes)
        elif given.collective == "broadcast":
            if self.rank == given.passed.root and out.bytes.ctypes.data != x.bytes.ctypes.data:
                out.bytes[:] = x.bytes
            copies.broadcast(peers, out.bytes, given.passed.root)
        else:
            table, root = np.zeros((self.world_size, self.world_size), np.int64), given.passed.root
            moved = {"gather": table[:, root], "scatter": table[root], "all_to_all": table}[given.collective]
            moved[...] = np.array(counts).reshape(moved.shape)
            copies.exchange(peers, x.bytes, table * x.itemsize, out.bytes)
        return given.finish()

    def _rows_first(
        self, x: object, counts: Counts, expected: object, out: object, timeout: float | None, is_async: bool
    ) -> object:
        """Makes an all_to_all whose ranks tell each other their rows first."""
        size = self.world_size
        sent = Arguments(self._placement, "scatter", x, root=self.rank, counts=counts)
        wanted = None if expected is None else np.asarray(expected).tolist()
        if wanted is not None and not (len(wanted) == size and all(isinstance(count, int) for count in wanted)):
            raise InvalidArgument(f"`recv_counts` is {expected!r}: pass {size} whole numbers, one for each rank")

        def move(record: Bytes) -> object:
            self._records.agree(record)
            table = self._gathered(np.array(sent.passed.counts, np.int64))
            column = table[:, self.rank].tolist()
            if wanted not in (None, column):
                q = next(q for q in range(size) if wanted[q] != column[q])
                raise Mismatch(
                    f"rank {q} sends {column[q]} elements to rank {self.rank}, which expects {wanted[q]}: "
                    "pass `counts` and `recv_counts` that agree",
                    ranks=(q, self.rank),
                )
            given = Arguments(self._placement, "all_to_all", x, counts=table.tolist(), out=out)
            copies.exchange(self._peers, given.x.bytes, table * given.x.itemsize, given.out.bytes)
            return given.finish()

        return self._make(f"all_to_all of {sent.x.dtype}, by rows", move, out, timeout, is_async)

    def _barrier(self, *, timeout: float | None = None, async_op: bool = False) -> object:
        self._refuse_in_group("barrier")
        return self._make("barrier", self._records.agree, None, timeout, async_op)

    def _make(
        self,
        name: str,
        move: Move,
        result: object,
        timeout: float | None,
        is_async: bool,
        payload: Bytes | None = None,
    ) -> object:
        """Makes a call in its turn, or adds it to the open group.

        Args:
            name: the call, as records compare it.
            move: what it does.
            result: what it returns in a group.
            timeout: the seconds that it may take, from its turn.
            is_async: whether to return a work at once.
            payload: what goes with the record inside the host, if it is small.
        """
        early = payload if payload is not None and len(payload) <= WITH_RECORD_IN_HOST else None

        def call(timeout: float | None) -> object:
            patience = self._patience(timeout)
            self._count += 1
            self._recent.append((self._count, name))
            with self._world.failures.guard(self._placement, patience, has_begun=True):
                self._peers.begin(patience)
                return move(self._records.in_host(name, early))

        def in_group(timeout: float | None) -> None:
            call(timeout)

        if self._add_to_group(in_group, timeout, is_async):
            return result
        work = partial(self._inner._work, name)
        if is_async:
            return self._calls.issue(partial(call, timeout), work())
        return self._calls.run(partial(call, timeout), work)

    def _make_group(self, calls: Sequence[Begin], timeout: float | None, is_async: bool) -> Work | None:
        """Makes the calls of a group, one after the other: `nvcoll.Group` calls it."""

        def make() -> None:
            for end in [call(timeout) for call in calls]:
                if end is not None:
                    end()

        work = partial(self._inner._work, f"a group of {len(calls)} calls")
        if is_async:
            return self._calls.issue(make, work())
        self._calls.run(make, work)
        return None

    def _patience(self, timeout: float | None) -> float | None:
        return self._timeout if timeout is None else timeout

    def _reduction(self, given: Arguments, record: Bytes) -> Reduction:
        """Returns the op of a call, with the scalars of all ranks if they have some."""
        passed, size = given.passed, self.world_size
        if passed.op != "premul_sum":
            return Reduction(passed.op, given.x, size)
        self._records.agree(record)
        return Reduction(passed.op, given.x, size, self._gathered(np.array([passed.scalar])).reshape(-1).tolist())

    def _gathered(self, own: NDArray[Number]) -> NDArray[Number]:
        """Returns what each rank passes, as rows, inside a call."""
        rows = np.empty((self.world_size, len(own)), own.dtype)
        sizes = [own.nbytes] * self.world_size
        copies.all_gather(self._peers, own.view(np.uint8), sizes, rows.reshape(-1).view(np.uint8))
        return rows

    def _is_nested(self, name: str, algorithm: object, path: object) -> bool:
        """Checks ``algorithm`` and ``path``; says whether sums of hosts may be added."""
        other = "two_level" if name in NESTED else None
        if algorithm not in (None, "auto", other):
            known = "auto" if other is None else f"auto or {other}"
            raise InvalidArgument(f"`algorithm` is {algorithm!r}: ranks are on several hosts, pass {known}")
        if path is not None:
            raise InvalidArgument(f"`path` is {path!r}: ranks are on several hosts, leave it out")
        return other is not None and (self._world.is_nested if algorithm is None else algorithm == other)

    # Messages

    def _send(self, x: object, dst: int, *, tag: int | None = None, timeout: float | None = None) -> None:
        self._wait_for([partial(self._isend, x, self._checked(dst, "dst"), tag=tag)], timeout)

    def _isend(self, x: object, dst: int, *, tag: int | None = None, timeout: float | None = None) -> Work:
        patience, mine = self._patience(timeout), self._placement.mine
        if (dst := self._checked(dst, "dst")) in mine:
            begin = partial(self._inner.isend, x, dst, tag=tag, timeout=patience)
            return self._begun(begin, patience, "took no message")
        if dst not in self._outgoing:
            self._world.outgoing.append(made := Outgoing(self._peers, self._world.failures, dst))
            self._outgoing[dst] = made
        given = Arguments(self._placement, "broadcast", x, root=self.rank)
        return self._outgoing[dst].send(given, tag, patience, self._inner._work)

    def _recv(
        self, x: object, src: int | None = None, *, tag: int | None = None, timeout: float | None = None
    ) -> Message:
        return self._wait_for([partial(self._irecv, x, self._checked(src, "src"), tag=tag)], timeout)

    def _irecv(
        self, x: object, src: int | None = None, *, tag: int | None = None, timeout: float | None = None
    ) -> Work:
        patience, src = self._patience(timeout), self._checked(src, "src")
        missing = "no message" if tag is None else f"no message with tag {tag}"
        work = self._begun(partial(self._inner.irecv, x, src, tag=tag, timeout=patience), patience, missing)
        if src not in self._placement.mine:
            if src not in self._incoming:
                self._incoming[src] = Incoming(self._peers, self._world.failures, src)
            self._incoming[src].look()
        return work

    def _sendrecv(
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
        received = partial(self._irecv, out, self._checked(src, "src"), tag=recv_tag)
        sent = partial(self._isend, x, self._checked(dst, "dst"), tag=tag)
        return self._wait_for([received, sent], timeout)

    def _wait_for(self, messages: Sequence[Callable[..., Work]], timeout: float | None) -> Message:
        """Begins messages and waits for them, or adds them to the open group; returns what is received."""
        message = self._message()

        def begin(timeout: float | None) -> Callable[[], object]:
            works = [one(timeout=timeout) for one in messages]

            def end() -> None:
                for work in works:
                    if (found := work.wait()) is not None:
                        message._take(found)

            return end

        if not self._add_to_group(begin, timeout, False):
            with self._world.failures.wait():
                begin(timeout)()
        return message

    def _begun(self, begin: Callable[[], Work], patience: float | None, missing: str) -> Work:
        """Begins a message of this host, or a receive; its failure is one of the job."""
        failures, placement = self._world.failures, self._placement
        with failures.guard(placement, patience, missing=missing):
            work = begin()
        work._explain(lambda error: failures.meaning(error, placement, patience, missing))
        return work

    def _checked(self, rank: object, name: str) -> int:
        if rank is None:
            raise InvalidArgument(f"`{name}` is None: with ranks on several hosts, pass the rank that sends")
        if isinstance(rank, bool) or not isinstance(rank, (int, np.integer)) or not 0 <= rank < self.world_size:
            raise InvalidArgument(f"`{name}` is {rank!r}: pass a rank, 0 to {self.world_size - 1}")
        return int(rank)

    # Communicators

    def _subset(
        self, ranks: Sequence[int], tag: int | None = None, *, timeout: float | None = None
    ) -> _nvcoll.Communicator:
        """If they are all on this host, it is a communicator of this host."""
        ranks = [self._checked(rank, "ranks") for rank in ranks]
        if len(set(ranks)) != len(ranks) or self.rank not in ranks:
            raise InvalidArgument(f"`ranks` is {ranks}: pass each rank once, and this one, {self.rank}, among them")
        placement, failures = self._placement.subset(ranks), self._world.failures
        mine, patience = self._placement.mine, self._patience(timeout)
        local = [mine.index(ranks[one]) for one in placement.mine]
        with failures.guard(self._placement, patience):
            inner = self._inner.subset(local, tag, timeout=patience)
        if len(placement.hosts) == 1:
            return inner
        with failures.guard(placement, patience) as deadline:
            number = self._world.numbers.agree(placement, tag or 0, deadline)
        return Communicator(self._world, Peers(placement, inner, self._peers.carrier, number), self._timeout)

    def _split(
        self, color: int | None, key: int | None = None, *, timeout: float | None = None
    ) -> _nvcoll.Communicator | None:
        for name, number, least in (("color", color, 0), ("key", key, -(2**31))):
            if number is not None and not (isinstance(number, (int, np.integer)) and least <= number < 2**31):
                raise InvalidArgument(f"`{name}` is {number!r}: pass a whole number, {least} to {2**31 - 1}, or None")
        self._refuse_in_group("split")
        own = np.array([-1 if color is None else color, key or 0], np.int64)
        rows = np.empty((self.world_size, 2), np.int64)
        self.all_gather(own, out=rows.reshape(-1), timeout=timeout)
        if color is None:
            return None
        among = sorted(np.flatnonzero(rows[:, 0] == color).tolist(), key=lambda rank: int(rows[rank, 1]))
        return self._subset(among, timeout=timeout)

    def _shrink(self, *, timeout: float | None = None) -> _nvcoll.Communicator:
        raise InvalidArgument(
            "shrink: the ranks are on several hosts, and only ranks of one host can go on without one"
        )

    def abort(self) -> None:
        """Ends the calls of all communicators of the job, on every rank."""
        self._world.failures.abort(self._placement)

    def add_sums_of_hosts(self) -> None:
        """Makes ``two_level`` the default of all communicators of this job, on this rank: all ranks call it."""
        self._world.is_nested = True

    def leave(self) -> None:
        """Leaves the job in order, after the calls in flight.

        Raises:
            Busy: another thread is in a call.
        """
        if not self._calls.drain(LEAVING_S):
            raise Busy("a call is in flight: wait for it before this rank leaves")
        with suppress(Late, Lost, Stopped, Error):
            end = time.monotonic() + LEAVING_S
            for outgoing in self._world.outgoing:
                outgoing.drain(end)
        self._world.failures.end()

    def fail(self, text: str) -> None:
        """Leaves the job as a rank that has failed: the calls of all ranks end with `Aborted`."""
        own = self._world.placement
        self._world.failures.tell(Failure("Aborted", text, (own.rank,), host=own.host))


def _as_on_one_host(name: str, method: Callable[..., object]) -> None:
    """Gives the class a method with the name, the signature and the docs of one host."""
    setattr(Communicator, name, wraps(getattr(_nvcoll.Communicator, name))(method))


def _collective(name: str) -> Callable[..., object]:
    def call(self: Communicator, x: object, *op: object, **how: Any) -> object:
        if op:
            (how["op"],) = op
        return self._collective(name, x, **how)

    return call


for _name in COLLECTIVES.keys() - {"barrier"}:
    _as_on_one_host(_name, _collective(_name))
for _name in ("barrier", "send", "isend", "recv", "irecv", "sendrecv", "subset", "split", "shrink"):
    _as_on_one_host(_name, getattr(Communicator, f"_{_name}"))


def _digest(counts: Sequence[int]) -> str:
    """Returns what tells apart calls with different counts."""
    return f" #{zlib.crc32(repr(counts).encode()):08x}" if len(set(counts)) > 1 else ""


def across(placement: Placement, inner: _nvcoll.Communicator, carrier: Carrier, timeout: float | None) -> Communicator:
    """Makes the communicator of all ranks of a job.

    Args:
        placement: the ranks.
        inner: the communicator of those on this host.
        carrier: the connected engine between hosts.
        timeout: seconds that each call may take; default for calls that do not say. None: no limit.
    """
    world = World(Failures(carrier, inner, placement), Numbers(carrier), placement)
    return Communicator(world, Peers(placement, inner, carrier, 1), timeout)
