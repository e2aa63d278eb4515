"""Failures, sent to all ranks of a job on several hosts.

Who first sees a failure tells every other rank, in a control message, and ends what this process waits for: messages
between hosts (`Carrier.close`) and calls inside the host (`abort`). A thread of every process waits for control
messages and does the same. So each survivor raises the error of whoever saw the failure, with the host of the rank that
failed.

The first ranks of hosts send each other a sign of life, from host to host around, once per second. A host is lost after
30 s without one: no engine says that a link is down, and a call may have no deadline.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np

from nvcoll._nvcoll import Aborted, Busy, Closed, Error, InvalidArgument, Mismatch, PeerLost, Timeout
from nvcoll._nvcoll import Communicator as HostCommunicator
from nvcoll.hosts.carrier import BEAT, CONTROL, Carrier, Late, Lost, Request, Stopped
from nvcoll.hosts.issued_calls import IssuedCalls
from nvcoll.hosts.placement import Placement
from nvcoll.text.formatting import listed

CONTROL_BYTES = 1024
"""The length of a control message. Chosen: errors inside a host are shorter."""

BEAT_S, SILENCE_S = 1.0, 30.0
"""The time between two signs of life, and after how long without one a host is lost. Chosen."""

REASON_S = 1.5
"""How long a rank that does not know why a call ended waits for one that does: calls inside a host end `LATER_S` later.
Chosen: control messages take milliseconds."""

GONE_S = 0.25
"""How long a rank waits for the reason if a rank that was alone on its host is gone. Chosen: a reason that it has told
before arrives in milliseconds."""

ENDING_S = 1.0
"""How long a rank that leaves waits for its threads. Chosen: they look every 20 ms."""

MOST_TOLD = 16
"""The most ranks of a kind that a control message names. Chosen."""


@dataclass(frozen=True)
class Failure:
    """Why a job cannot go on. Ranks have their numbers in the job.

    Attributes:
        kind: the name of the error.
        text: its message.
        ranks, late, stopped, left: of the error; see `nvcoll.Error`.
        host: the index of the host of the rank that failed, or of the host that is lost.
        pid, signal, status: of a rank whose process ended, if somebody knows.
    """

    kind: str
    text: str
    ranks: tuple[int, ...] = ()
    late: tuple[int, ...] = ()
    stopped: tuple[int, ...] = ()
    left: tuple[int, ...] = ()
    host: int | None = None
    pid: int | None = None
    signal: int | None = None
    status: int | None = None

    def packed(self) -> bytes:
        """Returns the failure as JSON that fits a control message; a text that is too long loses its end."""
        ranks, late, stopped, left = (ranks[:MOST_TOLD] for ranks in (self.ranks, self.late, self.stopped, self.left))
        text, failure = self.text, replace(self, ranks=ranks, late=late, stopped=stopped, left=left)
        while len(packed := json.dumps(asdict(failure), ensure_ascii=False).encode(errors="replace")) > CONTROL_BYTES:
            text = text[: min(len(text) - 1, len(text) * CONTROL_BYTES // len(packed))]
            failure = replace(failure, text=f"{text} …")
        return packed

    @classmethod
    def unpacked(cls, message: bytes) -> Failure:
        """Returns the failure of a control message."""
        fields = json.loads(message.rstrip(b"\0"))
        for name in ("ranks", "late", "stopped", "left"):
            fields[name] = tuple(fields[name])
        return cls(**fields)


class Failures:
    """The failures of a job, whose ranks it watches.

    Args:
        carrier: the engine between hosts.
        inner: the communicator of the ranks of this host.
        placement: the ranks of the job.
    """

    def __init__(self, carrier: Carrier, inner: HostCommunicator, placement: Placement) -> None:
        self._carrier, self._inner, self._placement = carrier, inner, placement
        self._lock = threading.Lock()
        self._seen = threading.Event()
        self._is_over = self._is_silent = False
        self._process = os.getpid()
        self.failure: Failure | None = None
        self._inner_of: WeakKeyDictionary[HostCommunicator, HostCommunicator] = WeakKeyDictionary()
        watching = {"failures": self._listen} | ({"signs of life": self._beat} if placement.local == 0 else {})
        self._watching = [IssuedCalls(name).issue(call, inner._work(name)) for name, call in watching.items()]

    def watch(self, comm: HostCommunicator, inner: HostCommunicator) -> None:
        """Has a failure end the calls inside this host of one more communicator."""
        with self._lock:
            self._inner_of[comm] = inner

    @contextmanager
    def guard(
        self, placement: Placement, patience: float | None, *, has_begun: bool = False, missing: str = ""
    ) -> Iterator[float | None]:
        """Runs a part of a call: its failure becomes that of the job, and the error that the call raises.

        Args:
            placement: the ranks of the communicator.
            patience: seconds that it may take.
            has_begun: whether the arguments are checked, so that others wait for a rank that refuses one now.
            missing: of a message: what a late rank has not done, in words.

        Yields:
            The deadline.
        """
        if not self._is_here:
            raise Closed("this process was forked off inside a run, and only the process that was is a rank")
        if self.failure is not None:
            raise self._error(self.failure)
        if self._is_over:
            raise Closed("the program of this rank has ended, and its communicators with it")
        try:
            yield None if patience is None else time.monotonic() + patience
        except (InvalidArgument, Busy) as error:
            if has_begun:
                self.tell(self._seen_here(error, placement, patience, missing))
            raise
        except (Error, Late, Lost, Stopped) as error:
            raise self.meaning(error, placement, patience, missing) from error
        except BaseException as error:  # Ctrl-C in the middle of a call: the others cannot go on
            self._leave_call(error)
            raise

    @contextmanager
    def wait(self) -> Iterator[None]:
        """Runs the wait of a call, whose error is known to all: with Ctrl-C, this rank leaves the call."""
        try:
            yield
        except KeyboardInterrupt as error:
            self._leave_call(error)
            raise

    def _leave_call(self, error: BaseException) -> None:
        own = self._placement
        text = f"rank {own.rank} left a call: {type(error).__name__}"
        self.tell(Failure("Aborted", text, (own.rank,), host=own.host))

    @property
    def _is_here(self) -> bool:
        """Whether this process is the rank, and no child of it, whose sockets are the rank's."""
        return os.getpid() == self._process

    def tell(self, failure: Failure) -> None:
        """Ends what all ranks of the job wait for. The first failure counts."""
        if not self._is_here or not self._take(failure):
            return
        message = np.frombuffer(failure.packed().ljust(CONTROL_BYTES, b"\0"), np.uint8)
        for rank in range(self._placement.size):
            if rank != self._placement.rank:
                with suppress(Late, Lost, Stopped):
                    self._carrier.isend(message, rank, CONTROL)
        self._end_waits(failure)

    def abort(self, placement: Placement) -> None:
        """Ends the calls of all ranks."""
        rank = placement.world[placement.rank]
        self.tell(Failure("Aborted", f"rank {rank} called abort", (rank,), host=self._placement.host))

    def end(self) -> None:
        """Ends the watch and the engine: this rank leaves in order, and no silence of it is a failure."""
        if not self._is_here:
            return
        self._is_over = True
        self._seen.set()
        if self._placement.local == 0:
            self._sign(is_last=True)
        self._carrier.close(None)
        for watching in self._watching:  # the last to hold the carrier, whose end must not meet that of Python
            with suppress(Error):
                watching.exception(ENDING_S)

    def _take(self, failure: Failure) -> bool:
        with self._lock:
            if self.failure is not None or self._is_over:
                return False
            self.failure = failure
        self._seen.set()
        return True

    def _end_waits(self, failure: Failure) -> None:
        self._carrier.close(failed=failure.text)
        with self._lock:
            inners = [self._inner, *self._inner_of.values()]
        for inner in inners:
            with suppress(Error):
                inner.abort()

    def _listen(self) -> None:
        message = np.zeros(CONTROL_BYTES, np.uint8)
        while not message.any():  # else it asks whether this process is there: see `_is_gone`
            try:
                self._carrier.wait([self._carrier.irecv(message, None, CONTROL)], None)
            except (Late, Lost, Stopped):
                return
        failure = Failure.unpacked(bytes(message))
        if self._take(failure):
            self._end_waits(failure)

    def _is_gone(self, rank: int | None) -> bool:
        """Says whether the process of a rank that is alone on its host has ended: nobody there can say how.

        A rank whose wait has timed out has closed its connections too, but not the connections of control messages.
        """
        if rank is None or len(self._placement.hosts[self._placement.host_of(rank)]) > 1:
            return False
        try:
            for _ in range(2):
                self._carrier.isend(np.zeros(CONTROL_BYTES, np.uint8), rank, CONTROL)
                self._seen.wait(GONE_S / 2)
        except Lost:
            return True
        except (Late, Stopped):
            pass
        return False

    def _beat(self) -> None:
        before = (self._placement.host - 1) % len(self._placement.hosts)
        received = np.empty(8, np.uint8)
        try:
            while self.failure is None:
                posted = self._carrier.irecv(received, self._placement.hosts[before][0], BEAT)
                self._seen.wait(BEAT_S)
                sent = self._sign(is_last=self._is_over)
                self._carrier.wait([posted], time.monotonic() + SILENCE_S)
                self._carrier.poke(sent)  # it is not waited for: its receiver may have left
                if not received[0]:
                    self._sign(is_last=True)
                    return
        except Stopped:
            return
        except (Late, Lost) as error:
            if not self._seen.wait(REASON_S):
                why = f"no sign of life for {SILENCE_S:g} s" if isinstance(error, Late) else str(error)
                self.tell(Failure("PeerLost", why, host=before))

    def _sign(self, *, is_last: bool) -> list[Request]:
        """Sends the next host a sign of life; the last one, once, if this host or one before it leaves."""
        after = (self._placement.host + 1) % len(self._placement.hosts)
        with self._lock:
            is_due, self._is_silent = not self._is_silent, self._is_silent or is_last
        with suppress(Late, Lost, Stopped):  # a host that is lost sends none itself
            if is_due:
                return [self._carrier.isend(np.full(8, not is_last, np.uint8), self._placement.hosts[after][0], BEAT)]
        return []

    def meaning(
        self, error: BaseException, placement: Placement, patience: float | None, missing: str = ""
    ) -> BaseException:
        """Returns the error of a call, and sends the others a failure that nobody has sent: see `guard`."""
        if not isinstance(error, (Error, Late, Lost, Stopped)):
            return error
        is_reason = _is_reason(error, placement, missing)
        if isinstance(error, Lost) and self._is_gone(error.peer):
            self._seen.wait(GONE_S)
        elif not is_reason:
            is_of_another = isinstance(error, (Lost, Aborted))  # who is late closes connections, and then waits itself
            self._seen.wait(2 * REASON_S if is_of_another else REASON_S)
        if self.failure is None:
            self.tell(self._seen_here(error, placement, patience, missing))
        if self.failure is None:
            return Closed("this rank has left the job during the call")
        if isinstance(error, Mismatch) and not error.left:
            return error
        own, failure = self._placement.rank, self.failure
        if own in failure.late:  # says another host, which waits for this rank only
            if isinstance(error, Timeout) and is_reason:
                return self._error(self._seen_here(error, placement, patience, missing))
            late = tuple(rank for rank in failure.late if rank != own)
            text = f"{failure.text}; this rank is in the call, and waits for another one of its host"
            failure = replace(failure, text=text, late=late)
        return self._error(failure)

    def _seen_here(self, error: Exception, placement: Placement, patience: float | None, missing: str) -> Failure:
        """Returns what this rank knows of a failure, with ranks of the job."""
        own = self._placement
        if isinstance(error, (Late, Lost)):
            ranks = () if error.peer is None else (error.peer,)
            far = None if error.peer is None else own.host_of(error.peer)
            text = str(error) if error.peer is None else f"rank {error.peer}: {error}"
            if isinstance(error, Late):
                return Failure("Timeout", _timed_out(patience, text), ranks, late=ranks, host=far)
            if error.peer is None:
                return Failure("Aborted", f"a connection between hosts broke: {text}")
            return Failure("PeerLost", f"the connection to rank {error.peer} broke: {error}", ranks, host=far)
        text = str(error)
        failure = Failure(type(error).__name__, text, host=own.host)
        if isinstance(error, Error):
            numbers = (error.ranks, error.late, error.stopped, error.left)
            named, late, stopped, left = (tuple(placement.world[rank] for rank in each) for each in numbers)
            failure = replace(failure, ranks=named, late=late, stopped=stopped, left=left)
        if isinstance(error, Aborted):
            failure = replace(failure, status=error.status)
        if isinstance(error, PeerLost):
            end = "ended" if error.status is None else f"ended with status {error.status}"
            if error.signal:
                end = f"was killed by signal {error.signal} ({signal.Signals(error.signal).name})"
            text = f"rank {failure.ranks[0]} (process {error.pid}) {end} without leaving the job"
            return replace(failure, text=text, pid=error.pid, signal=error.signal)
        if failure.left:  # while others were in a call; this names a part of it
            text = f"the program of {listed(failure.left)} returned, and the others wait for it in a call"
        elif failure.stopped:  # without the moves inside the host that make up the call
            text = "; ".join(f"the process of rank {rank} is stopped" for rank in failure.stopped)
            text = _timed_out(patience, f"{text}: continue it by SIGCONT")
        elif failure.late and missing:
            text = _timed_out(patience, f"{listed(failure.late)}: {missing}")
        elif failure.late:
            have = "has" if len(failure.late) == 1 else "have"
            text = _timed_out(patience, f"{listed(failure.late)} {have} not entered the call")
        elif isinstance(error, Timeout):
            text = _timed_out(patience, "the ranks of this host were not done")
        elif failure.ranks and placement.size != own.size:  # others have other communicators
            text = f"{text} (the ranks of this communicator are {listed(placement.world)} of the job)"
        return replace(failure, text=text)

    def _error(self, failure: Failure) -> Error:
        """Returns the error of a failure. Its host is None if the failure is of this rank's host."""
        is_far = failure.host is not None and failure.host != self._placement.host
        name = self._placement.names[failure.host] if failure.host is not None and is_far else None
        kind = {each.__name__: each for each in (PeerLost, Timeout, Mismatch, Closed)}.get(failure.kind, Aborted)
        error = kind(failure.text if name is None else f"{failure.text}, on host {name}", ranks=failure.ranks)
        error.host, error.late, error.stopped, error.left = name, failure.late, failure.stopped, failure.left
        if isinstance(error, Aborted):
            error.status = failure.status
        if isinstance(error, PeerLost):
            error.rank = failure.ranks[0] if failure.ranks else None
            error.pid, error.signal = failure.pid, failure.signal
        return error


def _is_reason(error: Exception, placement: Placement, missing: str) -> bool:
    """Says whether an error tells why a call ended: others then know nothing better.

    The first rank of a host waits for other hosts, and who sends no message may wait for others: that they are late is
    no reason.
    """
    if isinstance(error, (Mismatch, PeerLost)):
        return True
    if isinstance(error, Timeout):
        return bool(error.stopped) or (bool(error.late) and not missing and placement.mine[0] not in error.late)
    return isinstance(error, Aborted) and error.status is not None


def _timed_out(patience: float | None, why: str) -> str:
    return f"timed out after {patience or 0:g} s: {why}"
