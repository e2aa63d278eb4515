"""``init`` and ``finalize``: this process becomes one rank of a job, and leaves it.

A process is in one job at a time. It leaves when it ends, if not before: as a rank that returned, or, after an uncaught
exception or with another exit status than 0, as one that failed. Peers learn of both. A child that was forked off is no
rank.
"""

from __future__ import annotations

import atexit
import os
import sys
from dataclasses import dataclass

from nvcoll import _nvcoll
from nvcoll._nvcoll import Busy, Communicator, InvalidArgument
from nvcoll.cost.steps import MarkedCounts
from nvcoll.ranks.job import JobSettings, settings
from nvcoll.ranks.rank_counts import tell_at_end

JOIN_TIMEOUT_S = 300.0
"""How long a rank waits for the others to join. Chosen: jobs of a busy machine start within minutes."""


@dataclass(frozen=True)
class _Membership:
    settings: JobSettings
    job: _nvcoll.Job
    counts: MarkedCounts
    process: int


_current: _Membership | None = None


def init(
    rank: int | None = None,
    world_size: int | None = None,
    job: str | None = None,
    *,
    timeout: float | None = None,
    join_timeout: float | None = JOIN_TIMEOUT_S,
) -> Communicator:
    """Makes this process one rank of a job on this machine, and returns its communicator.

    All ranks call it. ``nvcoll run -n``, torchrun, mpirun, srun and ``nvcoll.spawn`` tell each process its place, and
    then no argument is needed. Without a launcher and without arguments the process is the only rank of a job.

    Args:
        rank: this process, from 0. Default: what the launcher says.
        world_size: the number of processes. Default: what the launcher says.
        job: a name, the same on all ranks and of no other job of this user. Default: what the launcher says.
        timeout: seconds that each collective may take; default for calls that do not say. None: no limit.
        join_timeout: seconds until all ranks must have called. None: no limit.

    Returns:
        The communicator of all ranks, as ``Node.run`` passes it to ranks that are threads. Arrays are those of this
        process.

    Raises:
        InvalidArgument: the place of this process is unknown or contradictory, ranks are on several hosts, two
            processes have one rank, or this process is in a job; the message says what to pass.
        Timeout: ranks are missing; the message names them.
        Closed: another rank ended during the join.
        Aborted: another rank has no memory or descriptors for what ranks share.
        MemoryError: this one has no memory for it.
        OSError: this one has no descriptors for it.

    Example:
        >>> comm = nvcoll.init()
        >>> comm.all_reduce(np.ones(3))
        array([1., 1., 1.])
        >>> nvcoll.finalize()
    """
    global _current
    if _current is not None and _current.process == os.getpid():
        place = _current.settings
        raise InvalidArgument(
            f"this process is rank {place.rank} of job {place.job} already: call nvcoll.finalize() before it joins "
            "another"
        )
    place = settings(rank, world_size, job)
    joined = _nvcoll.Job(place.rank, place.world_size, place.job, place.token, join_timeout, timeout)
    counts = MarkedCounts(joined.call_counts)
    _current = _Membership(place, joined, counts, os.getpid())
    tell_at_end(counts)
    return joined.communicator(timeout)


def current(timeout: float | None = None) -> Communicator | None:
    """Returns a communicator of all ranks of the job that this process is in; None if it is in none.

    Args:
        timeout: seconds that each collective may take; default for calls that do not say.
    """
    if _current is None or _current.process != os.getpid():
        return None
    return _current.job.communicator(timeout)


def step() -> None:
    """Marks the end of a step of training, for tables that show calls per step. Without a job it does nothing.

    Optimizers of torch mark their steps themselves.
    """
    if _current is not None:
        _current.counts.mark()


def counts() -> MarkedCounts | None:
    """Returns the counts of this process's calls; None if it is in no job."""
    return None if _current is None else _current.counts


def finalize() -> None:
    """Leaves the job. The communicators of this process make no call afterwards; ``init`` may join another job.

    A peer that makes one more call with this rank gets :class:`Mismatch`. Without a job it does nothing.

    Raises:
        Busy: another thread is in a call.
    """
    global _current
    membership, _current = _current, None
    if membership is not None and membership.process == os.getpid():
        try:
            membership.job.leave()
        except Busy:
            _current = membership
            raise


def fail() -> None:
    """Leaves the job as a rank whose program has failed: the calls of its peers end with :class:`Aborted`."""
    global _current
    membership, _current = _current, None
    if membership is not None and membership.process == os.getpid():
        membership.job.fail()


def _leave_at_exit() -> None:
    """Tells peers that the program of this rank failed; if no exception says so, the exit status will say it."""
    try:
        if getattr(sys, "last_value", None) is not None:
            fail()
        elif _current is not None and _current.process == os.getpid():
            _current.job.leave_at_exit()
    finally:
        _nvcoll._end_attaching()


atexit.register(_leave_at_exit)
