"""Calls of one communicator in the order of issue, and their works.

A call without ``async_op`` runs on the thread that makes it if no other call is in its way: waking a thread costs more
than a small call. Others run on a thread of the communicator, which starts with the first of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence

from nvcoll._nvcoll import Timeout
from nvcoll.hosts.outer import looked

Call = Callable[[], object]

LINGER_S = 1.0
"""How long the thread of a lane waits for a call before it ends. Chosen."""


class Work:
    """A call in flight, with the methods of `nvcoll.Work`.

    Args:
        call: what `run` makes; it returns the result. None: somebody calls `finish`.
        name: the call, for errors.
    """

    def __init__(self, call: Call | None, name: str) -> None:
        self._call, self._name = call, name
        self._over = threading.Event()
        self._result: object = None
        self._error: BaseException | None = None
        self._rings: list[Callable[[], object]] = []
        self._lock = threading.Lock()
        self._kept: list[object] = []

    def run(self) -> None:
        """Makes the call, once."""
        call, self._call = self._call, None
        assert call is not None
        try:
            result = call()
        except BaseException as error:
            self.finish(error=error)
        else:
            self.finish(result)

    def finish(self, result: object = None, error: BaseException | None = None) -> None:
        """Ends the call with a result or an error."""
        self._result, self._error = result, error
        with self._lock:
            self._over.set()
            rings, self._rings = self._rings, []
        for ring in rings:
            with contextlib.suppress(Exception):
                ring()

    def wait(self, timeout: float | None = None) -> object:
        """Waits until the call is over, and returns its result.

        Args:
            timeout: seconds that this wait may take; the call stays in flight. None: no limit.

        Raises:
            Timeout: the wait took too long.
            Error: the call failed.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._result

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Waits until the call is over, and returns its exception; None if it succeeded.

        Raises:
            Timeout: the wait took too long.
        """
        if not self._over.wait(timeout):
            raise Timeout(f"the wait for {self._name} took more than {timeout:g} s; the call is still in flight")
        return self._error

    def done(self) -> bool:
        """Says whether the call is over, also by an error."""
        return self._over.is_set()

    def __await__(self) -> Generator[object, None, object]:
        loop = asyncio.get_running_loop()
        over = asyncio.Event()
        self._when_done(lambda: loop.call_soon_threadsafe(over.set))
        yield from over.wait().__await__()
        return self.wait()

    def _when_done(self, ring: Callable[[], object]) -> None:
        """Calls a function when the call is over, or now if it is."""
        with self._lock:
            if not self._over.is_set():
                self._rings.append(ring)
                return
        ring()

    def _keep(self, arrays: Sequence[object]) -> None:
        """Keeps arrays alive as long as the work."""
        self._kept.extend(arrays)


class Lane:
    """Runs calls one after the other."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._waiting: deque[Work] = deque()
        self._is_taken = False
        self._wake = threading.Semaphore(0)
        self._thread: threading.Thread | None = None

    def run(self, call: Call, name: str) -> object:
        """Makes a call in its turn and returns its result: here if none is before it, else on the lane's thread."""
        with self._lock:
            is_mine = not self._is_taken
            self._is_taken = True
        if not is_mine:
            return self.issue(call, name).wait()
        try:
            return call()
        finally:
            self._pass_on()

    def issue(self, call: Call, name: str) -> Work:
        """Returns at once; the call runs in its turn."""
        work = Work(call, name)
        with self._lock:
            self._waiting.append(work)
            is_idle = not self._is_taken
            self._is_taken = True
        if is_idle:
            self._awake()
        return work

    def drain(self, seconds: float) -> bool:
        """Waits until no call is in flight, at most for some seconds, and says whether none is."""
        return looked(lambda: not self._is_taken, time.monotonic() + seconds, 0.001)

    def _pass_on(self) -> None:
        with self._lock:
            self._is_taken = bool(self._waiting)
            if not self._is_taken:
                return
        self._awake()

    def _awake(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name=f"nvcoll calls of {self._name}", daemon=True)
            self._thread.start()
        self._wake.release()

    def _rests(self) -> bool:
        """Ends the thread, unless a call is under way."""
        with self._lock:
            if not self._is_taken:
                self._thread = None
            return not self._is_taken

    def _serve(self) -> None:
        while True:
            if not self._wake.acquire(timeout=LINGER_S):
                if self._rests():
                    return
                continue
            while True:
                with self._lock:
                    if not self._waiting:
                        self._is_taken = False
                        break
                    work = self._waiting.popleft()
                work.run()
                del work
