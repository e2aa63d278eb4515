"""Node: ranks in this process."""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import queue
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Self, TypeVar, TypeVarTuple

from nvcoll import _nvcoll
from nvcoll._nvcoll import Communicator, Fabric, InvalidArgument, fabric, launch_named
from nvcoll.cost.comparison import LAUNCH
from nvcoll.cost.counts import MarkedCounts
from nvcoll.cost.price import Pricer
from nvcoll.cost.report import CallReport, Machines, clock_of, machines_of, report_of
from nvcoll.ranks.failures import first_failure
from nvcoll.ranks.rank_counts import tell_node_at_end

if TYPE_CHECKING:
    from nvcoll._nvcoll import _Launch as Launch

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

# How long Ctrl-C waits for ranks to come back from their calls before it interrupts their own code too. Chosen: calls
# end within milliseconds. On a busy machine a rank may need longer. Then it is interrupted on its way out, which is
# harmless, because what ranks raise after Ctrl-C is not reported.
_CALL_GRACE_S = 0.05

# How long Ctrl-C waits for ranks to come back from their own code. Chosen: little to somebody who pressed the keys.
_CODE_GRACE_S = 0.5


class Node(_nvcoll.Node):
    """Ranks in this process: a node of virtual GPUs.

    One thread at a time may drive a node. ``all_reduce`` and ``plan`` speak for all ranks at once; ``run`` gives each
    rank a thread of its own.

    Args:
        world_size: the number of ranks, 1 to 1024.
        workers: threads that work for a call, the caller included. Default: the usable CPUs, at most one per rank.
        isa: the instruction set of the kernels, such as ``"avx2"``; ``nvcoll info`` lists the sets of this processor.
            Default: the best. The bits of results do not depend on it.
        tuning: a file that ``nvcoll bench --tune --save`` wrote: the table by which ``auto`` chooses among algorithms
            of the same bits. Default: the file that the environment variable ``NVCOLL_TUNING`` names, else the table
            that is shipped.
        on: a machine, as in :func:`nvcoll.machines`, with at least ``world_size`` GPUs; rank r is GPU r. Then ``clock``
            is the time that the calls so far would have taken there.
        launch: how ``clock`` and ``report`` take calls to be launched, as in ``Fabric.predict``: ``process_per_gpu``,
            ``single_process`` or ``framework``.

    Threads and memory go with the object: ``with`` is optional.

    Raises:
        InvalidArgument: a number out of range, an instruction set that this processor lacks, or a tuning table that
            cannot be used; no machine or launch is called so, or the machine has too few GPUs.

    Example:
        >>> import numpy as np, nvcoll
        >>> with nvcoll.Node(4) as node:
        ...     node.all_reduce(np.ones((4, 3), dtype="f4"))[0]
        array([4., 4., 4.], dtype=float32)
    """

    _on: Pricer | None
    _launch: Launch

    def __new__(
        cls,
        world_size: int,
        *,
        workers: int | None = None,
        isa: str | None = None,
        tuning: str | PathLike[str] | None = None,
        on: str | PathLike[str] | Fabric | None = None,
        launch: Launch = LAUNCH,
    ) -> Self:
        node = super().__new__(cls, world_size, workers=workers, isa=isa, tuning=tuning)
        node._launch = launch_named(launch)
        node._on = None if on is None else Pricer(machines_of(fabric(on), node.world_size)[0], launch)
        tell_node_at_end(node._call_counts)
        return node

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        """Does nothing: threads and memory are freed with the object."""

    @property
    def clock_us(self) -> float:
        """Microseconds that the calls so far would have taken on the machine ``on=``: virtual time beside the real run.

        Every collective that succeeded advances it by its predicted time, whoever called it: the node, a plan, a group,
        the ranks of ``run`` and the groups that they split into. Each rank has a clock of its own, which stands still
        in calls of others and does not wait for them; this is the one that is furthest ahead.

        Raises:
            InvalidArgument: the node was made without ``on=``, or a call has no price there.
        """
        if self._on is None:
            raise InvalidArgument("the node has no clock: make it with on=, as Node(8, on='hgx-h100')")
        return clock_of(MarkedCounts(self._call_counts).counts(), self._on)

    def report(self, on: Machines | None = None, *, launch: Launch | None = None) -> CallReport:
        """Tabulates every collective that was made so far, and what it would cost on each machine.

        Args:
            on: one or several machines, as in :func:`nvcoll.machines`. Each has at least as many GPUs as the node has
                ranks; rank r is GPU r. Default: that of the node.
            launch: how the calls are launched, as in ``Fabric.predict``. Default: as the node says.

        Returns:
            The report; ``print`` shows it as a table.

        Raises:
            InvalidArgument: no machine or launch is called so, a machine has too few GPUs, or there is none.

        Example:
            >>> import numpy as np, nvcoll
            >>> node = nvcoll.Node(8)
            >>> for _ in range(3):
            ...     _ = node.all_reduce(np.ones((8, 1 << 18), dtype="f4"))
            >>> row = node.report(on=["hgx-h100", "pcie4-8-staged"]).calls[0]
            >>> row.collective, row.nbytes, row.times
            ('all_reduce', 1048576, 3)
            >>> row.prices[0].time_us < row.prices[1].time_us
            True
        """
        launch = self._launch if launch is None else launch
        if on is not None:
            pricers = [Pricer(one, launch) for one in machines_of(on, self.world_size)]
        elif self._on is None:
            raise InvalidArgument("`on` names no machine: pass one, as on='hgx-h100'")
        else:
            pricers = [self._on if launch == self._on.launch else Pricer(self._on.fabric, launch)]
        return report_of([MarkedCounts(self._call_counts).counts()], pricers)

    def run(
        self,
        fn: Callable[[Communicator, *Arguments], Result],
        *args: *Arguments,
        timeout: float | None = None,
    ) -> list[Result]:
        """Runs ``fn(comm, *args)`` in one thread per rank and returns the results by rank.

        A run ends when the program of every rank has returned or raised. An error ends the collectives that ranks are
        in, not their own code: after a :class:`Timeout` too, a rank that sleeps or computes is waited for.

        Args:
            fn: the program of one rank, a plain function; ``comm`` is its :class:`Communicator`. It may use threads:
                ``comm.split`` gives each of them a communicator of its own.
            *args: passed to every rank.
            timeout: seconds that each collective may take; default for calls that do not say. It limits collectives,
                not the run.

        Raises:
            BaseException: the first exception of a rank, with a note that names the rank, and notes for what others
                raised. The calls of other ranks end with :class:`Aborted`, which names it, in every communicator that
                it is in.
            Mismatch: ranks made different calls, or one returned while others made one more call.
            Timeout: a collective took longer than it may; the message says which ranks have not entered it.
            InvalidArgument: ``fn`` is an ``async def``.
            Busy: the node is in use: it has one call or one run at a time, so a rank's program calls ``comm``.
            KeyboardInterrupt: Ctrl-C ends the calls of all ranks, and raises KeyboardInterrupt in their programs. A
                rank that does not come back within a second, because it is in foreign code, is left alone: it is
                interrupted when it returns to Python. The node is usable afterwards.
        """
        if inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn):
            raise InvalidArgument("`fn` is an async function: pass a plain one, every rank has a thread of its own")
        outcomes: dict[int, Result] = {}
        failures: list[tuple[int, BaseException]] = []
        done: queue.SimpleQueue[int] = queue.SimpleQueue()

        def rank_main(rank: int) -> None:
            comm = comms[rank]
            try:
                outcomes[rank] = fn(comm, *args)
                team.retire(comm)
            except BaseException as error:
                failures.append((rank, error))
                team.fail(comm)

        def thread_main(rank: int) -> None:
            try:
                with contextlib.suppress(KeyboardInterrupt):  # one that came after the program of the rank was left
                    rank_main(rank)
            finally:
                done.put(rank)

        thread_of = partial(threading.Thread, target=thread_main, daemon=True)
        threads = [thread_of(args=(rank,), name=f"nvcoll-rank-{rank}") for rank in range(self.world_size)]
        comms: list[Communicator] = []
        # Last: from here on the node is taken, and an exception, such as Ctrl-C, before the `try` would leave it so.
        team = self._team()
        try:
            comms += [team.communicator(rank, timeout) for rank in range(self.world_size)]
            for thread in threads:
                thread.start()
            # Not by joining: CPython 3.11 takes a thread for ended if Ctrl-C comes while it is joined (bpo-45274).
            for _ in threads:
                done.get()
            for thread in threads:
                thread.join()
        except BaseException as error:
            team.interrupt()
            for rank in _bring_back(threads):
                error.add_note(f"rank {rank} is still in foreign code: it is interrupted when it returns to Python")
            raise
        finally:
            team.end()
        if failures:
            try:
                raise first_failure(failures)
            finally:
                failures.clear()  # the exception's frames hold the list
        return [outcomes[rank] for rank in range(self.world_size)]


def _bring_back(threads: Sequence[threading.Thread]) -> list[int]:
    """Waits for ranks to return from their calls, then interrupts their programs; returns the ranks that do not end."""
    left = _wait_for(threads, range(len(threads)), _CALL_GRACE_S)
    for rank in left:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(threads[rank].ident or 0), ctypes.py_object(KeyboardInterrupt)
        )
    return _wait_for(threads, left, _CODE_GRACE_S)


def _wait_for(threads: Sequence[threading.Thread], ranks: Sequence[int], grace_s: float) -> list[int]:
    """Waits some time for the threads of some ranks to end; returns the ranks whose threads did not."""
    end = time.monotonic() + grace_s
    for rank in ranks:
        if threads[rank].is_alive():
            threads[rank].join(max(0.0, end - time.monotonic()))
    return [rank for rank in ranks if threads[rank].is_alive()]
