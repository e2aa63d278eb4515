"""``nvcoll.spawn``: runs a function in processes that are ranks, from a test or a notebook.

The supervisor (nvcoll.ranks.processes) starts a new Python process for each rank; never a fork, which does not copy
threads. A rank learns its place from the variables of ``nvcoll.ranks.job``, joins, calls the function and sends the
result back (nvcoll.ranks.spawned)::

    this process                                rank
    pickle the function and its arguments  ──▶  unpickle them
    wait for any rank                      ◀──  began
                                           ◀──  joined       after nvcoll.init()
                                           ◀──  returned or raised, with the result or the exception
    wait for the end of its process        ◀──  end

A rank that ends without a result has died, which is a failure too. After the first failure the other ranks have a
moment to tell what happened to them, and are killed then. A timeout, Ctrl-C and errors of this process kill all ranks
at once, with what they have started.

What it does not do: ranks write to the outputs of this process, as they come and without their rank, and read nothing.
"""

from __future__ import annotations

import importlib
import inspect
import pickle
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from nvcoll._nvcoll import MAX_RUNNING_RANKS, Error, InvalidArgument, Timeout
from nvcoll.ranks import job
from nvcoll.ranks.failures import first_failure, text_of
from nvcoll.ranks.spawned import PICKLED
from nvcoll.text.formatting import listed

if TYPE_CHECKING:
    from nvcoll.ranks.processes import Process, Supervisor

Result = TypeVar("Result")

NOT_YET = {
    "started": "not started",
    "began": "not joined",
    "joined": "not returned",
    "returned": "returned, but its process has not ended",
    "raised": "raised an exception, but its process has not ended",
}
"""The words about a rank whose time has run out, by its last message."""


def spawn(
    fn: Callable[..., Result], nprocs: int, args: Sequence[object] = (), *, timeout: float | None = None
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
        BaseException: the first exception of a rank, with notes that name the rank, show its traceback, and list what
            other ranks raised.
        Error: a rank has ended without a result; the message names it and its end, as ``was killed by signal 9``.
        Timeout: ranks have not ended in time; the message names them.
        InvalidArgument: ``fn``, ``args`` or a result cannot be pickled, ``fn`` is an ``async def``, or ``nprocs`` is
            out of range.
        KeyboardInterrupt: Ctrl-C. As after any other error, no rank runs any more.

    Example:
        >>> import nvcoll
        >>> nvcoll.spawn(nvcoll.Communicator.barrier, 2)  # each rank calls barrier(comm)
        [None, None]
    """
    if inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn):
        raise InvalidArgument("`fn` is an async function: pass a plain one, every rank has a process of its own")
    if not 1 <= nprocs <= MAX_RUNNING_RANKS:
        raise InvalidArgument(f"`nprocs` is {nprocs}: pass 1 to {MAX_RUNNING_RANKS}")
    name, token = job.fresh("spawn")
    program = pickled(fn, args)
    from nvcoll.ranks.processes import Supervisor  # here: it imports multiprocessing, which takes long

    ranks = [_Rank(number) for number in range(nprocs)]
    with Supervisor(timeout) as processes:
        started = [
            processes.start_python(
                rank.number, "nvcoll.ranks.spawned", job.environment_of(rank.number, nprocs, name, token)
            )
            for rank in ranks
        ]
        for process in started:
            process.send(program)
        failures = _failures(ranks, processes, timeout)
        if failures:
            raise _first(failures, ranks, processes)
    return [rank.result for rank in ranks]


class _Rank:
    """A rank, as this process sees it.

    Attributes:
        number: the rank.
        progress: its last message.
        result: what its function returned.
        failure: what its function raised, or how its process ended.
        trace: the traceback of what its function raised.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.progress = "started"
        self.result: Any = None
        self.failure: BaseException | None = None
        self.trace = ""

    def take(self, progress: str, *rest: Any) -> None:
        """Takes what the rank tells."""
        self.progress = progress
        if progress == "returned":
            self._take_result(*rest)
        elif progress == "raised":
            self.failure, self.trace = unpickled(*rest), rest[-1]

    def note_end(self, process: Process) -> None:
        """Notes the end of the process."""
        if self.failure is None and (process.status != 0 or self.progress != "returned"):
            self.failure = Error(f"rank {self.number} {process.how()}{self._when()}")

    def _when(self) -> str:
        match self.progress:
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

    def _take_result(self, value: bytes) -> None:
        try:
            self.result = pickle.loads(value)
        except Exception as error:
            self.failure = InvalidArgument(
                f"what `fn` returned on rank {self.number} cannot be unpickled here ({text_of(error)}): {PICKLED}"
            )


def unpickled(error: bytes | None, text: str, _trace: str) -> BaseException:
    """Returns the exception of a rank from its report; one with the same text, if it cannot be unpickled here."""
    if error is not None:
        with suppress(Exception):  # its class may exist there and not here
            found = pickle.loads(error)
            assert isinstance(found, BaseException)
            return found
    return Error(text)


def _failures(ranks: Sequence[_Rank], processes: Supervisor, timeout: float | None) -> list[tuple[int, BaseException]]:
    """Waits for the ends of ranks, after the first failure for a moment only; returns the failures as they came.

    Raises:
        Timeout: there is none, and ranks have not ended in time.
    """
    failures: list[tuple[int, BaseException]] = []
    while processes.running():
        events = processes.wait(processes.deadline)
        if not events:
            if not failures:
                raise Timeout(_late(ranks, processes, timeout))
            break
        for process, message in events:
            rank = ranks[process.rank]
            had_failed = rank.failure is not None
            if message is None:
                rank.note_end(process)
            else:
                rank.take(*message)
            if rank.failure is not None and not had_failed:
                failures.append((rank.number, rank.failure))
                processes.begin_grace()
    return failures


def _first(
    failures: Sequence[tuple[int, BaseException]], ranks: Sequence[_Rank], processes: Supervisor
) -> BaseException:
    """Returns the first failure, with its traceback and with notes about the other ranks."""
    from nvcoll.ranks.processes import GRACE_S

    error = first_failure(failures)
    if left := [process.rank for process in processes.running()]:
        error.add_note(f"{listed(left)} had not ended {GRACE_S:g} s later, and had to be killed")
    for rank in ranks:
        if rank.failure is error and rank.trace:
            error.add_note(f"traceback of rank {rank.number}:\n{rank.trace.rstrip()}")
    return error


def _late(ranks: Sequence[_Rank], processes: Supervisor, timeout: float | None) -> str:
    """Returns the message of a timeout."""
    left = [process.rank for process in processes.running()]
    numbers = {one: [rank for rank in left if ranks[rank].progress == one] for one in NOT_YET}
    late = "; ".join(f"{words}: {listed(numbers[one])}" for one, words in NOT_YET.items() if numbers[one])
    return f"`timeout` is {timeout:g} s, and not all ranks have ended ({late}): pass a longer one"


def pickled(fn: Callable[..., object], args: Sequence[object]) -> bytes:
    """Pickles function and arguments.

    Raises:
        InvalidArgument: they cannot be pickled.
    """
    dump: Callable[[object], bytes] = pickle.dumps
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
