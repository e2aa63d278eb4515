"""The other ranks of a model server, which do not run: vLLM's classes for them, which SGLang has, too."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from nvcoll.dryrun.inside import private
from nvcoll.dryrun.inside.peers import Peers


class Nobody:
    """A queue to readers that do not run."""

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_args, **_kwargs: None

    def broadcast_object(self, sent: object = None) -> object:
        """Returns what was sent."""
        return sent


def replace(module: Any, name: str, new: object) -> None:
    """Replaces a name that a version may lack."""
    if hasattr(module, name):
        private.replace(module, name, new)


def _same(group: Any, source_rank: int = 0) -> list[bool]:
    """Says which ranks of a group are on the host of one of them: the ranks of a host follow each other."""
    of_host = int(os.environ["LOCAL_WORLD_SIZE"])
    ranks = dist.get_process_group_ranks(group) if isinstance(group, dist.ProcessGroup) else range(group.world_size)
    return [rank // of_host == ranks[source_rank] // of_host for rank in ranks]


def _see_all(module: Any) -> None:
    replace(module, "in_the_same_node_as", _same)


def share_alone(module: Any) -> None:
    """Has the all-reduce of a server share the buffers of captured graphs with no peers."""
    _see_all(module)
    replace(module.CustomAllreduce, "register_graph_buffers", lambda _this: None)


def groups(module: Any, peers: Peers) -> None:
    """Gives the groups of a server their names: tp, pp, dp, ep."""
    _see_all(module)

    def around(make: Callable[..., None]) -> Callable[..., None]:
        def making(this: Any, *args: Any, **kwargs: Any) -> None:
            peers.called = kwargs.get("group_name") or ""
            make(this, *args, **kwargs)
            peers.called = ""

        return making

    private.wrap(module.GroupCoordinator, "__init__", around)


def communicators(module: Any, peers: Peers) -> None:
    """Tells which ranks the communicators have that a server makes by itself."""

    def around(make: Callable[..., None]) -> Callable[..., None]:
        def making(this: Any, group: Any, *args: object, **kwargs: object) -> None:
            before = peers.position()
            make(this, group, *args, **kwargs)
            if isinstance(group, dist.ProcessGroup):
                ranks = peers.ranks_of(group.group_name)
                peers.note(f"{module.__name__}:{peers.called}:{ranks[0]}", peers.called, ranks, before)

        return making

    private.wrap(module.PyNcclCommunicator, "__init__", around)


def drop(module: Any) -> None:
    """Drops messages to other ranks."""
    _see_all(module)
    module.MessageQueue.create_from_process_group = staticmethod(lambda *_args, **_kwargs: Nobody())
