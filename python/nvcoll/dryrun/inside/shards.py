"""The shards of a parameter that FSDP2 makes: each when it is asked for.

FSDP2 cuts each parameter into one tensor per rank and takes that of its own rank: with 4,096 ranks and the experts of
DeepSeek-V3 these are millions of tensors, which are most of the time of a dry run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import torch

from nvcoll.dryrun.inside import private


class Shards(Sequence[torch.Tensor]):
    """The chunks of a tensor as `torch.chunk` cuts it; ranks beyond the last one have an empty tensor.

    Args:
        tensor: the parameter.
        count: the number of ranks.
        dim: the dimension that is cut.
    """

    def __init__(self, tensor: torch.Tensor, count: int, dim: int) -> None:
        self._tensor, self._count, self._dim = tensor, count, dim

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, rank: int) -> torch.Tensor: ...
    @overload
    def __getitem__(self, rank: slice) -> Sequence[torch.Tensor]: ...
    def __getitem__(self, rank: int | slice) -> torch.Tensor | Sequence[torch.Tensor]:
        """Returns the shard of a rank."""
        if isinstance(rank, slice):
            return [self[each] for each in range(self._count)[rank]]
        size = self._tensor.size(self._dim)
        each = -(-size // self._count)
        start = min(range(self._count)[rank] * each, size)
        if start == size and rank:
            return self._tensor.new_empty(0)
        return self._tensor.narrow(self._dim, start, min(each, size - start))


def install() -> None:
    """Makes FSDP2 cut parameters so."""
    private.replace(private.fsdp_parameters(), "_chunk_with_empty", Shards)
