"""``run_ranks``: runs a program in ranks, with a fault, and returns the outcome of each rank.

The first run starts the nursery (``nvcoll.testing.nursery``): a process that has loaded nvcoll and numpy. The nursery
forks all ranks. So a run takes about 30 ms. The nursery ends with this process.

Limits: it runs one set of ranks at a time. Ranks write directly to the outputs of this process, in no fixed order. They
end without their ``atexit`` functions, unless the program raises ``SystemExit``.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import spawn
from multiprocessing.connection import Connection
from typing import Any

from nvcoll._nvcoll import Error, InvalidArgument
from nvcoll.ranks import job
from nvcoll.ranks.failures import text_of
from nvcoll.testing.faults import Fault
from nvcoll.testing.nursery import REPORT_S, Order, Report
from nvcoll.testing.outcomes import Outcome, Run
from nvcoll.testing.residue import kept

START = (
    "import sys; from multiprocessing.connection import Connection; pipe = Connection(int(sys.argv[1])); "
    "sys.path[:] = pipe.recv(); from nvcoll.testing.nursery import main; main(pipe)"
)
"""The program of a nursery."""


class Ranks:
    """Runs programs in ranks, one run at a time. It keeps a nursery. ``close``, or the end of ``with``, ends it."""

    def __init__(self) -> None:
        self._nursery: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the nursery, and all ranks with it."""
        if self._pipe is not None:
            self._pipe.close()
        if self._nursery is not None:
            kept.pop(self._nursery.pid, None)
            try:
                self._nursery.wait(REPORT_S)
            except subprocess.TimeoutExpired:
                self._nursery.kill()
                self._nursery.wait()
        self._nursery = self._pipe = None

    def run(
        self,
        fn: Callable[..., Any],
        world_size: int,
        *args: Any,
        fault: Fault | None = None,
        timeout: float = 60.0,
        call_timeout: float | None = 10.0,
        threads: bool = False,
    ) -> Run:
        """Runs ``fn(comm, *args)`` in ranks. See :func:`run_ranks`."""
        if fault is not None and not 0 <= fault.rank < world_size:
            raise InvalidArgument(f"{fault} strikes a rank that does not exist: there are {world_size} ranks")
        order = Order(
            program=_pickled(fn, args),
            modules=tuple({one for one in (getattr(fn, "__module__", None),) if one not in (None, "__main__")}),
            world_size=world_size,
            job=job.fresh("testing"),
            threads=threads,
            fault=fault,
            timeout_s=timeout,
            call_timeout_s=call_timeout,
            path=tuple(sys.path),
            folder=os.getcwd(),
            environment=dict(os.environ),
        )
        with self._lock:
            run = self._carry_out(order)
        if fault is not None and run.struck_s is None:
            raise AssertionError(f"{fault} has not struck: {run}")
        return run

    def _carry_out(self, order: Order) -> Run:
        pipe = self._begun()
        try:
            pipe.send(order)
            end = time.monotonic() + order.timeout_s + REPORT_S
            told: dict[str, Any] = {"began": [], "ended": None}
            while "reaped" not in told:
                if not pipe.poll(max(0.0, end - time.monotonic())):
                    raise Error(f"the nursery has not answered {order.timeout_s + REPORT_S:g} s after the run began")
                what, content = pipe.recv()
                told[what] = content
        except BaseException as error:
            self.close()  # its later answers would belong to this run
            if isinstance(error, EOFError | OSError):
                raise Error(f"the nursery has ended ({text_of(error)})") from error
            raise
        statuses, left, struck = told["reaped"]
        ended = told["ended"] or [(Report(), {"status": statuses.get(process)}) for process in told["began"]]
        return Run([_outcome(rank, *end) for rank, end in enumerate(ended)], struck, left)

    def _begun(self) -> Connection:
        """Returns the connection with the nursery. Starts a nursery if there is none."""
        if self._pipe is None:
            ours, theirs = socket.socketpair()
            with ours, theirs:
                flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
                command = [sys.executable, *flags, "-c", START, str(theirs.fileno())]
                self._nursery = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
                self._pipe = Connection(ours.detach())
            kept[self._nursery.pid] = self._pipe.fileno()
            self._pipe.send(sys.path)
            # multiprocessing sends the same data to a spawned process. pickle needs them for functions of a script.
            preparation = spawn.get_preparation_data("nvcoll.testing")
            self._pipe.send({**preparation, "authkey": bytes(preparation["authkey"])})
        return self._pipe


def _pickled(fn: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    try:
        return pickle.dumps((fn, args))
    except Exception as error:
        raise InvalidArgument(
            f"`fn` and `args` cannot be pickled ({text_of(error)}): pass a function of a module"
        ) from error


def _outcome(rank: int, report: Report, how: dict[str, Any]) -> Outcome:
    """Returns the outcome of a rank, from its report and from the end of its process."""
    outcome = Outcome(rank, **how, ended_s=report.ended_s, residue=report.residue)
    match report.how:
        case "returned", pickled:
            outcome.value = pickle.loads(pickled)
        case "raised", pickled, text, trace:
            outcome.error, outcome.trace = Error(text), trace
            with contextlib.suppress(Exception):  # its class may exist there and not here
                outcome.error = pickle.loads(pickled) if pickled else outcome.error
    return outcome


_shared = Ranks()
atexit.register(_shared.close)


def run_ranks(
    fn: Callable[..., Any],
    world_size: int,
    *args: Any,
    fault: Fault | None = None,
    timeout: float = 60.0,
    call_timeout: float | None = 10.0,
    threads: bool = False,
) -> Run:
    """Runs ``fn(comm, *args)`` in ranks that are new processes, and returns the outcome of each rank.

    Args:
        fn: the program of a rank, a function of a module. nvcoll pickles the function, its arguments and its result.
        world_size: the number of ranks.
        *args: the other arguments of ``fn``, equal on all ranks.
        fault: the fault of a rank in a call of the communicator that ``fn`` gets.
        timeout: seconds that the ranks may take. nvcoll then kills ranks that have not ended.
        call_timeout: the default timeout of each call, in seconds. None: no limit.
        threads: whether ranks are the threads of one new process. Then a fault can only delay a rank or make it fail.

    Returns:
        The outcome of every rank, by rank. If a rank raises or dies, ``run_ranks`` does not raise.

    Raises:
        AssertionError: the fault did not strike, because the rank did not reach that step.
        InvalidArgument: ``fn`` or ``args`` cannot be pickled.

    Example:
        >>> run = run_ranks(program, 3, fault=Fault.kill(rank=1, call=3, step=2))
        >>> run[1].status
        -9
        >>> run[0].error
        PeerLost('rank 1 ...')
    """
    return _shared.run(fn, world_size, *args, fault=fault, timeout=timeout, call_timeout=call_timeout, threads=threads)
