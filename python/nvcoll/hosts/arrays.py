"""Arrays of calls as bytes: inside a host and between hosts only bytes move, and only `_nvcoll._fold` knows dtypes."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from nvcoll._nvcoll import InvalidArgument, dtypes
from nvcoll.hosts.outer import Bytes

ROWS = {row.name: row for row in dtypes()}


class Operand:
    """An array of a call.

    A strided array is copied; `put_back` copies the bytes to it.

    Args:
        x: numpy, a CPU tensor of torch, or memory with the buffer protocol or DLPack.
        name: its name in errors.
        is_written: whether the call writes to it.

    Attributes:
        x: the array.
        bytes: its elements, one after the other.
        dtype: the name of its dtype.
        itemsize: the bytes of an element.
        count: its elements.

    Raises:
        InvalidArgument: the array cannot be used.
    """

    def __init__(self, x: Any, name: str, *, is_written: bool = False) -> None:
        self.x = x
        torch = sys.modules.get("torch")
        self._torch: Any = torch if torch is not None and isinstance(x, torch.Tensor) else None
        self._strided: Any = None
        flat = self._of_torch(x, name) if self._torch else self._of_numpy(x, name, is_written)
        self._kind = flat.dtype
        self.dtype = str(flat.dtype).removeprefix("torch.") if self._torch else flat.dtype.name
        if self.dtype not in ROWS or (not self._torch and not flat.dtype.isnative):
            raise InvalidArgument(f"`{name}` is of dtype {flat.dtype}: pass one of {', '.join(ROWS)}")
        self.itemsize = ROWS[self.dtype].nbytes
        self.bytes: Bytes = flat.view(torch.uint8).numpy() if self._torch and torch else flat.view(np.uint8)
        self.count = len(self.bytes) // self.itemsize

    def _of_torch(self, x: Any, name: str) -> Any:
        if not x.is_cpu or x.layout is not self._torch.strided:
            raise InvalidArgument(f"`{name}` is a tensor on {x.device} of {x.layout}: pass a dense one, x.cpu()")
        if x.is_quantized:  # torch crashes in views of it
            raise InvalidArgument(f"`{name}` is a quantized tensor: pass x.int_repr()")
        if x.is_conj() or x.is_neg():
            raise InvalidArgument(f"`{name}` is a lazy view: pass x.resolve_conj().resolve_neg()")
        x = x.detach()
        if not x.is_contiguous():
            self._strided = x
        return x.contiguous().view(-1)

    def _of_numpy(self, x: Any, name: str, is_written: bool) -> Any:
        if not isinstance(x, np.ndarray):
            try:
                x = np.from_dlpack(x) if hasattr(x, "__dlpack__") else np.asarray(memoryview(x))
            except (TypeError, BufferError, RuntimeError) as error:
                raise InvalidArgument(f"`{name}` is a {type(x).__name__}: pass an array ({error})") from error
        if is_written and not x.flags.writeable:
            raise InvalidArgument(f"`{name}` is read-only: pass an array that can be written")
        if not x.flags.c_contiguous:
            self._strided = x
        return np.ascontiguousarray(x).reshape(-1)

    def typed(self, raw: Bytes) -> Any:
        """Returns bytes as a vector of this dtype."""
        return self._torch.from_numpy(raw).view(self._kind) if self._torch else raw.view(self._kind)

    def cut(self, begin: int, end: int) -> Bytes:
        """Returns the bytes of some elements."""
        return self.bytes[begin * self.itemsize : end * self.itemsize]

    def scratch(self, count: int) -> Bytes:
        """Returns bytes for some elements."""
        return np.empty(count * self.itemsize, np.uint8)

    def put_back(self) -> None:
        """Copies the bytes to the array, if they are a copy of it."""
        if self._strided is None:
            return
        if self._torch:
            self._strided.copy_(self.typed(self.bytes).view(self._strided.shape))
        else:
            np.copyto(self._strided, self.typed(self.bytes).reshape(self._strided.shape))

    def like(self, count: int, parts: Sequence[int] = ()) -> Operand:
        """Returns a new array of this kind, with this one's axes after the first if all parts have whole rows."""
        rows = tuple(self.x.shape[1:]) if hasattr(self.x, "shape") else ()
        width = math.prod(rows)
        shape: tuple[int, ...] = (count,)
        if width and not any(part % width for part in (count, *parts)):
            shape = (count // width, *rows)
        if self._torch:
            return Operand(self._torch.empty(shape, dtype=self.x.dtype), "out")
        return Operand(np.empty(shape, self._kind), "out")


def even(count: int, parts: int) -> list[int]:
    """Returns the lengths of parts, as numpy's ``array_split`` cuts."""
    return [count // parts + (part < count % parts) for part in range(parts)]


def row_of(counts: Any, size: int, name: str) -> list[int]:
    """Returns a row of counts, checked.

    Raises:
        InvalidArgument: it is not one number of elements, 0 or more, per rank.
    """
    try:
        row = [operator.index(count) for count in counts]
    except TypeError:
        row = []
    if len(row) != size or min(row, default=-1) < 0:
        raise InvalidArgument(f"`{name}` is {counts!r}: pass {size} numbers of elements, one per rank, 0 or more")
    return row
