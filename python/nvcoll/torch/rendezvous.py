"""How the ranks of a process group find each other.

::

    default group    rank 0 tells the others the name of a job by torch's store; each process joins the job
                     on several hosts, they meet by the same store through gloo, or through MPI
    another group    its members make a communicator of their own; other ranks do nothing
    neither          the default group is not of nvcoll: the group is a job of its own

A process that has called ``nvcoll.init`` before stays in that job.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from torch.distributed import PrefixStore

import nvcoll
from nvcoll import _nvcoll
from nvcoll.hosts.carrier import Carrier
from nvcoll.hosts.gloo import GRAIN_S, Gloo
from nvcoll.hosts.opening import BETWEEN, card, engine
from nvcoll.ranks import membership
from nvcoll.ranks.job import JobSettings
from nvcoll.torch.reporting import Reporting

if TYPE_CHECKING:
    from torch.distributed import Store

    from nvcoll.torch.private import BackendOptions

ORDER = "NVCOLL_ORDER"
"""The variable of the order of additions between hosts: ``rank`` or ``nested``."""

SEVERAL = "several hosts"
"""What rank 0 says instead of the name of a job."""

SILENCE = timedelta(seconds=30)
"""How long a rank waits for another in torch's store before it prints so. Chosen: jobs start within seconds."""

_world: nvcoll.Communicator | None = None
"""The communicator of the default group, if it is of nvcoll."""


@dataclass
class Ranks:
    """The ranks of a process group.

    Attributes:
        comm: their communicator.
        leave: a function that takes this rank out of the group.
        turn: held by the thread that makes a call: torch lets several threads use a group.
        issuing: held while a call is issued, and while several calls are collected that are launched together.
    """

    comm: nvcoll.Communicator
    leave: Callable[[], None] = lambda: None
    turn: threading.Lock = field(default_factory=threading.Lock)
    issuing: threading.Lock = field(default_factory=threading.Lock)


def ranks_of(options: BackendOptions) -> Ranks:
    """Returns the ranks for which torch makes a group.

    Args:
        options: torch's: store, rank, size, timeout, name, ranks of the default group (none for the default group).

    Raises:
        InvalidArgument: this process is in another job, or ranks on several hosts cannot meet.
        Timeout: ranks are missing.
    """
    global _world
    among = list(options.global_ranks_in_group)
    if not among:
        _world = _join(options)
        reporting = Reporting(options.store, options.group_rank, options.group_size, len(_world.hosts))
        return Ranks(_world, lambda: _leave_world(reporting))
    if _world is not None:
        return Ranks(_world.subset(among))
    seconds = options.timeout.total_seconds()
    name = _job_of(options)
    if name is None:
        raise nvcoll.InvalidArgument(
            'ranks are on several hosts, and the default group is not of nvcoll: pass "nvcoll" to init_process_group'
        )
    job = _nvcoll.Job(options.group_rank, options.group_size, name, None, seconds, seconds)
    return Ranks(job.communicator(seconds), job.leave)


def _leave_world(reporting: Reporting) -> None:
    global _world
    _world = None
    reporting.end()
    membership.finalize()


def _join(options: BackendOptions) -> nvcoll.Communicator:
    """Joins the job of all ranks, unless this process is in one already."""
    rank, size, seconds = options.group_rank, options.group_size, options.timeout.total_seconds()
    current = membership.current(seconds)
    if current is None:
        name = _job_of(options)
        if name is None:
            return _across(options)
        return nvcoll.init(rank, size, name, timeout=seconds, join_timeout=seconds)
    if (current.rank, current.world_size) != (rank, size):
        raise nvcoll.InvalidArgument(
            f"this process is rank {current.rank} of {current.world_size} in a job of nvcoll, and torch asks for rank "
            f"{rank} of {size}: call nvcoll.finalize() before init_process_group"
        )
    return current


def _job_of(options: BackendOptions) -> str | None:
    """Returns the name of a new job, which rank 0 chooses; None if ranks are on several hosts.

    Raises:
        Timeout: a rank did not come to the store.
    """
    store, rank, size = options.store, options.group_rank, options.group_size

    def told(key: str, by: int) -> str:
        waits = f"rank {rank} waits for rank {by} in torch's store"
        for left in (min(SILENCE, options.timeout), max(options.timeout - SILENCE, timedelta())):
            end = time.monotonic() + left.total_seconds()
            try:
                store.wait([key], left)
                break
            except RuntimeError as error:
                if time.monotonic() < end - GRAIN_S:  # of the connection: torch has one type for both
                    raise
                if left == SILENCE < options.timeout:
                    print(f"nvcoll: {waits}, for {SILENCE} now", file=sys.stderr, flush=True)
                    continue
                late = f"{waits}: it did not call init_process_group or new_group within {options.timeout}"
                raise nvcoll.Timeout(f"{late}: see whether it was started ({error})") from error
        return str(store.get(key).decode())

    # A store may outlive a group: that of torchrun serves the next init_process_group too.
    turn = store.add(f"nvcoll/turns/{rank}", 1)
    own = card(rank)
    store.set(f"nvcoll/host/{turn}/{rank}", f"{own.host} {own.name}")
    if rank == 0:
        hosts = [told(f"nvcoll/host/{turn}/{peer}", peer) for peer in range(size)]
        store.set(f"nvcoll/job/{turn}", SEVERAL if _on_several(hosts) else f"torch-{uuid.uuid4().hex[:16]}")
    name = told(f"nvcoll/job/{turn}", 0)
    return None if name == SEVERAL else name


def _on_several(hosts: list[str]) -> bool:
    """Says whether ranks are on several hosts."""
    return len({host.partition(" ")[0] for host in hosts}) > 1


def _across(options: BackendOptions) -> nvcoll.Communicator:
    """Joins the job of ranks on several hosts, and returns its communicator.

    ``NVCOLL_ORDER=nested`` adds sums of hosts: fewer bytes between three or more hosts, and bits that depend on them.

    Raises:
        InvalidArgument: the variable has another value, or nothing carries messages between the hosts.
        Timeout: ranks are missing.
    """
    from nvcoll.hosts.communicator import Communicator

    order = os.environ.get(ORDER) or "rank"
    if order not in ("rank", "nested"):
        raise nvcoll.InvalidArgument(f"{ORDER}={order} is no order of additions: set it to rank or nested, or unset it")
    rank, size, seconds = options.group_rank, options.group_size, options.timeout.total_seconds()
    carrier: Carrier
    if os.environ.get(BETWEEN) == "mpi":
        carrier = engine(rank, size, True, "init_process_group", seconds)
    else:
        carrier = Gloo(PrefixStore("nvcoll/hosts", options.store), rank, size, seconds, _master(options.store))
    place = JobSettings(rank, size, "torch")
    comm = membership.init_across(carrier, place, timeout=seconds, join_timeout=seconds)
    if order == "nested" and isinstance(comm, Communicator):
        comm.add_sums_of_hosts()
    return comm


def _master(store: Store) -> str:
    """Returns an address to which other hosts have a route: that of the store, if it has one."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return str(getattr(store, "host", None) or os.environ.get("MASTER_ADDR") or socket.gethostname())
