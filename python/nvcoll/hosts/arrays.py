"""Arrays of calls as bytes: inside a host and between hosts only bytes move, and only `_nvcoll._fold` knows dtypes.

Arguments are read and checked by the code of calls on one host.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypedDict, Unpack

import numpy as np

from nvcoll._nvcoll import _Passed, _read, dtypes
from nvcoll.hosts.carrier import Bytes
from nvcoll.hosts.placement import Placement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nvcoll._nvcoll import _Op

    Counts = Sequence[int] | Sequence[Sequence[int]]

ROWS = {row.name: row for row in dtypes()}


class Operand:
    """What a rank contributes to a call, or what it receives, as bytes.

    Args:
        raw: the bytes.
        dtype: the name of their dtype.
        kind: the dtype of numpy or torch.

    Attributes:
        bytes: the elements, one after the other.
        dtype: the name of their dtype.
        itemsize: the bytes of an element.
        count: the elements.
    """

    def __init__(self, raw: Bytes | memoryview, dtype: str, kind: object) -> None:
        self.bytes: Bytes = np.asarray(raw)
        self.dtype, self._kind, self.itemsize = dtype, kind, ROWS[dtype].nbytes
        self.count = len(self.bytes) // self.itemsize

    def typed(self, raw: Bytes) -> object:
        """Returns bytes as a vector of this dtype."""
        if isinstance(self._kind, np.dtype):
            return raw.view(self._kind)
        return sys.modules["torch"].from_numpy(raw).view(self._kind)

    def cut(self, begin: int, end: int) -> Bytes:
        """Returns the bytes of some elements."""
        return self.bytes[begin * self.itemsize : end * self.itemsize]

    def scratch(self, count: int) -> Bytes:
        """Returns bytes for some elements."""
        return np.empty(count * self.itemsize, np.uint8)

    def like(self, count: int) -> Operand:
        """Returns memory for some elements."""
        return Operand(self.scratch(count), self.dtype, self._kind)


class Given(TypedDict, total=False):
    """Arguments of calls; see `nvcoll.Communicator`."""

    op: _Op | None
    root: object
    counts: Counts | None
    out: object


class Arguments:
    """What this rank passes to a call, checked.

    Args:
        placement: the ranks.
        collective: the name of the call.
        x: as in the call.
        given: the other arguments; None: left out.

    Attributes:
        collective: the name of the call.
        passed: the same, as the extension has it: ``result``, ``counts``, ``root``, ``op``, ``scalar``.
        x: what this rank contributes.
        out: what it receives; it may be the memory of `x`, or some of it.

    Raises:
        InvalidArgument: as the call on one host.
    """

    def __init__(self, placement: Placement, collective: str, x: object, **given: Unpack[Given]) -> None:
        self.collective = collective
        self.passed: _Passed = _read(collective, placement.rank, placement.size, x, **given)
        kind = getattr(given.get("out") if x is None else x, "dtype", None)
        if not isinstance(kind, np.dtype) and "torch" not in type(kind).__module__:
            kind = np.dtype(self.passed.dtype)
        self.x = Operand(self.passed.input, self.passed.dtype, kind)
        self.out = Operand(self.passed.output, self.passed.dtype, kind)

    def finish(self) -> object:
        """Copies what was received to a strided array, and returns the result of the call."""
        self.passed.write_back()
        return self.passed.result


def even(count: int, parts: int) -> list[int]:
    """Returns the lengths of parts, as numpy's ``array_split`` cuts."""
    return [count // parts + (part < count % parts) for part in range(parts)]
