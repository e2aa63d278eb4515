"""``NVCOLL_STRICT=nccl``: refuses what NCCL would refuse, so that tests on CPU ranks find it.

=====================  ===============================================================================================
dtypes                 int16, uint16, uint32, uint64, complex32, and 8-bit floats but float8_e4m3fn and float8_e5m2
ops                    BAND, BOR, BXOR; AVG of bool
tensors                strided ones, sparse ones; those on the CPU, where this process has a GPU
calls                  recv from any rank, monitored_barrier
=====================  ===============================================================================================

Calls in another order than a peer's are always refused. Source: ProcessGroupNCCL.cpp and NCCLUtils.cpp of torch.
What it does not find: tags, which NCCL ignores; calls that hang with NCCL because streams wait for each other.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator

import torch
import torch.distributed as dist

import nvcoll
from nvcoll.torch.calls import ALIASES, Calls
from nvcoll.torch.tensors import op_of
from nvcoll.torch.works import invalid

VARIABLE = "NVCOLL_STRICT"
"""The environment variable that names the library whose refusals are imitated."""

DTYPES = frozenset(
    {
        *(torch.int8, torch.uint8, torch.int32, torch.int64, torch.bool),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128),
        *(torch.float8_e4m3fn, torch.float8_e5m2),
    }
)

SCALED = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
"""The dtypes of PREMUL_SUM."""

CHECKED = (
    *("allreduce", "allreduce_coalesced", "reduce", "reduce_scatter", "reduce_scatter_single"),
    *("reduce_scatter_single_coalesced", "broadcast", "allgather", "all_gather_single", "all_gather_single_coalesced"),
    *("allgather_coalesced", "gather", "gather_single", "scatter", "all_to_all_single", "alltoall", "send", "recv"),
)
"""The calls whose tensors and ops are checked."""


def is_asked_for() -> bool:
    """Says whether the environment asks for NCCL's refusals.

    Raises:
        InvalidArgument: it names another library.
    """
    value = os.environ.get(VARIABLE, "")
    if value not in ("", "nccl"):
        raise nvcoll.InvalidArgument(f"{VARIABLE}={value}: set it to nccl, or unset it")
    return bool(value)


class NcclRules:
    """Calls that refuse what NCCL refuses, before `Calls` makes them."""

    def recv_anysource(self, tensors: object, tag: int = 0) -> dist.Work:
        raise invalid("NCCL cannot receive from any rank: name the source")

    def monitored_barrier(self, timeout: object = None, wait_all_ranks: bool = False) -> None:
        raise invalid("NCCL has no monitored_barrier: call it on a group with the backend gloo")


def _checked(name: str, call: Callable[..., dist.Work]) -> Callable[..., dist.Work]:
    @functools.wraps(call)
    def checked(self: object, *arguments: object, **keywords: object) -> dist.Work:
        tensors = list(_tensors([*arguments, *keywords.values()]))
        for x in tensors:
            if complaint := _complaint(x):
                raise invalid(f"{name}: NCCL refuses {complaint}")
        for x in _tensors([*arguments, *keywords.values()], nested=False) if name not in ("send", "recv") else ():
            if not _is_dense(x):
                how = f"(shape {tuple(x.shape)}, strides {x.stride()}): pass x.contiguous()"
                raise invalid(f"{name}: NCCL refuses a strided tensor {how}")
        for options in (one for one in (*arguments, *keywords.values()) if hasattr(one, "reduceOp")):
            op = op_of(options)
            if not isinstance(op, str) and not all(x.dtype in SCALED for x in tensors):
                raise invalid(f"{name}: NCCL scales half, float, double and bfloat16 only, found {tensors[0].dtype}")
            if op in ("band", "bor", "bxor") or (op == "avg" and any(x.dtype is torch.bool for x in tensors)):
                raise invalid(f"{name}: NCCL refuses the op {op} for {tensors[0].dtype}")
        return call(self, *arguments, **keywords)

    return checked


def _tensors(values: Iterable[object], *, nested: bool = True) -> Iterator[torch.Tensor]:
    """Yields the tensors of arguments; with `nested` also tensors of lists in lists, which torch copies for NCCL."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value) if nested else (x for x in value if isinstance(x, torch.Tensor))


def _is_dense(x: torch.Tensor) -> bool:
    """Says whether the elements are packed, in the order of rows or of channels."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return x.is_contiguous() or (x.dim() in formats and x.is_contiguous(memory_format=formats[x.dim()]))


def _complaint(x: torch.Tensor) -> str | None:
    if x.layout is not torch.strided:
        return f"a tensor of layout {x.layout}: pass a dense one"
    if x.dtype not in DTYPES:
        return f"a tensor of {x.dtype}: it has no such dtype"
    if x.is_cpu and torch.cuda.is_available():
        return "a tensor on the CPU: move it to the GPU"
    return None


for _name in CHECKED:
    setattr(NcclRules, _name, _checked(_name, getattr(Calls, _name)))
for _old, _new in ALIASES.items():
    if _new in CHECKED:
        setattr(NcclRules, _old, getattr(NcclRules, _new))
