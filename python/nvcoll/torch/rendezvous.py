"""How the ranks of a process group find each other.

::

    default group    rank 0 tells the others the name of a job by torch's store; each process joins the job
    another group    its members make a communicator of their own; other ranks do nothing
    neither          the default group is not of nvcoll: the group is a job of its own

A process that has called ``nvcoll.init`` before stays in that job.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import nvcoll
from nvcoll import _nvcoll
from nvcoll.ranks import membership
from nvcoll.text.formatting import listed
from nvcoll.torch.reporting import Reporting

SILENCE = timedelta(seconds=30)
"""How long a rank waits for another in torch's store before it says so. Chosen: jobs start within seconds."""

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


def ranks_of(options: Any) -> Ranks:
    """Returns the ranks for which torch makes a group.

    Args:
        options: torch's: store, rank, size, timeout, name, ranks of the default group (none for the default group).

    Raises:
        InvalidArgument: the ranks are on several hosts, or this process is in another job.
        Timeout: ranks are missing.
    """
    global _world
    among = list(options.global_ranks_in_group)
    if not among:
        _world = _join(options)
        reporting = Reporting(options.store, options.group_rank, options.group_size)
        return Ranks(_world, lambda: _leave_world(reporting))
    if _world is not None:
        return Ranks(_world.subset(among))
    seconds = options.timeout.total_seconds()
    job = _nvcoll.Job(options.group_rank, options.group_size, _job_of(options), None, seconds, seconds)
    return Ranks(job.communicator(seconds), job.leave)


def _leave_world(reporting: Reporting) -> None:
    global _world
    _world = None
    reporting.end()
    membership.finalize()


def _join(options: Any) -> nvcoll.Communicator:
    """Joins the job of all ranks, unless this process is in one already."""
    rank, size, seconds = options.group_rank, options.group_size, options.timeout.total_seconds()
    current = membership.current(seconds)
    if current is None:
        return nvcoll.init(rank, size, _job_of(options), timeout=seconds, join_timeout=seconds)
    if (current.rank, current.world_size) != (rank, size):
        raise nvcoll.InvalidArgument(
            f"this process is rank {current.rank} of {current.world_size} in a job of nvcoll, and torch asks for rank "
            f"{rank} of {size}: call nvcoll.finalize() before init_process_group"
        )
    return current


def _job_of(options: Any) -> str:
    """Returns the name of a new job, which rank 0 chooses, if all ranks are on one machine.

    Raises:
        InvalidArgument: they are not.
        Timeout: a rank did not come to the store.
    """
    store, rank, size = options.store, options.group_rank, options.group_size

    def told(key: str, by: int) -> str:
        waits = f"rank {rank} waits for rank {by} in torch's store"
        for left in (min(SILENCE, options.timeout), max(options.timeout - SILENCE, timedelta())):
            try:
                store.wait([key], left)
                break
            except RuntimeError as error:
                if "timeout" not in str(error).lower():
                    raise
                if left == SILENCE < options.timeout:
                    print(f"nvcoll: {waits}, for {SILENCE} now", file=sys.stderr, flush=True)
                    continue
                late = f"{waits}: it did not call init_process_group or new_group within {options.timeout}"
                raise nvcoll.Timeout(f"{late}: see whether it was started ({error})") from error
        return str(store.get(key).decode())

    # A store may outlive a group: that of torchrun serves the next init_process_group too.
    turn = store.add(f"nvcoll/turns/{rank}", 1)
    store.set(f"nvcoll/host/{turn}/{rank}", _host())
    if rank == 0:
        hosts = [told(f"nvcoll/host/{turn}/{peer}", peer) for peer in range(size)]
        store.set(f"nvcoll/job/{turn}", _on_several(hosts) or f"ok torch-{uuid.uuid4().hex[:16]}")
    verdict, _, text = told(f"nvcoll/job/{turn}", 0).partition(" ")
    if verdict != "ok":
        raise nvcoll.InvalidArgument(text)
    return str(text)


def _host() -> str:
    """Returns what identifies this machine for ranks that look for each other: boot, network namespace, name."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    return f"{boot}/{os.stat('/proc/self/ns/net').st_ino} {socket.gethostname()}"


def _on_several(hosts: list[str]) -> str | None:
    """Returns the refusal of ranks on several hosts; None if they are on one."""
    places: dict[str, list[int]] = {}
    for rank, host in enumerate(hosts):
        places.setdefault(host, []).append(rank)
    if len(places) == 1:
        return None
    named = "; ".join(f"{listed(ranks)} on {host.partition(' ')[2]}" for host, ranks in places.items())
    return (
        f"refused found ranks on several hosts, or in containers with separate network namespaces ({named}), expected "
        "one host: start all ranks there"
    )
