"""Failures, told to all ranks of a job on several hosts.

Who first sees a failure tells every other rank, in a control message, and ends what this process waits for: messages
between hosts (`Outer.close`) and calls inside the host (`abort`). A thread of every process waits for control messages
and does the same. So each survivor raises the error of whoever saw the failure, with the host of the rank that failed.

The first ranks of hosts send each other a sign of life, from host to host around, once per second. A host is lost after
30 s without one: no engine says that a link is down, and a call may have no deadline.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from nvcoll._nvcoll import Aborted, Busy, Closed, Error, InvalidArgument, Mismatch, PeerLost, Timeout
from nvcoll._nvcoll import Communicator as HostCommunicator
from nvcoll.hosts.channel import BEAT, CONTROL
from nvcoll.hosts.outer import Late, Lost, Outer, Request, Stopped
from nvcoll.hosts.places import Places

CONTROL_BYTES = 1024
"""The length of a control message. Chosen: errors inside a host are shorter."""

BEAT_S, SILENCE_S = 1.0, 30.0
"""The time between two signs of life, and after how long without one a host is lost. Chosen."""

REASON_S = 1.5
"""How long a rank that does not know why a call ended waits for one that does: calls inside a host end `LATER_S` later.
Chosen: control messages take milliseconds."""

ENDING_S = 1.0
"""How long a rank that leaves waits for its threads. Chosen: they look every 20 ms."""

REASON = "is stopped|ended with status|ranks? [1-9][0-9, and]* ha(s|ve) not entered the call"
"""What the message of a call inside a host says of a process, if that is the reason.
Not of rank 0: it waits for other hosts."""


LEFT = re.compile(r"the program of rank \d+ (has )?returned")
"""A mismatch inside a host: a rank has left."""


@dataclass(frozen=True)
class Failure:
    """Why a job cannot go on.

    Attributes:
        kind: the name of the error.
        text: its message, with ranks of the job.
        rank: the rank of the job that failed, if one did.
        host: the index of its host, or of the host that is lost.
        pid, signal, status: of a rank whose process ended, if somebody knows.
    """

    kind: str
    text: str
    rank: int | None = None
    host: int | None = None
    pid: int | None = None
    signal: int | None = None
    status: int | None = None


class Watch:
    """Watches over the ranks of a job.

    Args:
        outer: the engine between hosts.
        inner: the communicator of the ranks of this host.
        places: the ranks of the job.
    """

    def __init__(self, outer: Outer, inner: HostCommunicator, places: Places) -> None:
        self._outer, self._inner, self._places = outer, inner, places
        self._lock = threading.Lock()
        self._seen = threading.Event()
        self._is_over = self._is_silent = False
        self._process = os.getpid()
        self.failure: Failure | None = None
        self._threads = [threading.Thread(target=self._listen, name="nvcoll watch", daemon=True)]
        if places.local == 0:
            self._threads.append(threading.Thread(target=self._beat, name="nvcoll beat", daemon=True))
        for thread in self._threads:
            thread.start()

    @contextmanager
    def guard(self, places: Places, patience: float | None, *, has_begun: bool = False) -> Iterator[float | None]:
        """Runs a part of a call: its failure becomes that of the job, and the error that the call raises.

        Args:
            places: the ranks of the communicator.
            patience: seconds that it may take.
            has_begun: whether the arguments are checked, so that others wait for a rank that refuses one now.

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
                self.tell(self._seen_here(error, places, patience))
            raise
        except (Error, Late, Lost, Stopped) as error:
            raise self._meaning(error, places, patience) from error
        except BaseException as error:  # Ctrl-C in the middle of a call: the others cannot go on
            rank = self._places.rank
            self.tell(Failure("Aborted", f"rank {rank} left a call: {type(error).__name__}", rank, self._places.host))
            raise

    @property
    def _is_here(self) -> bool:
        """Whether this process is the rank, and no child of it, whose sockets are the rank's."""
        return os.getpid() == self._process

    def tell(self, failure: Failure) -> None:
        """Ends what all ranks of the job wait for. The first failure counts."""
        if not self._is_here or not self._take(failure):
            return
        message = np.zeros(CONTROL_BYTES, np.uint8)
        text = json.dumps(asdict(failure)).encode()
        if len(text) > CONTROL_BYTES:
            short = Failure(failure.kind, failure.text[: CONTROL_BYTES // 2], failure.rank, failure.host)
            text = json.dumps(asdict(short)).encode()[:CONTROL_BYTES]
        message[: len(text)] = np.frombuffer(text, np.uint8)
        for rank in range(self._places.size):
            if rank != self._places.rank:
                with suppress(Late, Lost, Stopped):
                    self._outer.isend(message, rank, CONTROL)
        self._end_waits(failure)

    def abort(self, places: Places) -> None:
        """Ends the calls of all ranks."""
        rank = places.world[places.rank]
        self.tell(Failure("Aborted", f"rank {rank} called abort", rank, self._places.host))

    def end(self) -> None:
        """Ends the watch and the engine: this rank leaves in order, and no silence of it is a failure."""
        if not self._is_here:
            return
        self._is_over = True
        self._seen.set()
        if self._places.local == 0:
            self._sign(is_last=True)
        self._outer.close(None)
        for thread in self._threads:  # they may be the last to hold the engine, whose end must not meet that of Python
            thread.join(ENDING_S)

    def _take(self, failure: Failure) -> bool:
        with self._lock:
            if self.failure is not None or self._is_over:
                return False
            self.failure = failure
        self._seen.set()
        return True

    def _end_waits(self, failure: Failure) -> None:
        self._outer.close(failed=failure.text)
        with suppress(Error):
            self._inner.abort()

    def _listen(self) -> None:
        message = np.zeros(CONTROL_BYTES, np.uint8)
        try:
            self._outer.wait([self._outer.irecv(message, None, CONTROL)], None)
        except (Late, Lost, Stopped):
            return
        failure = Failure(**json.loads(bytes(message).rstrip(b"\0")))
        if self._take(failure):
            self._end_waits(failure)

    def _beat(self) -> None:
        before = (self._places.host - 1) % len(self._places.hosts)
        received = np.empty(8, np.uint8)
        try:
            while self.failure is None:
                posted = self._outer.irecv(received, self._places.hosts[before][0], BEAT)
                self._seen.wait(BEAT_S)
                sent = self._sign(is_last=self._is_over)
                self._outer.wait([posted], time.monotonic() + SILENCE_S)
                self._outer.poke(sent)  # it is not waited for: its receiver may have left
                if not received[0]:
                    self._sign(is_last=True)
                    return
        except Stopped:
            return
        except (Late, Lost) as error:
            if not self._seen.wait(REASON_S):
                why = f"no sign of life for {SILENCE_S:g} s" if isinstance(error, Late) else str(error)
                self.tell(Failure("PeerLost", why, None, before))

    def _sign(self, *, is_last: bool) -> list[Request]:
        """Sends the next host a sign of life; the last one, once, if this host or one before it leaves."""
        after = (self._places.host + 1) % len(self._places.hosts)
        with self._lock:
            is_due, self._is_silent = not self._is_silent, self._is_silent or is_last
        with suppress(Late, Lost, Stopped):  # a host that is lost sends none itself
            if is_due:
                return [self._outer.isend(np.full(8, not is_last, np.uint8), self._places.hosts[after][0], BEAT)]
        return []

    def _meaning(self, error: Exception, places: Places, patience: float | None) -> Any:
        """Returns the error of a call, and tells the others of a failure that nobody has told."""
        if type(error) not in (Mismatch, PeerLost) and not re.search(REASON, str(error)):
            self._seen.wait(2 * REASON_S if isinstance(error, Lost) else REASON_S)  # a late rank closes connections
        if self.failure is None:
            self.tell(self._seen_here(error, places, patience))
        if self.failure is None:
            return Closed("this rank has left the job during the call")
        is_of_hosts = isinstance(error, Mismatch) and not LEFT.match(str(error))
        return error if is_of_hosts else self._error(self.failure)

    def _seen_here(self, error: Exception, places: Places, patience: float | None) -> Failure:
        """Returns what this rank knows: a message of this host with ranks of the job, or one of the engine."""
        text, host = re.sub("Timed out waiting .*", "no answer", str(error)), self._places.host
        if isinstance(error, (Late, Lost)):
            peer = re.match(r"rank (\d+): ", text)
            far = None if peer is None else self._places.host_of(int(peer[1]))
            if isinstance(error, Late):
                return Failure("Timeout", f"timed out after {patience or 0:g} s: {text}", None, far)
            if peer is None:
                return Failure("Aborted", f"a connection between hosts broke: {text}")
            return Failure(
                "PeerLost", f"the connection to rank {peer[1]} broke: {text[peer.end() :]}", int(peer[1]), far
            )

        def of_job(rank: int) -> int:
            return places.world[places.mine[rank]] if rank < len(places.mine) else rank

        if isinstance(error, PeerLost):
            if error.signal:
                end = f"was killed by signal {error.signal} ({signal.Signals(error.signal).name})"
            else:
                end = f"ended with status {error.status}" if error.status is not None else "ended"
            rank = of_job(error.rank)
            text = f"rank {rank} (process {error.pid}) {end} without leaving the job"
            return Failure("PeerLost", text, rank, host, error.pid, error.signal, error.status)
        if isinstance(error, Timeout):  # without the moves inside the host of which the call is made
            stopped = re.search(r"the process of rank \d+ is stopped.*", text)
            reason = stopped or re.search(r"ranks? [\d, and]+ ha(s|ve) not entered the call", text)
            text = f"timed out after {patience or 0:g} s: {text if reason is None else reason[0]}"
        if left := LEFT.match(text):  # while others were in a call, of which this names a part
            text = f"{left[0]}, and the others wait for it in a call"
        if left or not isinstance(error, Mismatch):  # the others are of hosts, and name ranks of the communicator
            text = re.sub(r"\brank (\d+)", lambda found: f"rank {of_job(int(found[1]))}", text)
        return Failure(type(error).__name__, text, None, host)

    def _error(self, failure: Failure) -> Any:
        """Returns the error of a failure. Its host is None if the failure is of this rank's host."""
        names, is_far = self._places.names, failure.host is not None and failure.host != self._places.host
        kind = {each.__name__: each for each in (PeerLost, Timeout, Mismatch, Closed)}.get(failure.kind, Aborted)
        name = names[failure.host] if failure.host is not None and is_far else None
        error: Any = kind(failure.text if name is None else f"{failure.text}, on host {name}")
        error.host = name
        if isinstance(error, PeerLost):
            for name in ("rank", "pid", "signal", "status"):
                setattr(error, name, getattr(failure, name))
        return error
