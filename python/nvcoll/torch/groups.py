"""A process group of torch on a communicator of nvcoll.

Each call has the timeout of its group. After a mismatch, a timeout or the death of a rank all later calls of the group
raise the same error, as with NCCL. After a call with invalid arguments the group can be used.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

import nvcoll
from nvcoll.torch import private, strict
from nvcoll.torch.backends import Backend
from nvcoll.torch.calls import Calls
from nvcoll.torch.rendezvous import Ranks, ranks_of
from nvcoll.torch.strict import NcclRules
from nvcoll.torch.works import torch_error

if TYPE_CHECKING:
    from nvcoll.torch.private import BackendOptions

OLDEST = (2, 11)
"""The oldest torch that is tested."""

if tuple(map(int, torch.__version__.split(".")[:2])) < OLDEST:
    raise ImportError(f"found torch {torch.__version__}, expected {'.'.join(map(str, OLDEST))} or later: update torch")

CPU = torch.device("cpu")


class ProcessGroup(Calls, dist.ProcessGroup):
    """A process group whose calls nvcoll runs. ``init_process_group("nvcoll")`` and ``new_group`` make it.

    Args:
        ranks: the ranks of the group.
        store: torch's store for these ranks.
        timeout: the timeout of each call.
    """

    supports_splitting = True

    def __init__(self, ranks: Ranks, store: dist.Store, timeout: timedelta) -> None:
        super().__init__(ranks.comm.rank, ranks.comm.world_size)
        self._use(ranks, timeout)
        self._store = store
        self._name = self._description = ""
        if Backend is not None:
            private.register_backend(self, CPU, Backend(replace(ranks, leave=lambda: None), timeout))

    def name(self) -> str:
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

    def split_group(
        self,
        ranks: list[int],
        timeout: timedelta | None = None,
        opts: object = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: object = None,
    ) -> ProcessGroup | None:
        """Makes a group of some ranks of this one, which call it."""
        if self._comm.rank not in ranks:
            return None
        group = type(self)(Ranks(self._comm.subset(ranks)), self._store, timeout or self._timeout)
        group._name, group._description = group_name or "", group_desc or ""
        return group

    splitGroup = split_group

    def eager_connect_single_device(self, device: torch.device | None = None) -> None:
        """Does nothing: the ranks are connected. ``init_process_group(device_id=...)`` calls it."""

    def shutdown(self) -> None:
        """Leaves the group: the end of ``destroy_process_group``."""
        self._leave()


class StrictProcessGroup(NcclRules, ProcessGroup):
    """A process group that refuses what NCCL refuses."""


def communicator(group: dist.ProcessGroup | None = None) -> nvcoll.Communicator:
    """Returns the communicator of a process group.

    Args:
        group: a group of the backend nvcoll. Default: the default group.

    Raises:
        InvalidArgument: it is of another backend, or there is none.
    """
    found = group if group is not None else dist.group.WORLD
    if isinstance(found, ProcessGroup):
        return found._comm
    which = "the default group" if group is None else "this group"
    if found is None:
        raise nvcoll.InvalidArgument('torch has no default group: call init_process_group("nvcoll") before')
    raise nvcoll.InvalidArgument(
        f'{which} uses {dist.get_backend(found)}: pass "nvcoll" to init_process_group or new_group, or set '
        "NVCOLL_TORCH=replace"
    )


def recent_calls() -> list[tuple[str, list[tuple[int, str]]]]:
    """Returns the last calls of this rank in each process group of nvcoll, newest first, and what names the group."""
    groups = [group for group in private.process_groups() if isinstance(group, ProcessGroup)]
    names = ["" if group is dist.group.WORLD else f"group {group.group_name}: " for group in groups]
    return [(name, group._comm.recent_calls()) for name, group in zip(names, groups, strict=True)]


def create(options: BackendOptions, _backend_options: object) -> Calls:
    """Makes a process group, or nvcoll's part of one: torch calls this, with the options of `ranks_of`."""
    try:
        made_by = StrictProcessGroup if strict.is_asked_for() else ProcessGroup
        ranks = ranks_of(options)
    except nvcoll.Error as error:
        raise torch_error(error) from error
    if private.is_for_several_backends():
        if Backend is None:
            raise torch_error(
                nvcoll.InvalidArgument(
                    f"found one backend per device with torch {torch.__version__}, expected torch 2.14 or later: "
                    'pass "nvcoll" alone'
                )
            )
        return Backend(ranks, options.timeout)
    return made_by(ranks, options.store, options.timeout)
