"""Messages between two ranks, which may be on different hosts. On one host they are messages of that host.

Between hosts a record of 64 bytes goes first: number, tag, length, dtype. It carries the elements if they are few; then
`send` does not wait for the receiver. Else the elements follow on a tag of their own, which the receiver asks for once
it has found the receive that takes the message, so that no engine sees a wrong length. A thread per source reads the
records while receives wait. Whoever waits for a send waits for its engine.
"""

from __future__ import annotations

import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nvcoll._nvcoll import Communicator as HostCommunicator
from nvcoll._nvcoll import InvalidArgument, Mismatch
from nvcoll._nvcoll import Work as HostWork
from nvcoll.hosts.arrays import ROWS, Operand
from nvcoll.hosts.channel import FIRST_OF_MESSAGES, KINDS, MESSAGE, Channel
from nvcoll.hosts.lane import Work
from nvcoll.hosts.outer import Bytes, Request
from nvcoll.hosts.places import Places
from nvcoll.hosts.watch import Watch

RECORD = struct.Struct("<qqq16s24x")
"""Number of the message, tag, bytes, dtype."""

WITH_RECORD = 16 << 10
"""The most bytes that travel with a record: as many as a send inside a host gives away without a receiver."""

UNWAITED = 64
"""How many small messages to one rank may be on their way before a send waits. Chosen."""


@dataclass
class Message:
    """A received message. In a group or after `irecv`, its attributes are None until the receive has ended.

    Attributes:
        source: the rank that sent it.
        tag: its tag.
        count: its elements.
    """

    source: int | None = None
    tag: int | None = None
    count: int | None = None


class _Sent(Work):
    """A send under way: who waits for it first waits for the engine; who only asks starts a thread that does."""

    def __init__(self, call: Callable[[], None], name: str) -> None:
        super().__init__(call, name)
        self._claim = threading.Lock()

    def _make(self) -> None:
        if self._claim.acquire(blocking=False):
            self.run()

    def _make_beside(self) -> None:
        if not self._claim.locked():
            threading.Thread(target=self._make, name="nvcoll send", daemon=True).start()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if timeout is None:
            self._make()
        else:
            self._make_beside()
        return super().exception(timeout)

    def done(self) -> bool:
        self._make_beside()
        return super().done()

    def _when_done(self, ring: Callable[[], object]) -> None:
        super()._when_done(ring)
        self._make_beside()


class _Near:
    """A receive inside this host, whose message names ranks of the communicator."""

    def __init__(self, work: HostWork, message: Message, ranks: Sequence[int]) -> None:
        self._work, self._message, self._ranks = work, message, ranks
        self.done, self.exception = work.done, work.exception
        self._keep, self._when_done = work._keep, work._when_done

    def wait(self, timeout: float | None = None) -> Message:
        return self._told(self._work.wait(timeout))

    def __await__(self) -> Generator[Any, None, Message]:
        return self._told((yield from self._work.__await__()))

    def _told(self, found: Any) -> Message:
        told = self._message
        told.source, told.tag, told.count = self._ranks[found.source], found.tag, found.count
        return told


@dataclass
class _Receive:
    """A receive that waits for its message."""

    x: Operand
    tag: int | None
    deadline: float | None
    patience: float | None
    message: Message
    work: Work


@dataclass
class _Early:
    """A message whose record has come."""

    number: int
    tag: int
    nbytes: int
    dtype: str
    inline: Bytes


class _Source:
    """The messages of one rank of another host, taken by receives in the order of sends."""

    def __init__(self, messages: Messages, rank: int) -> None:
        self._messages, self._rank = messages, rank
        self._changed = threading.Condition()
        self._receives: list[_Receive] = []
        self._early: list[_Early] = []
        self._slot = np.empty(RECORD.size + WITH_RECORD, np.uint8)
        self._posted: Request = None
        threading.Thread(target=self._serve, name=f"nvcoll receives from {rank}", daemon=True).start()

    def post(self, receive: _Receive) -> None:
        """Adds a receive."""
        with self._changed:
            self._receives.append(receive)
            self._changed.notify()

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._receives)
                receive = self._receives[0]
            try:
                with self._messages.watch.guard(self._messages.places, receive.patience):
                    self._step(receive.deadline)
            except BaseException as error:
                with self._changed:
                    failed, self._receives = self._receives, []
                for each in failed:
                    each.work.finish(error=error)

    def _step(self, deadline: float | None) -> None:
        """Ends a receive whose message has come, or reads one more record."""
        for receive in list(self._receives):
            early = next((one for one in self._early if receive.tag in (None, one.tag)), None)
            if early is not None:
                self._early.remove(early)
                self._fill(receive, early)
                with self._changed:
                    self._receives.remove(receive)
                receive.work.finish(receive.message)
                return
        channel = self._messages.channel
        if self._posted is None:
            self._posted = channel.irecv(self._slot, self._rank, MESSAGE)
        posted, self._posted = self._posted, None
        channel.wait([posted], deadline)
        number, tag, nbytes, dtype = RECORD.unpack(bytes(self._slot[: RECORD.size]))
        inline = self._slot[RECORD.size :][: nbytes if nbytes <= WITH_RECORD else 0].copy()
        self._early.append(_Early(number, tag, nbytes, dtype.rstrip(b"\0").decode(), inline))
        self._posted = channel.irecv(self._slot, self._rank, MESSAGE)

    def _fill(self, receive: _Receive, early: _Early) -> None:
        x, channel = receive.x, self._messages.channel
        count = early.nbytes // ROWS[early.dtype].nbytes
        if (x.dtype, len(x.bytes)) != (early.dtype, early.nbytes):
            own = self._messages.places.rank
            raise Mismatch(
                f"rank {self._rank} sent {count} {early.dtype} with tag {early.tag}, and rank {own} receives it into "
                f"an array of {x.count} {x.dtype}: both must have the same dtype and number of elements"
            )
        if early.nbytes <= WITH_RECORD:
            x.bytes[:] = early.inline
        else:
            channel.wait([channel.irecv(x.bytes, self._rank, _kind(early.number))], receive.deadline)
        x.put_back()
        told = receive.message
        told.source, told.tag, told.count = self._rank, early.tag, count


def _kind(number: int) -> int:
    return FIRST_OF_MESSAGES + number % (KINDS - FIRST_OF_MESSAGES)


class Messages:
    """The sends and receives of a communicator.

    Args:
        places: the ranks.
        inner: the communicator of those on this host.
        channel: the messages to the others.
        watch: failures.
        timeout: seconds that each may take; default for those that do not say.
    """

    def __init__(
        self, places: Places, inner: HostCommunicator, channel: Channel, watch: Watch, timeout: float | None
    ) -> None:
        self.places, self.channel, self.watch = places, channel, watch
        self._inner, self._timeout = inner, timeout
        self._lock = threading.Lock()
        self._numbers: dict[int, int] = {}
        self._small: dict[int, deque[tuple[Request, Bytes]]] = {}
        self._large: set[_Sent] = set()
        self._sources: dict[int, _Source] = {}

    def isend(self, x: Any, dst: int, tag: int | None, timeout: float | None) -> Any:
        """Begins to send an array to a rank; see `nvcoll.Communicator.isend`."""
        if dst in self.places.mine:
            return self._inner.isend(x, self.places.mine.index(dst), tag=tag, timeout=self._patience(timeout))
        operand, patience = Operand(x, "x"), self._patience(timeout)
        name = f"send of {operand.count} {operand.dtype} to rank {dst}"
        with self.watch.guard(self.places, patience) as deadline, self._lock:
            number = self._numbers[dst] = self._numbers.get(dst, -1) + 1
            head = RECORD.pack(number, _checked(tag) or 0, len(operand.bytes), operand.dtype.encode())
            record = np.frombuffer(head, np.uint8)
            if len(operand.bytes) <= WITH_RECORD:
                self._send_small(np.concatenate((record, operand.bytes)), dst, deadline)
                sent = Work(None, name)
                sent.finish()
                return sent
            requests = [
                self.channel.isend(record, dst, MESSAGE),
                self.channel.isend(operand.bytes, dst, _kind(number)),
            ]

        def wait() -> None:
            try:
                with self.watch.guard(self.places, patience):
                    self.channel.wait(requests, deadline)
            finally:
                self._large.discard(large)

        large = _Sent(wait, name)
        large._keep([operand, record])
        self._large.add(large)
        return large

    def _send_small(self, message: Bytes, dst: int, deadline: float | None) -> None:
        under_way = self._small.setdefault(dst, deque())
        if len(under_way) >= UNWAITED:
            self.channel.wait([under_way.popleft()[0]], deadline)
        under_way.append((self.channel.isend(message, dst, MESSAGE), message))

    def irecv(
        self, x: Any, src: int | None, tag: int | None, timeout: float | None, message: Message | None = None
    ) -> Any:
        """Begins to receive an array; see `nvcoll.Communicator.irecv`.

        Args:
            message: what to fill; default: a new one.

        Raises:
            InvalidArgument: no rank is given.
        """
        patience, told = self._patience(timeout), Message() if message is None else message
        if src is None:
            raise InvalidArgument("`src` is None: with ranks on several hosts, pass the rank that sends")
        if src in self.places.mine:
            near = self._inner.irecv(x, self.places.mine.index(src), tag=tag, timeout=patience)
            return _Near(near, told, self.places.mine)
        operand = Operand(x, "x", is_written=True)
        with self.watch.guard(self.places, patience) as deadline:
            work = Work(None, f"receive of {operand.count} {operand.dtype} from rank {src}")
            with self._lock:
                source = self._sources.get(src) or self._sources.setdefault(src, _Source(self, src))
            source.post(_Receive(operand, _checked(tag), deadline, patience, told, work))
        return work

    def drain(self, seconds: float) -> None:
        """Waits until all sends are over, at most for some seconds: this rank leaves."""
        end = time.monotonic() + seconds
        for sent in list(self._large):
            sent.exception(max(end - time.monotonic(), 0))
        for under_way in self._small.values():
            while under_way and self.watch.failure is None:
                self.channel.wait([under_way.popleft()[0]], end)

    def _patience(self, timeout: float | None) -> float | None:
        return self._timeout if timeout is None else timeout


def _checked(tag: Any) -> int | None:
    if tag is not None and (not isinstance(tag, (int, np.integer)) or tag < 0):
        raise InvalidArgument(f"`tag` is {tag!r}: pass a whole number from 0")
    return None if tag is None else int(tag)
