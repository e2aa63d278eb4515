"""``run_ranks``: runs a program in ranks, with a fault, and returns the outcome of each rank.

The first run starts the fork server (``nvcoll.testing.fork_server``): a process that has loaded nvcoll and numpy. It
forks all ranks. So a run takes about 30 ms. The fork server ends with this process.

Limits: it runs one set of ranks at a time. Ranks write directly to the outputs of this process, in no fixed order. They
end without their ``atexit`` functions, unless the program raises ``SystemExit``.
"""

from __future__ import annotations

import atexit
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable

from nvcoll._nvcoll import Error, InvalidArgument
from nvcoll.ranks import job
from nvcoll.ranks.processes import Supervisor
from nvcoll.ranks.spawning import pickled, unpickled
from nvcoll.testing.faults import Fault
from nvcoll.testing.fork_server import REPORT_S, End, Order
from nvcoll.testing.outcomes import Outcome, Run
from nvcoll.testing.residue import kept


class Ranks:
    """Runs programs in ranks, one run at a time. It keeps a fork server, until ``close`` or the end of ``with``."""

    def __init__(self) -> None:
        self._server: Supervisor | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the fork server, and all ranks with it."""
        if self._server is not None:
            kept.pop(self._server.processes[0].popen.pid, None)
            self._server.close()
        self._server = None

    def run(
        self,
        fn: Callable[..., object],
        world_size: int,
        *args: object,
        fault: Fault | None = None,
        timeout: float = 60.0,
        call_timeout: float | None = 10.0,
    ) -> Run:
        """Runs ``fn(comm, *args)`` in ranks that are new processes, and returns the outcome of each rank.

        Args:
            fn: the program of a rank, a function of a module. nvcoll pickles it, its arguments and its result.
            world_size: the number of ranks.
            *args: the other arguments of ``fn``, equal on all ranks.
            fault: the fault of a rank in a call of the communicator that ``fn`` gets.
            timeout: seconds that the ranks may take. nvcoll then kills ranks that have not ended.
            call_timeout: the default timeout of each call, in seconds. None: no limit.

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
        if fault is not None and not 0 <= fault.rank < world_size:
            raise InvalidArgument(f"{fault} strikes a rank that does not exist: there are {world_size} ranks")
        order = Order(
            program=pickled(fn, args),
            modules=tuple({one for one in (getattr(fn, "__module__", None),) if one not in (None, "__main__")}),
            world_size=world_size,
            job=job.fresh("testing"),
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
        server, patience_s = self._begun(), order.timeout_s + REPORT_S
        try:
            server.processes[0].send(order)
            events = server.wait(time.monotonic() + patience_s)
            if not events:
                raise Error(f"the fork server has not answered {patience_s:g} s after the run began")
            process, answer = events[0]
            if answer is None:
                raise Error(f"the fork server {process.how()}")
        except BaseException:
            self.close()  # its later answers would belong to this run
            raise
        ended, left, struck = answer
        return Run([_outcome(rank, end) for rank, end in enumerate(ended)], struck, left)

    def _begun(self) -> Supervisor:
        """Returns the supervisor of the fork server. Starts a fork server if there is none."""
        if self._server is None:
            self._server = Supervisor()
            process = self._server.start_python(0, "nvcoll.testing.fork_server", {})
            kept[process.popen.pid] = 3  # its pipe, its pidfd and the selector
        return self._server


def _outcome(rank: int, end: End) -> Outcome:
    """Returns the outcome of a rank, from its report and from the end of its process."""
    report = end.report()
    outcome = Outcome(rank, status=end.status, ended_s=report.ended_s, residue=report.residue)
    outcome.is_overdue, outcome.was_stopped = end.is_overdue, end.was_stopped
    match report.how:
        case "returned", value:
            outcome.value = pickle.loads(value)
        case "raised", *raised:
            outcome.error, outcome.trace = unpickled(*raised), raised[-1]
    return outcome


_shared = Ranks()
atexit.register(_shared.close)

run_ranks = _shared.run
