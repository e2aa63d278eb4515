"""Calls one after the other, in the order of issue: all threads of ranks on several hosts are of this kind.

A call that its caller waits for runs on the caller's thread if none is before it: waking a thread costs more than a
small call. Others run on a thread that begins with the first of them and ends when it has had none for a second.

::

    communicator            its collectives and groups
      to, from a rank       waits for sends; messages that have come, while receives wait
    job                     failures, signs of life
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from nvcoll._nvcoll import Work

Call = Callable[[], object]

LINGER_S = 1.0
"""How long a thread waits for a call before it ends. Chosen: making one takes as long as a message."""


class IssuedCalls:
    """Calls that run one after the other.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Work, Call]] = deque()
        self._is_busy = self._has_thread = False

    def run(self, call: Call, work: Callable[[], Work]) -> object:
        """Makes a call in its turn and returns its result.

        Args:
            call: the call.
            work: makes its work, if calls are before it.
        """
        with self._changed:
            is_next = not (self._is_busy or self._waiting)
            self._is_busy = self._is_busy or is_next
        if not is_next:
            return self.issue(call, work()).wait()
        try:
            return call()
        finally:
            self._pass_on()

    def issue(self, call: Call, work: Work) -> Work:
        """Returns the work of a call, which runs in its turn."""
        with self._changed:
            self._waiting.append((work, call))
            self._changed.notify_all()
            if not self._has_thread:
                self._has_thread = True
                threading.Thread(target=self._serve, name=f"nvcoll {self._name}", daemon=True).start()
        return work

    def drain(self, seconds: float) -> bool:
        """Waits until no call is in flight, at most for some seconds, and says whether none is."""
        with self._changed:
            return self._changed.wait_for(lambda: not (self._is_busy or self._waiting), seconds)

    def _pass_on(self) -> None:
        with self._changed:
            self._is_busy = False
            self._changed.notify_all()

    def _serve(self) -> None:
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self._waiting and not self._is_busy, LINGER_S):
                    if not self._waiting:
                        self._has_thread = False
                        return
                    continue
                work, call = self._waiting.popleft()
                self._is_busy = True
            result, error = _outcome(call)
            del call  # and what it holds
            work._finish(result, error)
            self._pass_on()
            del work, result, error


def _outcome(call: Call) -> tuple[object, BaseException | None]:
    try:
        return call(), None
    except BaseException as error:
        return None, error
