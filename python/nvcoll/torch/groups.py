"""A process group of torch on a communicator of nvcoll.

::

    init_process_group("nvcoll")   rank 0 tells the others a job by torch's store; the process joins it
    new_group(ranks)               the members make a communicator of their own; other ranks do nothing
    destroy_process_group()        the process leaves the job

If torch's default group is not of nvcoll, a group of nvcoll is a job of its own.

The timeout of a group is that of each of its calls. A call that fails ends all later calls of its group, as with NCCL.
"""

from __future__ import annotations

import os
import socket
import threading
import uuid
import zlib
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

import nvcoll
from nvcoll import _nvcoll, membership
from nvcoll.failures import listed
from nvcoll.torch.backends import Backend
from nvcoll.torch.calls import Calls
from nvcoll.torch.reporting import Reporting
from nvcoll.torch.works import torch_error

CPU = torch.device("cpu")

_world: ProcessGroup | None = None
"""The default group, if it is of nvcoll."""


class ProcessGroup(Calls, dist.ProcessGroup):
    """A process group whose calls nvcoll runs. ``init_process_group("nvcoll")`` and ``new_group`` make it.

    Args:
        comm: the communicator of its ranks.
        store: torch's store for these ranks.
        timeout: of each call.
        job: the job that is this group's own; None if another group has it.
    """

    supports_splitting = True

    def __init__(
        self, comm: nvcoll.Communicator, store: dist.Store, timeout: timedelta, job: _nvcoll.Job | None = None
    ) -> None:
        super().__init__(comm.rank, comm.world_size)
        self._comm = comm
        self._store = store
        self._turn = threading.Lock()
        self._job = job
        self._reporting: Reporting | None = None
        self._splits = 0
        self._name = self._description = ""
        self.set_timeout(timeout)
        if hasattr(comm, "_move_in_background"):
            comm._move_in_background()
        if Backend is not None:
            kind = dist.ProcessGroup.BackendType.CUSTOM
            self._set_default_backend(kind)
            self._register_backend(CPU, kind, Backend(comm, timeout))

    def rank(self) -> int:
        return self._comm.rank

    def size(self) -> int:
        return self._comm.world_size

    def name(self) -> str:
        return "nvcoll"

    def getBackendName(self) -> str:
        return "nvcoll"

    def setGroupName(self, name: str) -> None:
        self._name = name

    def getGroupName(self) -> str:
        return self._name

    def setGroupDesc(self, description: str) -> None:
        self._description = description

    def getGroupDesc(self) -> str:
        return self._description

    def get_group_store(self) -> dist.Store:
        return self._store

    @property
    def _device_types(self) -> list[torch.device]:
        return [CPU]

    def _get_backend(self, device: torch.device | None = None) -> ProcessGroup:
        return self

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout_s = timeout.total_seconds()

    _set_default_timeout = set_timeout

    def split_group(
        self,
        ranks: list[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: Any = None,
    ) -> ProcessGroup | None:
        """Makes a group of some ranks of this one, which call it."""
        self._splits += 1
        name = group_name or f"{self._splits}"
        if self.rank() not in ranks:
            return None
        with_timeout = timeout or timedelta(seconds=self._timeout_s or 0)
        group = ProcessGroup(_subset(self._comm, ranks, name), self._store, with_timeout)
        if group_name is not None:
            group._set_group_name(group_name)
        return group

    splitGroup = split_group

    def abort(self) -> None:
        """Ends all calls of this group, on all ranks."""
        self._comm.abort()

    def shutdown(self) -> None:
        """Leaves the group: the end of ``destroy_process_group``."""
        global _world
        if self is _world:
            _world = None
            if self._reporting is not None:
                self._reporting.end()
            membership.finalize()
        elif self._job is not None:
            self._job.leave()


def communicator(group: dist.ProcessGroup | None = None) -> nvcoll.Communicator:
    """Returns the communicator of a process group.

    Args:
        group: a group of the backend nvcoll. Default: the default group.

    Raises:
        InvalidArgument: it is of another backend.
    """
    found = group if group is not None else dist.group.WORLD
    if not isinstance(found, ProcessGroup):
        raise nvcoll.InvalidArgument(f"found {found!r}, expected a process group of the backend nvcoll")
    return found._comm


def recent_calls() -> list[tuple[str, list[tuple[int, str]]]]:
    """Returns the last calls of this rank in each process group of nvcoll, newest first, with the name of the group."""
    groups = [group for group in dist.distributed_c10d._world.pg_map if isinstance(group, ProcessGroup)]
    return [(group.group_name, group._comm.recent_calls()) for group in groups]


def create(options: Any, _backend_options: Any) -> ProcessGroup:
    """Makes a process group: torch calls this.

    Args:
        options: torch's: store, rank, size, timeout, name, ranks of the default group (none for the default group).
    """
    global _world
    try:
        ranks = list(options.global_ranks_in_group)
        if not ranks:
            _world = ProcessGroup(_join(options), options.store, options.timeout)
            _world._reporting = Reporting(options.store, _world.rank(), _world.size())
            return _world
        if _world is not None and hasattr(_world._comm, "subset"):
            return ProcessGroup(_subset(_world._comm, ranks, options.group_id), options.store, options.timeout)
        return _separate(options)
    except nvcoll.Error as error:
        raise torch_error(error) from error


def _subset(comm: nvcoll.Communicator, ranks: list[int], name: str) -> nvcoll.Communicator:
    """Makes the communicator of some ranks, which are not in ascending order if the user wishes so."""
    return comm.subset(ranks, zlib.crc32(name.encode()) >> 1)


def _join(options: Any) -> nvcoll.Communicator:
    """Joins the job of all ranks, unless this process is in one already."""
    rank, size, seconds = options.group_rank, options.group_size, options.timeout.total_seconds()
    current = membership.current(seconds)
    if current is None:
        return nvcoll.init(rank, size, _job_of(options), timeout=seconds, join_timeout=seconds)
    if (current.rank, current.world_size) != (rank, size):
        raise nvcoll.InvalidArgument(
            f"this process is rank {current.rank} of {current.world_size} of a job of nvcoll, and rank {rank} of "
            f"{size} for torch: call nvcoll.finalize() before"
        )
    return current


def _separate(options: Any) -> ProcessGroup:
    """Makes a group that is a job of its own."""
    seconds = options.timeout.total_seconds()
    job = _nvcoll.Job(options.group_rank, options.group_size, _job_of(options), None, seconds)
    return ProcessGroup(job.communicator(seconds), options.store, options.timeout, job)


def _job_of(options: Any) -> str:
    """Returns the name of a new job, which rank 0 chooses, if all ranks are on one machine.

    Raises:
        InvalidArgument: they are not.
    """
    store, rank, size = options.store, options.group_rank, options.group_size
    store.set(f"nvcoll/host/{rank}", _host())
    if rank == 0:
        hosts = [store.get(f"nvcoll/host/{peer}").decode() for peer in range(size)]
        store.set("nvcoll/job", _on_several(hosts) or f"ok torch-{uuid.uuid4().hex[:16]}")
    verdict, _, text = store.get("nvcoll/job").decode().partition(" ")
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
    if len(set(hosts)) == 1:
        return None
    names: dict[str, list[int]] = {}
    for rank, host in enumerate(hosts):
        names.setdefault(host, []).append(rank)
    places = "; ".join(f"{listed(ranks)} on {host.partition(' ')[2]}" for host, ranks in names.items())
    return (
        f"refused found ranks on several hosts, or in containers with networks of their own ({places}): nvcoll runs on "
        "one machine, start all ranks on one host"
    )
