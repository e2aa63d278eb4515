"""Threads of a test, and programs of ranks that are threads and fail."""

from concurrent.futures import ThreadPoolExecutor

import pytest


def in_threads(*calls) -> list:
    """Makes all calls at once, each in a thread; returns their results, or raises what the first of them raised."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [one.result() for one in [pool.submit(call) for call in calls]]


def ends_of(node, program):
    """Runs a program that fails; returns what each rank raised, by rank, and what the run raised."""
    seen = {}

    def watched(comm):
        try:
            program(comm)
        except Exception as error:
            seen[comm.rank] = error
            raise

    with pytest.raises(Exception) as caught:
        node.run(watched, timeout=60)
    return seen, caught.value
