"""Tensors and ops of torch as nvcoll's: arrays, and names.

nvcoll calls take one array per rank. torch also passes lists of tensors, one per rank: `Parts` is such a list as one
array. It is the memory of the tensors if they lie one after the other in one storage, as ``chunk`` makes them;
otherwise it is a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from nvcoll._nvcoll import dtypes, premul_sum
from nvcoll.torch import private
from nvcoll.torch.works import invalid

if TYPE_CHECKING:
    from torch.distributed import ReduceOp

    from nvcoll._nvcoll import _Op, _OpName

_NAMES = {row.name for row in dtypes()}

KNOWN = frozenset(
    dtype
    for dtype in vars(torch).values()
    if isinstance(dtype, torch.dtype) and str(dtype).removeprefix("torch.") in _NAMES
)
"""The dtypes of torch that nvcoll knows."""


OPS: dict[ReduceOp.RedOpType, _OpName] = {
    private.KINDS.SUM: "sum",
    private.KINDS.AVG: "avg",
    private.KINDS.PRODUCT: "prod",
    private.KINDS.MIN: "min",
    private.KINDS.MAX: "max",
    private.KINDS.BAND: "band",
    private.KINDS.BOR: "bor",
    private.KINDS.BXOR: "bxor",
}
"""Ops of torch, and their names."""


def only(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns the tensor of a list of one.

    Raises:
        DistBackendError: there are more, or none.
    """
    if isinstance(tensors, torch.Tensor):
        return tensors
    if len(tensors) != 1:
        raise invalid(f"found a list of {len(tensors)} tensors, expected a list of one tensor")
    return tensors[0]


def array(x: torch.Tensor) -> torch.Tensor:
    """Returns a tensor as nvcoll reads it: without autograd, conjugation and negation."""
    if not x.is_cpu or x.layout is not torch.strided:
        raise invalid(_no_array(x))
    if x.requires_grad:
        x = x.detach()
    if x.is_conj() or x.is_neg():
        raise invalid("found a lazily conjugated or negated view: pass x.resolve_conj().resolve_neg()")
    return x


def movable(x: torch.Tensor) -> torch.Tensor:
    """Returns a tensor as nvcoll moves it: bytes, if nvcoll does not know the dtype."""
    x = array(x)
    if x.dtype in KNOWN:
        return x
    if not x.is_contiguous():
        raise invalid(f"found a strided tensor of {x.dtype}, which nvcoll moves as bytes: pass x.contiguous()")
    return x.flatten().view(torch.uint8)


class Parts:
    """A list of tensors, one per rank, as one array, which is a copy if the tensors lie apart.

    Args:
        tensors: the tensors; nvcoll moves them.

    Attributes:
        tensors: the tensors, as nvcoll moves them.
        array: their elements.
        counts: the elements of each tensor.
        is_copy: whether the array is a copy.
    """

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.tensors = [movable(x) for x in tensors]
        kinds = sorted({str(x.dtype) for x in tensors})
        if len(kinds) > 1:
            raise invalid(f"found tensors of several dtypes in one list: {', '.join(kinds)}")
        self.counts = [x.numel() for x in self.tensors]
        adjacent = _adjacent(self.tensors)
        self.is_copy = adjacent is None
        if adjacent is not None:
            self.array = adjacent
        else:
            self.array = torch.empty(sum(self.counts), dtype=self.tensors[0].dtype)

    @property
    def are_even(self) -> bool:
        """Whether all tensors have the same number of elements."""
        return len(set(self.counts)) <= 1

    def copy(self) -> None:
        """Copies the elements of the tensors to the array."""
        torch.cat([x.reshape(-1) for x in self.tensors], out=self.array)

    def write_back(self) -> None:
        """Copies the elements of the array to the tensors."""
        for x, part in zip(self.tensors, self.array.split(self.counts), strict=True):
            x.copy_(part.view(x.shape))


def writing_back(lists: Sequence[Parts]) -> Callable[[], None] | None:
    """Returns a function that copies the elements of arrays to their tensors; None if no array is a copy."""
    copies = [parts for parts in lists if parts.is_copy]

    def write() -> None:
        for parts in copies:
            parts.write_back()

    return write if copies else None


def op_of(opts: object) -> _Op:
    """Returns nvcoll's op for torch's options, for a bare op, or for none."""
    if opts is None:
        return "sum"
    op = getattr(opts, "reduceOp", opts)
    kind = getattr(op, "op", op)
    known = OPS.get(kind)
    if known is not None:
        return known
    if kind == private.KINDS.PREMUL_SUM:
        return premul_sum(private.factor_of(op))
    raise invalid(f"found op {kind}, expected PREMUL_SUM or one of {', '.join(known.name for known in OPS)}")


def _adjacent(tensors: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Returns the memory of tensors that lie one after the other in one storage."""
    first = tensors[0]
    storage, at = first.untyped_storage().data_ptr(), first.storage_offset()
    for x in tensors:
        if not x.is_contiguous() or x.untyped_storage().data_ptr() != storage or x.storage_offset() != at:
            return None
        at += x.numel()
    return first.as_strided((at - first.storage_offset(),), (1,), first.storage_offset())


def _no_array(x: torch.Tensor) -> str:
    if not x.is_cpu:
        return f"found a tensor on {x.device}, and nvcoll runs calls of CPU tensors: pass x.cpu()"
    return f"found a tensor of layout {x.layout}, expected a dense one: pass x.to_dense()"
