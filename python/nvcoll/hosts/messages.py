"""Messages between two ranks, which may be on different hosts. On one host they are messages of that host.

Between hosts a record of 64 bytes goes first: number, tag, length, dtype. It carries the elements if they are few; then
`send` does not wait for the receiver. Else the elements follow on a tag of their own, which the receiver asks for once
it has found the receive that takes the message, so that no engine sees a wrong length. A thread per source reads the
records while receives wait. No wait of an engine can be cut short, so who waits for a receive looks at its deadline.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from nvcoll._nvcoll import Communicator as HostCommunicator
from nvcoll._nvcoll import InvalidArgument, Mismatch, Timeout
from nvcoll._nvcoll import Work as HostWork
from nvcoll.hosts.arrays import ROWS, Arguments
from nvcoll.hosts.channel import FIRST_OF_MESSAGES, KINDS, MESSAGE, Channel
from nvcoll.hosts.lane import Call, Work
from nvcoll.hosts.outer import Bytes, Late, Lost, Request, Stopped
from nvcoll.hosts.places import Places
from nvcoll.hosts.watch import Watch

RECORD = struct.Struct("<qqq16s24x")
"""Number of the message, tag, bytes, dtype."""

WITH_RECORD = 16 << 10
"""The most bytes that travel with a record: as many as a send inside a host gives away without a receiver."""

UNWAITED = 64
"""How many small messages to one rank may be on their way before a send waits. Chosen."""

MOST_TAG = 2**31 - 1
"""The greatest tag, as inside a host."""

LINGER_S = 1.0
"""How long a thread without a receive stays. Chosen: making one takes as long as a message."""


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


class _UnderWay(Work):
    """A message under way: who waits for it first waits for the engine; who only asks starts a thread that does."""

    def __init__(self, call: Call | None, name: str) -> None:
        super().__init__(call, name)
        self._claim = threading.Lock()

    def run_once(self) -> None:
        """Makes the call, if there is one and nobody else does."""
        if self._call is not None and self._claim.acquire(blocking=False):
            self.run()

    def _run_beside(self) -> None:
        if self._call is not None and not self._claim.locked():
            threading.Thread(target=self.run_once, name="nvcoll message", daemon=True).start()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if timeout is None:
            self.run_once()
        else:
            self._run_beside()
        return super().exception(timeout)

    def done(self) -> bool:
        self._run_beside()
        return super().done()

    def _when_done(self, ring: Callable[[], object]) -> None:
        super()._when_done(ring)
        self._run_beside()


class _Near(_UnderWay):
    """A message inside this host. Its failure is that of the job."""

    def __init__(self, work: HostWork, messages: Messages, patience: float | None, told: Message | None) -> None:
        places = messages.places

        def end() -> Message | None:
            with messages.watch.guard(places, patience):
                try:
                    found = work.wait()
                except Timeout as error:
                    late = places.world[error.late[0]] if error.late else None
                    raise Late("took no message" if told is None else "no message", late) from error
            if told is not None:
                told.source, told.tag, told.count = places.mine[found.source], found.tag, found.count
            return told

        super().__init__(end, "the message")
        vars(self).update(done=work.done, _keep=work._keep, _when_done=work._when_done)


@dataclass(eq=False)
class _Early:
    """A message whose record has come. Its data are here, or come into an array of their own, or are asked for."""

    number: int
    tag: int
    nbytes: int
    dtype: str
    data: Bytes | None
    requests: list[Request] = field(default_factory=list)

    @classmethod
    def read(cls, slot: Bytes) -> _Early:
        """Returns the message of a record."""
        number, tag, nbytes, dtype = RECORD.unpack(slot[: RECORD.size].tobytes())
        data = slot[RECORD.size :][:nbytes].copy() if nbytes <= WITH_RECORD else None
        return cls(number, tag, nbytes, dtype.rstrip(b"\0").decode(), data)


class _Receive(_UnderWay):
    """A receive from another host. Who waits for it tells that its deadline has passed."""

    def __init__(
        self,
        messages: Messages,
        given: Arguments,
        src: int,
        tag: int | None,
        patience: float | None,
        message: Message,
    ) -> None:
        x = given.out
        super().__init__(None, f"receive of {x.count} {x.dtype} from rank {src}")
        self._messages, self._has_waiter = messages, False
        self.given, self.x, self.src, self.tag, self.patience, self.message = given, x, src, tag, patience, message
        self.deadline = None if patience is None else time.monotonic() + min(patience, threading.TIMEOUT_MAX)

    def takes(self, early: _Early) -> bool:
        """Says whether the tag fits."""
        return self.tag in (None, early.tag)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if self._call is None and self.deadline is not None:
            left = self.deadline - time.monotonic()
            if (timeout is None or left < timeout) and not self._over.wait(left):
                with suppress(Exception), self._messages.watch.guard(self._messages.places, self.patience):
                    tag = "" if self.tag is None else f" with tag {self.tag}"
                    raise Late(f"no message{tag}", self._messages.places.world[self.src])
        return super().exception(timeout)

    def done(self) -> bool:
        is_early = self.deadline is None or time.monotonic() < self.deadline
        return self._over.is_set() if self._call is None and is_early else super().done()

    def _run_beside(self) -> None:
        super()._run_beside()
        if self._call is None and not (self._has_waiter or self.deadline is None or self._over.is_set()):
            self._has_waiter = True
            threading.Thread(target=self.exception, name="nvcoll receive", daemon=True).start()


class _Source:
    """The messages of one rank of another host, taken by receives in the order of sends."""

    def __init__(self, messages: Messages, rank: int) -> None:
        self._messages, self._rank = messages, rank
        self._changed = threading.Condition()
        self._receives: list[_Receive] = []
        self._early: list[_Early] = []
        self._slot = np.empty(RECORD.size + WITH_RECORD, np.uint8)
        self._posted: Request | None = None
        self._is_served = False

    def post(self, receive: _Receive) -> None:
        """Gives a receive its message, if it has come; else adds it."""
        with self._changed:
            early = next((one for one in self._early if receive.takes(one)), None)
            if early is None:
                self._receives.append(receive)
                if not self._is_served:
                    self._is_served = True
                    name = f"nvcoll receives from {self._rank}"
                    threading.Thread(target=self._serve, name=name, daemon=True).start()
                self._changed.notify()
                return
            receive._call = self._take(receive, early)
            self._early.remove(early)
        if early.nbytes <= WITH_RECORD:
            receive.run_once()

    def _serve(self) -> None:
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._receives, LINGER_S):
                    self._is_served = False
                    return
            try:
                with self._messages.watch.guard(self._messages.places, None):
                    self._read()
            except BaseException as error:
                with self._changed:
                    failed, self._receives = self._receives, []
                for receive in failed:
                    receive.finish(error=error)
                del failed

    def _read(self) -> None:
        """Reads one more record, and ends the receive that takes its message."""
        channel = self._messages.channel
        posted, self._posted = self._posted or channel.irecv(self._slot, self._rank, MESSAGE), None
        channel.wait([posted], None)
        early = _Early.read(self._slot)
        with suppress(Lost, Stopped):  # the sender may have left
            self._posted = channel.irecv(self._slot, self._rank, MESSAGE)
        with self._changed:
            receive = next((one for one in self._receives if one.takes(early)), None)
            if receive is None:
                self._early.append(early)
                return
            receive._call = self._take(receive, early)
            self._receives.remove(receive)
        receive.run_once()

    def _take(self, receive: _Receive, early: _Early) -> Call:
        """Asks for the data of a message, and returns what waits for them. Whoever calls it holds the lock."""
        x, messages = receive.x, self._messages
        count, kind = early.nbytes // ROWS[early.dtype].nbytes, _kind(early.number)
        is_alike = (x.dtype, len(x.bytes)) == (early.dtype, early.nbytes)
        if is_alike and early.data is None:
            for one in self._early:  # the engine gives the data of one kind in the order of sends
                if one.data is None and _kind(one.number) == kind and one.number < early.number:
                    one.data = np.empty(one.nbytes, np.uint8)
                    one.requests.append(messages.channel.irecv(one.data, self._rank, kind))
            early.requests.append(messages.channel.irecv(x.bytes, self._rank, kind))

        def end() -> Message:
            with messages.watch.guard(messages.places, receive.patience):
                if not is_alike:
                    raise Mismatch(
                        f"rank {self._rank} sent {count} {early.dtype} with tag {early.tag}, and rank "
                        f"{messages.places.rank} receives it into an array of {x.count} {x.dtype}: both must have the "
                        "same dtype and number of elements",
                        ranks=(self._rank, messages.places.rank),
                    )
                messages.channel.wait(early.requests, receive.deadline)
            if early.data is not None:
                x.bytes[:] = early.data
            receive.given.finish()
            told = receive.message
            told.source, told.tag, told.count = self._rank, early.tag, count
            return told

        return end


def _kind(number: int) -> int:
    return FIRST_OF_MESSAGES + number % (KINDS - FIRST_OF_MESSAGES)


class Outbox:
    """The sends of a communicator to other hosts.

    Args:
        channel: where they go.
        places: the ranks.
        watch: failures.
    """

    def __init__(self, channel: Channel, places: Places, watch: Watch) -> None:
        self._channel, self._places, self._watch = channel, places, watch
        self._lock = threading.Lock()
        self._numbers: dict[int, int] = {}
        self._small: dict[int, list[tuple[Request, Bytes]]] = {}
        self._open: set[_UnderWay] = set()  # also those that the program forgets

    def send(self, given: Arguments, dst: int, tag: int, patience: float | None) -> Work:
        """Begins to send an array to a rank of another host."""
        x = given.x
        name = f"send of {x.count} {x.dtype} to rank {dst}"
        with self._watch.guard(self._places, patience) as deadline, self._lock:
            number = self._numbers[dst] = self._numbers.get(dst, -1) + 1
            record = np.frombuffer(RECORD.pack(number, tag, len(x.bytes), x.dtype.encode()), np.uint8)
            if len(x.bytes) <= WITH_RECORD:
                record = np.concatenate((record, x.bytes))
            requests = [self._channel.isend(record, dst, MESSAGE)]
            if len(x.bytes) > WITH_RECORD:
                requests.append(self._channel.isend(x.bytes, dst, _kind(number)))
            else:
                small = self._small.setdefault(dst, [])
                small.append((requests[0], record))
                if len(small) < UNWAITED:
                    sent = Work(None, name)
                    sent.finish()
                    return sent
                requests = self._waited(small)

        def wait() -> None:
            with self._watch.guard(self._places, patience):
                self._channel.wait(requests, deadline)

        work = _UnderWay(wait, name)
        work._keep([x, record])
        self._open.add(work)
        Work._when_done(work, lambda: self._open.discard(work))
        return work

    def drain(self, end: float) -> None:
        """Waits until all sends are over, or until a time: this rank leaves."""
        with self._lock:
            requests = [request for small in self._small.values() for request in self._waited(small)]
        for work in list(self._open):
            work.exception(max(end - time.monotonic(), 0))
        if self._watch.failure is None:
            self._channel.wait(requests, end)

    @staticmethod
    def _waited(small: list[tuple[Request, Bytes]]) -> list[Request]:
        requests = [request for request, _ in small]
        small.clear()
        return requests


class Messages:
    """The sends and receives of a communicator.

    Args:
        places: the ranks.
        inner: the communicator of those on this host.
        channel: the messages to the others.
        watch: failures.
        timeout: seconds that each may take; default for those that do not say.

    Attributes:
        outbox: the sends to other hosts.
    """

    def __init__(
        self, places: Places, inner: HostCommunicator, channel: Channel, watch: Watch, timeout: float | None
    ) -> None:
        self.places, self.channel, self.watch = places, channel, watch
        self.outbox = Outbox(channel, places, watch)
        self._inner, self._timeout = inner, timeout
        self._lock = threading.Lock()
        self._sources: dict[int, _Source] = {}

    def isend(self, x: object, dst: int, tag: int | None, timeout: float | None) -> Work:
        """Begins to send an array to a rank; see `nvcoll.Communicator.isend`."""
        patience = self._timeout if timeout is None else timeout
        if dst not in self.places.mine:
            return self.outbox.send(
                Arguments(self.places, "broadcast", x, root=self.places.rank), dst, _checked(tag) or 0, patience
            )
        with self.watch.guard(self.places, patience):
            work = self._inner.isend(x, self.places.mine.index(dst), tag=tag, timeout=patience)
        return _Near(work, self, patience, None)

    def irecv(
        self, x: object, src: int | None, tag: int | None, timeout: float | None, message: Message | None = None
    ) -> Work:
        """Begins to receive an array; see `nvcoll.Communicator.irecv`.

        Args:
            message: what to fill; default: a new one.

        Raises:
            InvalidArgument: no rank is given.
        """
        patience, told = self._timeout if timeout is None else timeout, Message() if message is None else message
        if src is None:
            raise InvalidArgument("`src` is None: with ranks on several hosts, pass the rank that sends")
        with self.watch.guard(self.places, patience):
            if src in self.places.mine:
                near = self._inner.irecv(x, self.places.mine.index(src), tag=tag, timeout=patience)
                return _Near(near, self, patience, told)
            given = Arguments(self.places, "broadcast", x, root=src)
            receive = _Receive(self, given, src, _checked(tag), patience, told)
            with self._lock:
                source = self._sources.get(src) or self._sources.setdefault(src, _Source(self, src))
            source.post(receive)
        return receive


def _checked(tag: object) -> int | None:
    if tag is not None and (not isinstance(tag, (int, np.integer)) or not 0 <= tag <= MOST_TAG):
        raise InvalidArgument(f"`tag` is {tag!r}: pass a whole number, 0 to {MOST_TAG}")
    return None if tag is None else int(tag)
