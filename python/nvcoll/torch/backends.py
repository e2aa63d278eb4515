"""The calls of nvcoll as a ``Backend`` of torch, which torch 2.14 and later let Python make.

A `Backend` is one device's part of a process group. A process group of nvcoll contains one, because parts of torch look
for it there. In ``init_process_group("cpu:nvcoll,cuda:nccl")`` the group is torch's, and the `Backend` is nvcoll's
part.
"""

from __future__ import annotations

from datetime import timedelta

from nvcoll.torch import private
from nvcoll.torch.calls import Calls
from nvcoll.torch.rendezvous import Ranks


class _Backend(Calls, private.Backend):
    """The CPU's part of a process group.

    Args:
        ranks: the ranks of the group.
        timeout: the timeout of each call.
    """

    def __init__(self, ranks: Ranks, timeout: timedelta) -> None:
        super().__init__(ranks.comm.rank, ranks.comm.world_size)
        self._use(ranks, timeout)

    def name(self) -> str:
        return "nvcoll"

    def shutdown(self) -> None:
        self._leave()


Backend = _Backend if private.has_constructible_backends() else None
"""The class; None before torch 2.14, where Python cannot make a subclass of torch's."""
