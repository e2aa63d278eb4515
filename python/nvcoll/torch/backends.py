"""The same calls as a ``Backend`` of torch, which torch 2.14 and later let Python make.

A `Backend` is one device's part of a process group of torch. nvcoll puts one into its own process groups, because parts
of torch look for it there.
"""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from torch._C import _distributed_c10d

import nvcoll
from nvcoll.torch.calls import Calls

Backend: Any = None
"""The class; None where torch lets only C++ make one."""

if hasattr(_distributed_c10d.Backend, "__init__") and not TYPE_CHECKING:

    class _Backend(Calls, _distributed_c10d.Backend):
        """The CPU's part of a process group.

        Args:
            comm: the communicator of its ranks.
            timeout: of each call.
        """

        def __init__(self, comm: nvcoll.Communicator, timeout: timedelta) -> None:
            super().__init__(comm.rank, comm.world_size)
            self._comm = comm
            self._turn = threading.Lock()
            self.set_timeout(timeout)

        def name(self) -> str:
            return "nvcoll"

        def getBackendName(self) -> str:
            return "nvcoll"

        def set_timeout(self, timeout: timedelta) -> None:
            self._timeout_s = timeout.total_seconds()

        def abort(self) -> None:
            self._comm.abort()

        def shutdown(self) -> None:
            return None

    try:
        _distributed_c10d.Backend(0, 1)
        Backend = _Backend
    except TypeError:
        pass
