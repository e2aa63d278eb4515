"""Messages between ranks of different hosts. The engine of one host matches them with receives, as its own.

A record of 64 bytes goes first: tag, length, dtype. It carries the elements if they are few; then `send` does not wait
for the receiver. Else the elements follow, for which the receiver makes room by the length in the record, so that no
carrier sees a wrong one. While a receive waits for messages of a rank, a thread takes them from the carrier in the
order of sends, and gives each to the engine (`Communicator._deliver`): to the first receive that takes it, else to be
kept. So a long message waits at its sender until a receive waits for that rank.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from nvcoll._nvcoll import Error, InvalidArgument, Work
from nvcoll.hosts.arrays import Arguments
from nvcoll.hosts.carrier import Bytes, Lost, Request, Stopped
from nvcoll.hosts.failures import Failures
from nvcoll.hosts.issued_calls import IssuedCalls
from nvcoll.hosts.peers import MESSAGE, MESSAGE_DATA, Peers

RECORD = struct.Struct("<qq16s32x")
"""Tag, bytes, dtype."""

WITH_RECORD = 16 << 10
"""The most bytes that travel with a record: the bytes that a send inside a host gives away without a receiver."""

UNWAITED = 64
"""How many small messages to one rank may be on their way before a send waits. Chosen."""

MOST_TAG = 2**31 - 1
"""The greatest tag, as inside a host."""


class Outgoing:
    """The sends of a communicator to a rank of another host.

    Args:
        peers: the ranks.
        failures: of the job.
        dst: the rank that receives.
    """

    def __init__(self, peers: Peers, failures: Failures, dst: int) -> None:
        self._isend, self._placement = peers.isend, peers.placement
        self._carrier, self._failures, self._dst = peers.carrier, failures, dst
        self._calls = IssuedCalls(f"sends to rank {dst}")
        self._turn = threading.Lock()  # the data of messages come in the order of their records
        self._small: list[Request] = []

    def send(self, given: Arguments, tag: int | None, patience: float | None, new_work: Callable[[str], Work]) -> Work:
        """Begins to send an array.

        Args:
            given: the array.
            tag: its tag. None: 0.
            patience: seconds that the send may take.
            new_work: makes the work of a call in words.
        """
        if tag is not None and (not isinstance(tag, (int, np.integer)) or not 0 <= tag <= MOST_TAG):
            raise InvalidArgument(f"`tag` is {tag!r}: pass a whole number, 0 to {MOST_TAG}")
        x = given.x
        work = new_work(f"send of {x.count} {x.dtype} to rank {self._dst}")
        record = np.frombuffer(RECORD.pack(tag or 0, len(x.bytes), x.dtype.encode()), np.uint8)
        with self._failures.guard(self._placement, patience) as deadline, self._turn:
            if len(x.bytes) > WITH_RECORD:
                requests = [self._isend(record, self._dst, MESSAGE), self._isend(x.bytes, self._dst, MESSAGE_DATA)]
            else:
                self._small.append(self._isend(np.concatenate((record, x.bytes)), self._dst, MESSAGE))
                if len(self._small) < UNWAITED:
                    work._finish(None)
                    return work
                requests = self._unwaited()

        def wait() -> None:
            with self._failures.guard(self._placement, patience):
                self._carrier.wait(requests, deadline)

        return self._calls.issue(wait, work)

    def drain(self, end: float) -> None:
        """Waits until all sends are over, or until a time: this rank leaves."""
        self._calls.drain(max(end - time.monotonic(), 0))
        if self._failures.failure is None:
            with self._turn:
                requests = self._unwaited()
            self._carrier.wait(requests, end)

    def _unwaited(self) -> list[Request]:
        requests, self._small = self._small, []
        return requests


class Incoming:
    """The messages of a rank of another host to a communicator.

    Args:
        peers: the ranks.
        failures: of the job.
        src: the rank that sends.
    """

    def __init__(self, peers: Peers, failures: Failures, src: int) -> None:
        self._peers, self._failures, self._src = peers, failures, src
        self._calls = IssuedCalls(f"messages of rank {src}")
        self._slot = np.empty(RECORD.size + WITH_RECORD, np.uint8)
        self._posted: Request | None = None

    def look(self) -> None:
        """Takes messages while receives wait for them: one was posted."""
        self._calls.issue(self._take, self._peers.inner._work(f"messages of rank {self._src}"))

    def _take(self) -> None:
        with suppress(Error), self._failures.guard(self._peers.placement, None):
            while self._peers.inner._awaits(self._src):
                self._take_one()

    def _take_one(self) -> None:
        peers, posted = self._peers, self._posted or self._irecv(self._slot, MESSAGE)
        self._posted = None
        peers.carrier.wait([posted], None)
        tag, nbytes, dtype = RECORD.unpack(self._slot[: RECORD.size].tobytes())
        data = self._slot[RECORD.size :][:nbytes]
        if nbytes > WITH_RECORD:
            data = np.empty(nbytes, np.uint8)
            peers.carrier.wait([self._irecv(data, MESSAGE_DATA)], None)
        peers.inner._deliver(self._src, tag, dtype.rstrip(b"\0").decode(), data)
        with suppress(Lost, Stopped):  # the sender may have left
            self._posted = self._irecv(self._slot, MESSAGE)

    def _irecv(self, x: Bytes, kind: int) -> Request:
        return self._peers.irecv(x, self._src, kind)
