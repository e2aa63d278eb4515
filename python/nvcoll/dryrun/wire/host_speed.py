"""The speed of a processor: how fast it runs a loop of Python, as programs that issue work to a GPU do."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

USUAL = 5.6
"""The speed of processors beside GPUs. Fitted to published eager steps by `tools/training/host_judge.py`."""

CALLS, ROUNDS = 2000, 50


def host_speed() -> float:
    """Returns the speed of this processor: millions of calls of a small function in a second, in the best of rounds."""

    def call(number: int, *, again: int) -> int:
        row = {"number": number, "again": again}
        return row["number"] + len(row)

    return CALLS / min(_seconds(call) for _ in range(ROUNDS)) / 1e6


def _seconds(call: Callable[..., int]) -> float:
    begin = perf_counter()
    for number in range(CALLS):
        call(number, again=number)
    return perf_counter() - begin
