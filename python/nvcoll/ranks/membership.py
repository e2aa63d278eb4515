"""``init`` and ``finalize``: this process becomes one rank of a job, and leaves it.

A process is in one job at a time. It leaves when it ends, if not before: as a rank that returned, or, after an uncaught
exception or with another exit status than 0, as one that failed. Peers learn of both. A child that was forked off is no
rank.

Ranks on several hosts meet through an engine between hosts, and the ranks of each host join each other.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nvcoll import _nvcoll
from nvcoll._nvcoll import Busy, Communicator, InvalidArgument
from nvcoll.cost.counts import MarkedCounts
from nvcoll.hosts.carrier import Carrier
from nvcoll.hosts.opening import engine, open_world
from nvcoll.ranks.job import JobSettings, settings
from nvcoll.ranks.rank_counts import tell_at_end

if TYPE_CHECKING:
    from nvcoll.hosts.communicator import Communicator as Across

JOIN_TIMEOUT_S = 300.0
"""How long a rank waits for the others to join. Chosen: jobs of a busy machine start within minutes."""


@dataclass(frozen=True)
class _Membership:
    """The job that a process is in; on several hosts with its communicator and the engine between hosts."""

    settings: JobSettings
    job: _nvcoll.Job
    counts: MarkedCounts
    process: int
    world: Across | None = None
    carrier: Carrier | None = None


_current: _Membership | None = None


def init(
    rank: int | None = None,
    world_size: int | None = None,
    job: str | None = None,
    *,
    timeout: float | None = None,
    join_timeout: float | None = JOIN_TIMEOUT_S,
) -> Communicator:
    """Makes this process one rank of a job, and returns its communicator.

    All ranks call it. ``nvcoll run -n``, torchrun, mpirun, srun and ``nvcoll.spawn`` give each process its place, and
    then no argument is needed. Without a launcher and without arguments the process is the only rank of a job.
    Ranks may be on several hosts: with torchrun and mpirun, or as processes without a name of their job, which meet at
    ``MASTER_ADDR``.

    Args:
        rank: this process, from 0. Default: from the launcher.
        world_size: the number of processes. Default: from the launcher.
        job: a name, the same on all ranks and of no other job of this user. Default: from the launcher.
        timeout: seconds that each collective may take; default for calls without a timeout. None: no limit.
        join_timeout: seconds until all ranks must have called. None: no limit.

    Returns:
        The communicator of all ranks, as ``Node.run`` passes it to ranks that are threads. Arrays are this process's.

    Raises:
        InvalidArgument: the place of this process is unknown or contradictory, two processes have one rank, nothing
            carries messages between the hosts, or this process is in a job; the message says what to pass.
        Timeout: ranks are missing; the message names them.
        Closed: another rank ended during the join.
        Aborted: another rank has no memory or descriptors for what ranks share.
        MemoryError: this one has no memory for it.
        OSError: this one has no descriptors for it.

    Example:
        >>> import numpy as np, nvcoll
        >>> comm = nvcoll.init()
        >>> comm.all_reduce(np.ones(3))
        array([1., 1., 1.])
        >>> nvcoll.finalize()
    """
    _check_free()
    place = settings(rank, world_size, job)
    if place.several_hosts is None:
        joined = _nvcoll.Job(place.rank, place.world_size, place.job, place.token, join_timeout, timeout)
        _enter(place, joined)
        return joined.communicator(timeout)
    until = None if join_timeout is None else time.monotonic() + join_timeout
    carrier = engine(place.rank, place.world_size, place.has_mpi, place.several_hosts, join_timeout)
    left = None if until is None else max(until - time.monotonic(), 0.0)
    return init_across(carrier, place, timeout=timeout, join_timeout=left)


def init_across(
    carrier: Carrier, place: JobSettings, *, timeout: float | None, join_timeout: float | None
) -> Communicator:
    """Makes this process one rank of a job, whose ranks meet through an engine between hosts.

    Args:
        carrier: the engine; it is closed if all ranks are on one host.
        place: rank and world size.
        timeout: seconds that each collective may take; default for calls that do not say. None: no limit.
        join_timeout: seconds until the ranks of a host must have joined each other. None: no limit.

    Returns:
        The communicator of all ranks.

    Raises:
        Error: see `init` and `nvcoll.hosts.opening.open_world`.
    """
    from nvcoll.hosts.communicator import Communicator as Across
    from nvcoll.hosts.communicator import across

    _check_free()
    joined: list[_nvcoll.Job] = []

    def join(rank: int, size: int, job: str, token: bytes) -> Communicator:
        joined.append(_nvcoll.Job(rank, size, job, token, join_timeout, timeout))
        return joined[0].communicator(timeout)

    try:
        comm = open_world(carrier, join, timeout, across)
    except BaseException as error:
        carrier.close(str(error) or type(error).__name__)
        for job in joined:
            job.fail()
        raise
    _enter(place, joined[0], *((comm, carrier) if isinstance(comm, Across) else ()))
    return comm


def _check_free() -> None:
    """Checks that this process is in no job."""
    if _current is not None and _current.process == os.getpid():
        place = _current.settings
        raise InvalidArgument(
            f"this process is rank {place.rank} of job {place.job} already: call nvcoll.finalize() before it joins "
            "another"
        )


def _enter(place: JobSettings, job: _nvcoll.Job, world: Across | None = None, carrier: Carrier | None = None) -> None:
    global _current
    counts = MarkedCounts(job.call_counts)
    _current = _Membership(place, job, counts, os.getpid(), world, carrier)
    tell_at_end(counts)


def current(timeout: float | None = None) -> Communicator | None:
    """Returns a communicator of all ranks of the job that this process is in; None if it is in none.

    Args:
        timeout: seconds that each collective may take; default for calls that do not say. Ranks on several hosts keep
            that of `init`.
    """
    if _current is None or _current.process != os.getpid():
        return None
    return _current.world or _current.job.communicator(timeout)


def step() -> None:
    """Marks the end of a step of training, for tables that show calls per step. Without a job it does nothing.

    Optimizers of torch mark their steps themselves.

    Example:
        >>> import numpy as np, nvcoll
        >>> comm = nvcoll.init()
        >>> for _ in range(3):
        ...     gradient = comm.all_reduce(np.ones(3))
        ...     nvcoll.step()
        >>> nvcoll.finalize()
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

    Example:
        >>> import nvcoll
        >>> comm = nvcoll.init()
        >>> nvcoll.finalize()
    """
    global _current
    membership, _current = _current, None
    if membership is not None and membership.process == os.getpid():
        try:
            if membership.world is not None:
                membership.world.leave()
            membership.job.leave()
        except Busy:
            _current = membership
            raise


def fail() -> None:
    """Leaves the job as a rank whose program has failed: the calls of its peers end with :class:`Aborted`."""
    global _current
    membership, _current = _current, None
    if membership is not None and membership.process == os.getpid():
        if membership.world is not None and membership.carrier is not None:
            text = f"the program of rank {membership.settings.rank} has failed"
            membership.world.fail(text)
            membership.carrier.close(text)  # another thread may have begun to close it
        membership.job.fail()


def _has_left_world() -> bool:
    """Leaves the ranks of other hosts, if there are any; says whether no call was in flight."""
    try:
        if _current is not None and _current.process == os.getpid() and _current.world is not None:
            _current.world.leave()
    except Busy:
        return False
    return True


def _leave_at_exit() -> None:
    """Tells peers that the program of this rank failed; without an exception, the exit status tells them."""
    has_failed = getattr(sys, "last_value", None) is not None or not _has_left_world()
    try:
        if has_failed:
            fail()
        if (mpi := sys.modules.get("nvcoll.hosts.mpi")) is not None:
            mpi.end(has_failed)  # before the job: the exit runs first what is registered last
        if _current is not None and _current.process == os.getpid():
            _current.job.leave_at_exit()
    finally:
        _nvcoll._end_attaching()


if _nvcoll.HAS_ENGINE:
    atexit.register(_leave_at_exit)
