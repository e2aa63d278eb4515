"""The functions of the virtual GPU that Python calls, and the records of its log.

Written by tools/generate/wire.py from `records.rs` and `exports.rs` in rust/nvcoll-vgpu/src: change those.
"""

from __future__ import annotations

from ctypes import POINTER, c_char_p, c_int32, c_uint32, c_uint64, c_void_p
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

CAPTURED = 0x100
"""A bit of `kind`: recorded while a CUDA graph was captured. Its launch appends copies without this bit."""

RECORD = np.dtype(
    [("kind", "<u2"), ("device", "<u2"), ("stream", "<u4"), ("name", "<u4"), ("op", "<u4"), ("args", "<u8", 6)]
)
"""One record of the log."""

Records = NDArray[np.void]
"""array (n,) of `RECORD`."""


class Kind(IntEnum):
    """Kinds of records, and the content of `args`. If no name is listed, `name` is not used."""

    LAUNCH = 1
    """Name of the kernel. Blocks of the grid, threads per block, bytes of shared memory."""
    GEMM = 2
    """Name of the call. m, n, k, batch, transposes (2 a + b), types (a | c << 8 | epilogue << 16 | compute << 32)."""
    COPY = 3
    """Bytes, direction (3: within the GPU, 2: to it, 1: from it, 0: on the host)."""
    FILL = 4
    """Bytes."""
    EVENT_RECORD = 5
    """An event is recorded: its number."""
    STREAM_WAIT = 6
    """The stream waits for an event: its number."""
    MALLOC = 7
    """Bytes, address; in a recording, from the start of the GPU's memory."""
    FREE = 8
    """Bytes, address; in a recording, from the start of the GPU's memory."""
    COLLECTIVE = 9
    """Name. Count, ncclDataType, communicator, op or root or peer, number of the group call (0: none), bytes."""
    HOST_WAIT = 11
    """0: for the device, 1: for the stream of the record, 2: for the event in args[1]."""
    COMMUNICATOR = 12
    """Name. Number, ranks, rank."""
    STREAM_MADE = 13
    """A stream is made: flags, priority."""
    HOST_FUNCTION = 14
    """A function of the host runs in the order of the stream."""
    GRAPH_LAUNCH = 15
    """A CUDA graph is launched: the number of records after this one that are its copies."""


FUNCTIONS: dict[str, tuple[type | None, ...]] = {  # the result, then the arguments
    "log": (c_void_p,),
    "count": (c_uint64,),
    "stamps": (c_void_p,),
    "lost": (c_uint64,),
    "name_of": (c_char_p, c_uint32),
    "names": (c_uint32,),
    "set_op": (None, c_uint32),
    "split_hint": (None, c_int32, c_int32),
    "used": (c_uint64, c_int32),
    "unanswered": (c_char_p, c_uint64),
    "address_range": (None, POINTER(c_uint64), POINTER(c_uint64)),
    "set_times": (None, POINTER(c_uint64), POINTER(c_uint64), c_uint64, c_uint64, c_uint64),
}
"""The functions, whose names begin with `nvcoll_vgpu_`."""
