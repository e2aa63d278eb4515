"""The second pass of a script, in the child: its profiler, its events and its clock show predicted times.

The first pass recorded a step, and a machine priced it. Now the script runs again, to its own end. At the start of each
step from the counted one on, the virtual GPU is told when each record of the step runs (`nvcoll.dryrun.times`)::

    step 1    warm-up, no times
    step 2    told: records of this step, and all that follow, have the predicted times
    step 3    told: one period later
"""

from __future__ import annotations

import ctypes

import numpy as np

from nvcoll.dryrun.gpu import Gpu
from nvcoll.errors import DryRunError

U64 = ctypes.c_uint64


class SecondPass:
    """Tells the virtual GPU the times of each step.

    Args:
        gpu: the virtual GPU.
        path: the file of times.
        period_ns: nanoseconds of a step.
        first: the first step that has times, from 1.

    Raises:
        DryRunError: the library of the virtual GPU cannot be told times.
    """

    def __init__(self, gpu: Gpu, path: str, period_ns: int, first: int) -> None:
        self._gpu, self._period_ns, self._first = gpu, period_ns, first
        self._start, self._end = np.ascontiguousarray(np.load(path), np.uint64)
        try:
            self._set_times = ctypes.CDLL(None).nvcoll_vgpu_set_times
        except AttributeError:
            raise DryRunError(
                "the virtual GPU that is preloaded has no clock: start dry runs with nvcoll dryrun"
            ) from None
        pointer = ctypes.POINTER(U64)
        self._set_times.argtypes, self._set_times.restype = (pointer, pointer, U64, U64, U64), None

    def ended(self, step: int) -> None:
        """Is told that a step has ended; the next one may have times."""
        if step + 1 >= self._first:
            start, end = (array.ctypes.data_as(ctypes.POINTER(U64)) for array in (self._start, self._end))
            self._set_times(start, end, self._gpu.count(), len(self._start), self._period_ns)
