"""``nvcoll.spawn``: runs a function in processes that are ranks, from a test or a notebook.

Each rank is a new Python process (multiprocessing's ``spawn``; never a fork, which does not copy threads). It learns
its place from the variables of ``nvcoll.ranks.job``, joins, calls the function and sends the result back
(nvcoll.ranks.spawned)::

    this process                                rank
    pickle the function and its arguments  ──▶  unpickle them
    wait for any rank                      ◀──  began
                                           ◀──  joined       after nvcoll.init()
                                           ◀──  returned or raised, with the result or the exception
    wait for the end of its process        ◀──  end

A rank that ends without a result has died, which is a failure too. After the first failure the other ranks have a
moment to tell what happened to them, and are killed then. A timeout, Ctrl-C and errors of this process kill all ranks
at once.

Each rank has a session of its own: Ctrl-C in a terminal interrupts this process, which ends the ranks and what they
have started. A rank is bound to this process and ends with it (nvcoll.ranks.bound).

What it does not do: ranks write to the outputs of this process, as they come and without their rank, and read nothing.
Python's ``multiprocessing`` keeps one helper, its resource tracker, from the first call to the end of this process.
"""

from __future__ import annotations

import importlib
import inspect
import math
import os
import pickle
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from nvcoll._nvcoll import MAX_RUNNING_RANKS, Error, InvalidArgument, Timeout
from nvcoll.ranks import job, spawned
from nvcoll.ranks.failures import ending, first_failure, listed, text_of
from nvcoll.ranks.spawned import PICKLED

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnContext

Result = TypeVar("Result")

GRACE_S = 1.0
"""How long ranks have to tell what happened to them after the first failure. Chosen: calls end within milliseconds."""

NOT_YET = {
    "started": "not started",
    "began": "not joined",
    "joined": "not returned",
    "returned": "returned, but its process has not ended",
    "raised": "raised an exception, but its process has not ended",
}
"""What is said of a rank for which time has run out, by the last thing that it told."""


def spawn(
    fn: Callable[..., Result], nprocs: int, args: Sequence[Any] = (), *, timeout: float | None = None
) -> list[Result]:
    """Runs ``fn(comm, *args)`` in new processes, each of them a rank, and returns the results by rank.

    The processes import the module of ``fn``. In a script, the call stands below ``if __name__ == "__main__":``. A
    function of a notebook reaches them only if the package ``cloudpickle`` is installed; else write it to a module.

    Args:
        fn: the program of one rank, a plain function; ``comm`` is its :class:`Communicator`.
        nprocs: the number of ranks, 1 to 1024.
        args: passed to every rank. They are pickled, as are the results.
        timeout: seconds until all ranks must have ended. Default: no limit.

    Returns:
        The results by rank.

    Raises:
        BaseException: the first exception of a rank, with notes that name the rank, show its traceback, and say what
            others raised.
        Error: a rank has ended without a result; the message says which and how, as ``was killed by signal 9``.
        Timeout: ranks have not ended in time; the message says which.
        InvalidArgument: ``fn``, ``args`` or a result cannot be pickled, ``fn`` is an ``async def``, or ``nprocs`` is
            out of range.
        KeyboardInterrupt: Ctrl-C. As after any other error, no rank runs any more.
    """
    if inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn):
        raise InvalidArgument("`fn` is an async function: pass a plain one, every rank has a process of its own")
    if not 1 <= nprocs <= MAX_RUNNING_RANKS:
        raise InvalidArgument(f"`nprocs` is {nprocs}: pass 1 to {MAX_RUNNING_RANKS}")
    if not hasattr(os, "pidfd_open"):
        raise InvalidArgument("spawn starts processes, which needs Linux here: use Node.run, whose ranks are threads")
    program = _program(fn, args)
    import multiprocessing  # here, because it would add a tenth to the time that importing nvcoll takes

    context = multiprocessing.get_context("spawn")
    name, token = job.fresh("spawn")
    ranks = [_Rank(number) for number in range(nprocs)]
    try:
        for rank in ranks:
            rank.start(context, program, job.environment_of(rank.number, nprocs, name, token))
        failures = _failures(ranks, timeout)
        if failures:
            raise _first(failures, ranks)
        return [rank.result for rank in ranks]
    except BaseException:
        for rank in ranks:
            rank.kill()
        raise
    finally:
        for rank in ranks:
            rank.close()


class _Rank:
    """A rank and its process, as this process sees it.

    Attributes:
        number: the rank.
        pipe: through which it tells things.
        ended: a descriptor that is readable when its process has ended.
        has_ended: its process has ended.
        told: the last thing that it told.
        result: what its function returned.
        failure: what its function raised, or how its process ended.
        trace: the traceback of what its function raised.
    """

    pipe: Connection
    ended: int

    def __init__(self, number: int) -> None:
        self.number = number
        self.has_ended = False
        self.told = "started"
        self.result: Any = None
        self.failure: BaseException | None = None
        self.trace = ""
        self._process: Any = None

    def start(self, context: SpawnContext, program: bytes, place: dict[str, str]) -> None:
        """Starts the process."""
        self.pipe, theirs = context.Pipe(duplex=False)
        with theirs:
            arguments = (theirs, program, place, os.getpid())
            self._process = context.Process(target=spawned.main, args=arguments, name=f"nvcoll-rank-{self.number}")
            self._process.start()
        self.ended = os.pidfd_open(self._process.pid)

    def listen(self) -> bool:
        """Takes what the rank tells; says whether it can tell more."""
        try:
            self.told, *rest = pickle.loads(self.pipe.recv_bytes())
        except (EOFError, OSError):
            return False
        if self.told == "returned":
            self._take_result(*rest)
        elif self.told == "raised":
            self._take_exception(*rest)
        return True

    def note_end(self) -> None:
        """Takes what is left in the pipe, and notes the end of the process."""
        while self.pipe.poll() and self.listen():
            pass
        self.has_ended = True
        found = os.waitid(os.P_PIDFD, self.ended, os.WEXITED | os.WNOWAIT)
        assert found is not None
        status = found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
        if self.failure is None and (status != 0 or self.told != "returned"):
            self.failure = Error(f"rank {self.number} {ending(status)}{self._when()}")

    def kill(self) -> None:
        """Kills the process and what it has started."""
        if not self._is_started():
            return
        with suppress(ChildProcessError):
            # Raises if the process was collected: its number may be that of a stranger.
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()  # it has no session of its own at first

    def close(self) -> None:
        """Collects the process, and lets go of descriptors."""
        if hasattr(self, "ended"):
            os.close(self.ended)
        if hasattr(self, "pipe"):
            self.pipe.close()
        if self._is_started():
            self._process.join()
            self._process.close()

    def _is_started(self) -> bool:
        return self._process is not None and self._process.pid is not None

    def _when(self) -> str:
        match self.told:
            case "started":
                return (
                    " before it began, and its output says why: a script calls nvcoll.spawn below "
                    '`if __name__ == "__main__":`'
                )
            case "began":
                return " before it had joined"
            case "joined":
                return " before it returned"
            case _:
                return " after it had returned"

    def _take_result(self, pickled: bytes) -> None:
        try:
            self.result = pickle.loads(pickled)
        except Exception as error:
            self.failure = InvalidArgument(
                f"what `fn` returned on rank {self.number} cannot be unpickled here ({text_of(error)}): {PICKLED}"
            )

    def _take_exception(self, pickled: bytes | None, text: str, trace: str) -> None:
        self.failure, self.trace = Error(text), trace
        if pickled is not None:
            with suppress(Exception):  # its class may exist there and not here
                self.failure = pickle.loads(pickled)


def _failures(ranks: Iterable[_Rank], timeout: float | None) -> list[tuple[int, BaseException]]:
    """Waits for the ends of ranks, after the first failure for a moment only; returns the failures as they came.

    Raises:
        Timeout: there is none, and ranks have not ended in time.
    """
    from multiprocessing.connection import wait

    end = math.inf if timeout is None else time.monotonic() + timeout
    failures: list[tuple[int, BaseException]] = []
    waited = {descriptor: rank for rank in ranks for descriptor in (rank.pipe.fileno(), rank.ended)}
    while waited:
        ready = wait(list(waited), None if end == math.inf else max(0.0, end - time.monotonic()))
        if not ready:
            if not failures:
                raise Timeout(_late(ranks, timeout))
            break
        for descriptor in (one for one in ready if one in waited):
            rank = waited[descriptor]
            had_failed = rank.failure is not None
            if descriptor == rank.ended:
                rank.note_end()
                del waited[descriptor]
                waited.pop(rank.pipe.fileno(), None)
            elif not rank.listen():
                del waited[descriptor]
            if rank.failure is not None and not had_failed:
                failures.append((rank.number, rank.failure))
                end = min(end, time.monotonic() + GRACE_S)
    return failures


def _first(failures: Sequence[tuple[int, BaseException]], ranks: Sequence[_Rank]) -> BaseException:
    """Returns the first failure, with its traceback and with notes about the other ranks."""
    error = first_failure(failures)
    if left := [rank.number for rank in ranks if not rank.has_ended]:
        error.add_note(f"{listed(left)} had not ended {GRACE_S:g} s later, and had to be killed")
    for rank in ranks:
        if rank.failure is error and rank.trace:
            error.add_note(f"traceback of rank {rank.number}:\n{rank.trace.rstrip()}")
    return error


def _late(ranks: Iterable[_Rank], timeout: float | None) -> str:
    """Returns the message of a timeout."""
    numbers = {told: [rank.number for rank in ranks if not rank.has_ended and rank.told == told] for told in NOT_YET}
    late = "; ".join(f"{NOT_YET[told]}: {listed(numbers[told])}" for told in NOT_YET if numbers[told])
    return f"`timeout` is {timeout:g} s, and not all ranks have ended ({late}): pass a longer one"


def _program(fn: Callable[..., Any], args: Sequence[Any]) -> bytes:
    """Pickles function and arguments.

    Raises:
        InvalidArgument: they cannot be pickled.
    """
    dump: Callable[[Any], bytes] = pickle.dumps
    if getattr(fn, "__module__", None) == "__main__" and not hasattr(sys.modules["__main__"], "__file__"):
        try:
            dump = importlib.import_module("cloudpickle").dumps
        except ImportError:
            raise InvalidArgument(
                "`fn` is a function of a notebook or a prompt, which other processes cannot import: write it to a "
                "module and import it from there, or install cloudpickle"
            ) from None
    try:
        return dump((fn, tuple(args)))
    except Exception as error:
        raise InvalidArgument(
            f"`fn` and `args` cannot be pickled ({text_of(error)}): pass a function of a module"
        ) from error
