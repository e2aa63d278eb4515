"""``Work`` and ``Future`` of torch for calls of nvcoll.

::

    call made at once       DONE, one object for all
    call in flight          CallWork ─ wait()        waits for the Work of nvcoll
                                     ─ get_future()  a Future that ends when the call is over, or with its error

Some calls end with copies, as of an all_gather into a list of tensors. Whoever first sees that the call is over makes
them: the thread that waits, or the thread of the call.

A callback of a `Future` may make calls, for example in PowerSGD. Ranks must make calls in one order, so ``then`` waits
for the call and runs the callback at once, on the thread of the program. NCCL too runs callbacks where they are added.
Futures end on separate threads, since C++ may have callbacks that wait for the next call (``collect_all``).

C++ of torch makes a RuntimeError of each Python exception that it finds in a future. So in a backward pass `then`
raises the error at once, and DDP gets a `_Failed`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist

import nvcoll
from nvcoll.torch import private

Finish = Callable[[], None]


def torch_error(error: nvcoll.Error) -> RuntimeError:
    """Returns the exception that programs for torch expect, with the message of nvcoll's."""
    raised: type[RuntimeError] = dist.DistBackendError
    name = "the timeout has passed" if isinstance(error, nvcoll.Timeout) else type(error).__name__
    return raised(f"{name}: {error}")


def invalid(message: str) -> RuntimeError:
    """Returns the exception for arguments that cannot be used."""
    return torch_error(nvcoll.InvalidArgument(message))


class DoneWork(dist.Work):
    """The work of a call that is over."""

    def __init__(self, results: Sequence[torch.Tensor] = ()) -> None:
        super().__init__()
        self._results = list(results)

    def wait(self, timeout: timedelta | None = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def exception(self) -> None:
        return None

    def synchronize(self) -> None:
        return None

    def result(self) -> list[torch.Tensor]:
        return self._results

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
        future.set_result(self._results)
        return future


DONE = DoneWork()


class _Work(Protocol):
    """What `CallWork` needs of a `nvcoll.Work`."""

    def wait(self, timeout: float | None = None) -> object: ...
    def done(self) -> bool: ...
    def exception(self) -> BaseException | None: ...
    def _when_done(self, ring: Callable[[], object]) -> None: ...


class CallWork(dist.Work):
    """The work of a call in flight.

    Args:
        work: the work of nvcoll.
        results: the tensors that the future returns.
        finish: what is left to do when the call is over.
        in_flight: the works of a group. This one is among them until the program has seen that it is over.
    """

    def __init__(
        self,
        work: _Work,
        results: Sequence[torch.Tensor],
        finish: Finish | None = None,
        in_flight: set[CallWork] | None = None,
    ) -> None:
        super().__init__()
        self._work = work
        self._results = list(results)
        self._finish = finish
        self._finishing = threading.Lock()
        self._future: _Future | None = None
        self._in_flight = in_flight
        if in_flight is not None:
            forget_ended(in_flight)
            in_flight.add(self)
        self._is_inference = torch.is_inference_mode_enabled()
        self._event: torch.futures.Future[object] | None = None
        if finish is not None:
            work._when_done(self._end_quietly)

    def wait(self, timeout: timedelta | None = None) -> bool:
        seconds = timeout.total_seconds() if timeout is not None else 0.0
        try:
            self._work.wait(seconds if seconds > 0 else None)
        except nvcoll.Error as error:
            raise torch_error(error) from error
        self._forget()
        self._end()
        if self._event is not None:
            self._event.wait()
        return True

    def is_completed(self) -> bool:
        if not self._work.done():
            return False
        self._end_quietly()
        return True

    def writes(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Says whether the call writes to the memory of tensors."""
        written = {x.untyped_storage().data_ptr() for x in self._results}
        return any(x.untyped_storage().data_ptr() in written for x in tensors)

    def is_success(self) -> bool:
        return self.is_completed() and self._work.exception() is None

    def exception(self) -> BaseException | None:
        error = self._work.exception() if self._work.done() else None
        return torch_error(error) if isinstance(error, nvcoll.Error) else error

    def synchronize(self) -> None:
        self.wait()

    def result(self) -> list[torch.Tensor]:
        return self._results

    def _source_rank(self) -> int:
        message: Any = self._work.wait()
        return int(message.source)

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        if self._future is None:
            self._future = future = _Future()
            self._work._when_done(lambda: later(self._end_future, future))
        return self._future

    def _end_future(self, future: _Future) -> None:
        error = self.exception()
        try:
            if error is None:
                self._end()
        except Exception as found:
            error = found
        if error is None:
            future.set_result(self._results)
        else:
            future.fail(error, self._results)
        self._forget()

    def end_event(self, event: torch.futures.Future[object], is_over: torch.futures.Future[None]) -> None:
        """Ends an event of the profiler when the call is over. `wait` returns after the event has ended."""
        self._event = event
        self._work._when_done(lambda: later(is_over.set_result, None))

    def _forget(self) -> None:
        if self._in_flight is not None:
            self._in_flight.discard(self)

    def _end(self) -> None:
        """Does what is left to do, once."""
        with self._finishing, torch.inference_mode(self._is_inference):
            if self._finish is not None:
                self._finish()
                self._finish = None

    def _end_quietly(self) -> None:
        """Does what is left to do if the call has not failed."""
        if self._work.exception() is None:
            self._end()


def forget_ended(in_flight: set[CallWork]) -> None:
    """Removes the works of calls that are over."""
    for one in list(in_flight):  # other threads discard theirs meanwhile
        if one._work.done():
            in_flight.discard(one)


class Together:
    """Several works as one, for `CallWork`.

    Args:
        works: the works, in the order of issue.
    """

    def __init__(self, works: Sequence[CallWork]) -> None:
        self._works = works

    def wait(self, timeout: float | None = None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        for one in self._works:
            left = None if deadline is None else timedelta(seconds=max(deadline - time.monotonic(), 1e-6))
            one.wait(left)

    def done(self) -> bool:
        return all([one.is_completed() for one in self._works])

    def exception(self) -> BaseException | None:
        return next(filter(None, (one.exception() for one in self._works)), None)

    def _when_done(self, ring: Callable[[], object]) -> None:
        later(self._ring, ring)

    def _ring(self, ring: Callable[[], object]) -> None:
        with suppress(Exception):  # `exception` has it
            self.wait()
        ring()


class _Future(torch.futures.Future[object]):
    """The future of a call in flight, or of a callback of it."""

    def then(self, callback: Callable[..., object]) -> _Future:
        self._await()
        following = _Future()
        try:
            following.set_result(callback(self))
        except Exception as error:
            if private.is_in_backward():
                raise
            following.set_exception(error)
        return following

    def add_done_callback(self, callback: Callable[..., None]) -> None:
        self._await()
        super().add_done_callback(callback)

    def set_exception(self, error: BaseException) -> None:
        self.fail(error, ())

    def fail(self, error: BaseException, results: Sequence[torch.Tensor]) -> None:
        """Ends the future with an error. C++, which does not see torch's exceptions of futures, reads `_Failed`."""

        def raise_error(_failed: object) -> None:
            raise error

        private.set_unwrap_function(self, raise_error)
        self.set_result(_Failed(error, results))

    def _await(self) -> None:
        with suppress(Exception):  # the callback finds the error
            self.wait()


class _Failed:
    """The result of a future whose call has failed, for C++, which looks for the tensors in it.

    DDP looks for them at the end of a backward pass. It finds them, and the pass ends with a callback that raises the
    error. Elsewhere the error is raised here, and C++ makes a RuntimeError of it.

    Args:
        error: the error of the call.
        results: the tensors that the call would have written.
    """

    def __init__(self, error: BaseException, results: Sequence[torch.Tensor]) -> None:
        self._error, self._results = error, results

    def __reduce__(self) -> tuple[object, ...]:
        if not private.is_in_backward() or not self._results:
            raise self._error
        private.at_end_of_backward(self._raise)
        return list, (self._results,)

    def _raise(self) -> None:
        raise self._error


private.leave_untraced(CallWork)
private.leave_untraced(DoneWork)
private.leave_untraced(_Future)


def later(function: Callable[..., object], *arguments: object) -> None:
    """Runs a function on a separate thread."""
    global _threads
    if _threads is None:
        _threads = ThreadPoolExecutor(64, "nvcoll-callbacks")  # chosen: more than wait for each other
    _threads.submit(function, *arguments)


_threads: ThreadPoolExecutor | None = None


def _forget_threads() -> None:
    """Forgets the threads, which the child of a fork does not have."""
    global _threads
    _threads = None


os.register_at_fork(after_in_child=_forget_threads)
