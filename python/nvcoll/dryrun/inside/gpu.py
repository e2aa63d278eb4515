"""The virtual GPU for the child's Python: its log, and the operator that launches carry.

The library is preloaded, so its functions are functions of the process (`ctypes.CDLL(None)`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nvcoll.dryrun.wire.virtual_gpu import CAPTURED, FUNCTIONS, RECORD, Kind, Records
from nvcoll.errors import DryRunError


class Gpu:
    """The functions of the preloaded library.

    Raises:
        DryRunError: the library is not preloaded.
    """

    def __init__(self) -> None:
        library = ctypes.CDLL(None)
        self._functions: dict[str, Callable[..., Any]] = {}
        for name, (result, *arguments) in FUNCTIONS.items():
            try:
                function = getattr(library, f"nvcoll_vgpu_{name}")
            except AttributeError:
                raise DryRunError(
                    f"the virtual GPU is not preloaded (no `nvcoll_vgpu_{name}`): start dry runs with `nvcoll dryrun`"
                ) from None
            function.restype, function.argtypes = result, arguments
            self._functions[name] = function
        self.set_op = self._functions["set_op"]
        self.split_hint = self._functions["split_hint"]
        self._library, self._kernels = library, dict[str, ctypes.c_void_p]()
        start, length = ctypes.c_uint64(), ctypes.c_uint64()
        self._functions["address_range"](ctypes.byref(start), ctypes.byref(length))
        self.start, self.length = int(start.value), int(length.value)
        """Address of the GPU's memory, and its bytes, of all devices together."""

    def count(self) -> int:
        """Returns the number of records.

        Raises:
            DryRunError: the log is full, and some calls are not in it.
        """
        count = int(self._functions["count"]())
        if self._functions["lost"]():
            raise DryRunError(
                f"the script has issued more than the {count:,} calls of CUDA for which a dry run has space: "
                "have a step do less, or pass fewer --steps"
            )
        return count

    def records(self, first: int = 0, end: int | None = None) -> Records:
        """Returns a copy of records `first` to `end`."""
        end = self.count() if end is None else end
        at = self._functions["log"]() + first * RECORD.itemsize
        buffer = (ctypes.c_char * ((end - first) * RECORD.itemsize)).from_address(at)
        return np.frombuffer(memoryview(buffer), RECORD).copy()

    def launch(self, name: str, stream: int) -> None:
        """Launches a kernel that has only a name, in the place of one whose code is not there."""
        if name not in self._kernels:
            module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
            self._library.cuModuleLoadData(ctypes.byref(module), None)
            self._library.cuModuleGetFunction(ctypes.byref(kernel), module, name.encode())
            self._kernels[name] = kernel
        self._library.cuLaunchKernel(self._kernels[name], *[1] * 6, 0, ctypes.c_void_p(stream), None, None)

    def stamps(self) -> NDArray[np.uint64]:
        """Returns when each record was written, in ns."""
        buffer = (ctypes.c_uint64 * self.count()).from_address(self._functions["stamps"]())
        return np.frombuffer(memoryview(buffer), np.uint64).copy()

    def name(self, index: int) -> str:
        """Returns a name of the log."""
        found = self._functions["name_of"](index)
        return found.decode(errors="replace") if found else ""

    def show(self, times: NDArray[np.uint64], period_ns: int) -> None:
        """Sets the times of the records of the step that begins now: events, profiler and clock show them (second run).

        Args:
            times: array (2, n), uint64: nanoseconds from the begin of the step at which each record begins and ends.
            period_ns: nanoseconds of a step.
        """
        numbers = ctypes.POINTER(ctypes.c_uint64)
        start, end = (row.ctypes.data_as(numbers) for row in np.ascontiguousarray(times, np.uint64))
        self._functions["set_times"](start, end, self.count(), times.shape[1], period_ns)

    def unanswered(self) -> list[str]:
        """Returns the names of called functions that the virtual GPU does not implement: they return success."""
        names: list[str] = []
        while found := self._functions["unanswered"](len(names)):
            names.append(found.decode())
        return sorted(names)

    def written(self, first: int, end: int) -> tuple[Records, list[str], Records]:
        """Returns records, their names, and all records of communicators, in a form that is the same in each run.

        Names are numbered in the order in which the records name them; addresses count from the start of memory.
        """
        records, whole = self.records(first, end), self.records()
        communicators = whole[whole["kind"] == Kind.COMMUNICATOR]
        kinds = records["kind"] & ~np.uint16(CAPTURED)
        memory = np.isin(kinds, (Kind.MALLOC, Kind.FREE))
        records["args"][memory, 1] = np.maximum(records["args"][memory, 1], self.start) - np.uint64(self.start)
        named = np.isin(kinds, (Kind.LAUNCH, Kind.GEMM, Kind.COLLECTIVE, Kind.COMMUNICATOR))
        numbers: dict[str, int] = {}
        number = cache(lambda index: numbers.setdefault(self.name(index), len(numbers)))
        records["name"][named] = [number(index) for index in records["name"][named].tolist()]
        records["name"][~named] = 0
        communicators["name"] = [number(index) for index in communicators["name"].tolist()]
        return records, list(numbers), communicators
