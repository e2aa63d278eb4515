"""Counts the resources that a process has open, as Linux lists them. A test counts before and after a run.

No resource that nvcoll shares has a name. So a death leaves nothing open: no descriptor and no mapping in the
survivors, no thread, no process, no file in ``/dev/shm``.
"""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Iterator
from typing import NamedTuple

PATIENCE_S = 5.0
"""The time that threads and processes have to end. Chosen: far more than they need; only a leak takes so long."""


kept: dict[int, int] = {}
"""Processes that nvcoll.testing keeps for the next run, each with the number of its descriptors. Neither is residue."""


class Residue(NamedTuple):
    """Numbers of open resources: descriptors, mappings of memory that ranks share, threads, processes, shared files.

    ``bool`` is true if any number is above 0.
    """

    descriptors: int = 0
    maps: int = 0
    threads: int = 0
    processes: int = 0
    files: int = 0

    def __bool__(self) -> bool:
        return any(self)

    def since(self, before: Residue) -> Residue:
        """Returns the increase since an earlier count. A decrease counts as 0."""
        return Residue(*(max(0, now - then) for now, then in zip(self, before, strict=True)))


def residue() -> Residue:
    """Counts the resources that this process has open now."""
    with open("/proc/self/maps") as maps:
        shared = sum("memfd:nvcoll" in line for line in maps)
    files = sum("nvcoll" in name for name in os.listdir("/dev/shm"))
    threads = len(os.listdir("/proc/self/task"))
    descriptors = len(os.listdir("/proc/self/fd")) - sum(kept.values())
    return Residue(descriptors, shared, threads, len(children() - kept.keys()), files)


def residue_since(before: Residue, patience_s: float = PATIENCE_S) -> Residue:
    """Returns the increase since an earlier count. Waits for resources to close, at most ``patience_s`` seconds."""
    gc.collect()
    end = time.monotonic() + patience_s
    while (more := residue().since(before)) and time.monotonic() < end:
        time.sleep(0.002)
    return more


@contextlib.contextmanager
def no_residue(patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Fails if the block leaves anything open in this process.

    Args:
        patience_s: seconds that threads and processes have to end after the block.

    Raises:
        AssertionError: the process has more open than before. The message gives the increase of each number.
    """
    gc.collect()
    before = residue()
    yield
    more = residue_since(before, patience_s)
    assert not more, f"the block left {more}"


def children() -> set[int]:
    """Returns the children of this process that it has not waited for."""
    found: set[int] = set()
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/self/task/{thread}/children") as file:
            found |= set(map(int, file.read().split()))
    return found
