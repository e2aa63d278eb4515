"""Processes that tests start: which run, and whether they end. Every wait has a limit, which only a failure reaches."""

import os
import time

PATIENCE_S = 60
"""How long a process is given to do what it does at once. Chosen."""


def is_running(process: int) -> bool:
    """Says whether a process exists and has not ended."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(is_so) -> None:
    """Waits until something is so; fails if it never is."""
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, "it has not happened"
        time.sleep(0.01)


def wait_for_ends(processes) -> None:
    """Waits until all these processes have ended."""
    wait_until(lambda: not any(is_running(one) for one in processes))


def children() -> set[int]:
    """Returns the processes that this process has started and not collected."""
    threads = os.listdir("/proc/self/task")
    found: set[int] = set()
    for thread in threads:
        with open(f"/proc/self/task/{thread}/children") as file:
            found |= set(map(int, file.read().split()))
    return found
