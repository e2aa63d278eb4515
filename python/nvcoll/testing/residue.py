"""What a process has open, as Linux lists it: a test looks before and after.

Nothing that nvcoll shares has a name, so that after any death nothing is left: no descriptor and no mapping in the
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
"""How long threads and processes are given to end. Chosen: far more than that takes; only a leak takes so long."""


kept: dict[int, int] = {}
"""Processes that nvcoll.testing keeps for the next run, with the descriptor by which it talks to each: no residue."""


class Residue(NamedTuple):
    """Numbers of what is open: descriptors, mappings of memory that ranks share, threads, processes, shared files.

    ``bool`` says whether there is anything.
    """

    descriptors: int = 0
    maps: int = 0
    threads: int = 0
    processes: int = 0
    files: int = 0

    def __bool__(self) -> bool:
        return any(self)

    def since(self, before: Residue) -> Residue:
        """Returns what has come since an earlier look; less of something counts as nothing."""
        return Residue(*(max(0, now - then) for now, then in zip(self, before, strict=True)))


def residue() -> Residue:
    """Counts what this process has open now."""
    with open("/proc/self/maps") as maps:
        shared = sum("memfd:nvcoll" in line for line in maps)
    files = sum("nvcoll" in name for name in os.listdir("/dev/shm"))
    threads = len(os.listdir("/proc/self/task"))
    descriptors = len(os.listdir("/proc/self/fd")) - len(kept)
    return Residue(descriptors, shared, threads, len(children() - kept.keys()), files)


def residue_since(before: Residue, patience_s: float = PATIENCE_S) -> Residue:
    """Returns what has come since an earlier look, and stays although it is given time to go."""
    gc.collect()
    end = time.monotonic() + patience_s
    while (more := residue().since(before)) and time.monotonic() < end:
        time.sleep(0.002)
    return more


@contextlib.contextmanager
def no_residue(patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Fails if the block leaves anything open in this process.

    Args:
        patience_s: seconds that threads and processes are given to end after the block.

    Raises:
        AssertionError: it says of what there is more than before.
    """
    gc.collect()
    before = residue()
    yield
    more = residue_since(before, patience_s)
    assert not more, f"the block left {more}"


def children() -> set[int]:
    """Returns the processes that this process has started and not collected."""
    found: set[int] = set()
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(FileNotFoundError), open(f"/proc/self/task/{thread}/children") as file:
            found |= set(map(int, file.read().split()))
    return found


def is_running(process: int) -> bool:
    """Says whether a process exists and has not ended."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False
