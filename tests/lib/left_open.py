"""What this process has open, as Linux lists it: a test of leaks looks before and after."""

import contextlib
import ctypes
import gc
import os
import time
from typing import NamedTuple

import pytest

needs_lists = pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="counts what Linux lists")

PATIENCE_S = 20
"""How long threads are given to end. Chosen: far more than that takes; only a leak takes so long."""


class LeftOpen(NamedTuple):
    """Threads, file descriptors and mapped regions."""

    threads: int
    descriptors: int
    regions: int


def left_open(threads: int = 0) -> LeftOpen:
    """Counts. A thread is listed a moment longer than it runs, also after it was joined.

    Args:
        threads: more than so many are given time to end.
    """
    gc.collect()
    end = time.monotonic() + (PATIENCE_S if threads else 0.1)
    while (running := len(os.listdir("/proc/self/task"))) > threads and time.monotonic() < end:
        time.sleep(0.005)
    with open("/proc/self/maps") as maps:
        return LeftOpen(running, len(os.listdir("/proc/self/fd")), len(maps.readlines()))


def assert_nothing_was_left(before: LeftOpen, rounds: int) -> None:
    """Fails if each of so many rounds left something.

    What other tests left may end meanwhile. The allocator and the cache of stacks map and unmap some regions as threads
    happen to run side by side, so of regions one a round is looked for.
    """
    after = left_open(before.threads)
    assert after.threads <= before.threads and after.descriptors <= before.descriptors, (before, after)
    assert after.regions < before.regions + rounds, (before, after)


def resident_bytes() -> int:
    """Returns how much memory this process has touched and not given back, but not what the allocator keeps."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")
