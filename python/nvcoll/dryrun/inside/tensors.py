"""Tensors of an operator: how to find them, their memory, and whether they have values.

| tensor | on the GPU | on the CPU |
|---|---|---|
| integers, booleans | real up to 128 MiB | real |
| floats | real up to 64 KiB | real below 8 MiB |
| floats that are filled, or copied from real ones | real up to 64 MiB | |
| larger | has no values, and reads as zero | has no values, and takes no memory |

The size of the storage decides: a small view of a large tensor has no values.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Iterable
from typing import Any

import torch

from nvcoll.dryrun.inside.gpu import Gpu

WHOLE_BYTES = 128 << 20
"""Integers and booleans on the GPU are real up to this size; chosen: routing tables, masks, and
neighbours of points (PointNet++) are smaller."""
FLOAT_BYTES = 64 << 10
"""Floats on the GPU are real up to this size; chosen: scalars and statistics are smaller, activations larger."""
PLACED_BYTES = 64 << 20
"""Floats on the GPU that operators only put in their places are real up to this size; chosen: masks of 4,096 tokens by
as many, and of 65,536 tokens by 256 experts."""
HOST_FLOAT_BYTES = 8 << 20
"""Floats on the CPU have no values from this size on; chosen: parameters are larger, samples of data smaller."""

STRIDED = torch.strided
PAGE = mmap.PAGESIZE
MADV_DONTNEED = mmap.MADV_DONTNEED
LIBC = ctypes.CDLL(None)


class Plain(dict[type, bool]):
    """Says of a class of tensors, looked up once, whether its tensors lie in memory: it has no operators of its own."""

    def __missing__(self, kind: type) -> bool:
        own = getattr(kind, "__torch_dispatch__", None)
        self[kind] = issubclass(kind, torch.Tensor) and own is torch.Tensor.__torch_dispatch__
        return self[kind]


IS_PLAIN = Plain()


class Parts(list[torch.Tensor]):
    """Tensors of which some are parts of sparse ones."""


def tensors_of(*trees: object) -> list[torch.Tensor]:
    """Returns the tensors in arguments or results: themselves, or in lists and tuples; of sparse ones the parts."""
    found = leaves_of(*trees)
    for each in found:
        if each.layout is not STRIDED:
            return Parts(part for each in found for part in _parts(each))
    return found


def leaves_of(*trees: object) -> list[torch.Tensor]:
    """Returns the tensors in arguments or results, sparse ones as they are; no nested ones, which have no sizes."""
    found: list[torch.Tensor] = []
    _add(trees, found)
    return found


def _add(trees: Iterable[object], found: list[torch.Tensor]) -> None:
    for tree in trees:
        if isinstance(tree, torch.Tensor):
            if IS_PLAIN[type(tree)] and not tree.is_nested:
                found.append(tree)
        elif isinstance(tree, (list, tuple)):
            _add(tree, found)
        elif isinstance(tree, dict):
            _add(tree.values(), found)


def _parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return (tensor,) if tensor.layout is torch.strided else ()


def replaced(tree: Any, replace: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Returns arguments with each tensor replaced; of a sparse one the parts."""
    if isinstance(tree, torch.Tensor):
        if tree.layout is STRIDED:
            return replace(tree)
        *places, values = map(replace, _parts(tree))
        size, layout = tree.shape, tree.layout
        if layout is torch.sparse_coo:
            coalesced = tree.is_coalesced()
            return torch.sparse_coo_tensor(places[0], values, size, is_coalesced=coalesced, check_invariants=False)
        return torch.sparse_compressed_tensor(
            places[0], places[1], values, size=size, layout=layout, check_invariants=False
        )
    if isinstance(tree, (list, tuple)):
        return type(tree)([replaced(each, replace) for each in tree])
    if isinstance(tree, dict):
        return {name: replaced(each, replace) for name, each in tree.items()}
    return tree


def is_whole(tensor: torch.Tensor) -> bool:
    """Says whether the elements are integers or booleans."""
    return not (tensor.dtype.is_floating_point or tensor.dtype.is_complex)


def is_small(tensor: torch.Tensor, storage: torch.UntypedStorage | None = None) -> bool:
    """Says whether a tensor on the GPU can have values: by its storage."""
    size = (tensor.untyped_storage() if storage is None else storage).nbytes()
    return size <= FLOAT_BYTES or (size <= WHOLE_BYTES and is_whole(tensor))


def is_large_on_host(tensor: torch.Tensor) -> bool:
    """Says whether a tensor on the CPU has no values."""
    return (
        tensor.numel() * tensor.element_size() >= HOST_FLOAT_BYTES
        and tensor.device.type == "cpu"
        and not is_whole(tensor)
    )


class Mirror:
    """Tensors on the CPU over the memory of the virtual GPU, and over pinned memory of the host that the GPU reads."""

    def __init__(self, gpu: Gpu) -> None:
        self._start, self._end = gpu.start, gpu.start + gpu.length
        self._memory = torch.frombuffer((ctypes.c_char * gpu.length).from_address(gpu.start), dtype=torch.uint8)
        self._by_dtype: dict[torch.dtype, torch.Tensor] = {torch.uint8: self._memory}

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns a tensor of the CPU over the memory of a tensor on the GPU; other tensors as they are."""
        if not tensor.is_cuda:
            return tensor
        dtype = tensor.dtype
        if tensor.numel() == 0:  # it has no address, wherever its storage lies
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=dtype)
        if not self._start <= tensor.data_ptr() < self._end:
            storage = tensor.untyped_storage()
            host = torch.frombuffer((ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr()), dtype=dtype)
            return host.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        memory = self._by_dtype.get(dtype)
        if memory is None:
            memory = self._by_dtype[dtype] = self._memory.view(dtype)
        offset = (tensor.data_ptr() - self._start) // tensor.element_size()
        return memory.as_strided(tensor.shape, tensor.stride(), offset)

    def clear(self, tensor: torch.Tensor) -> None:
        """Makes all elements of a tensor on the GPU zero; of whole pages by giving them back."""
        size = tensor.numel() * tensor.element_size()
        if size <= FLOAT_BYTES or not tensor.is_contiguous():
            self(tensor).zero_()
            return
        first, end = tensor.data_ptr(), tensor.data_ptr() + size
        page, last = -(-first // PAGE) * PAGE, end // PAGE * PAGE
        ctypes.memset(first, 0, page - first)
        ctypes.memset(last, 0, end - last)
        if LIBC.madvise(ctypes.c_void_p(page), ctypes.c_size_t(last - page), MADV_DONTNEED) != 0:
            self(tensor).zero_()
