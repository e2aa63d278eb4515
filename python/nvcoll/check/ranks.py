"""The number of ranks of a table: what a header or a command tells, within what busbw permits.

busbw = algbw x f(n) and algbw = size / time, with f(n) = 2 (n - 1) / n for all_reduce, (n - 1) / n for gathers and
scatters and 1 for the rest. Printed digits leave an interval of f(n), so a range of n: at 1.1 GB/s, 15 to 17 ranks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import ceil, floor, inf

Interval = tuple[float, float]

MOST_RANKS = 1 << 20
"""The most ranks that are believed. Chosen."""

ROUNDING = 1e-9
"""The relative error of computed numbers with all their digits. Chosen."""

_DIGITS = re.compile(r"[-+]?\d*\.?(\d*)(?:e([-+]?\d+))?", re.IGNORECASE)
_COMMAND = re.compile(r"\b(?:mpirun|mpiexec|prun|srun)\b.*?\s(?:--?np|-n|--ntasks)[= ]?(\d{1,6})\b|\s--?np (\d{1,6})\b")
_PER_PROCESS = re.compile(r"\s(?:-[gt]|--n(?:gpus|threads))[= ]?(\d{1,4})\b")


def as_printed(word: str, unit: float = 1.0) -> Interval:
    """Returns the numbers that are printed so."""
    value, digits = float(word), _DIGITS.fullmatch(word)
    half = 10.0 ** (int(digits[2] or 0) - len(digits[1])) / 2 if digits else 0.0
    half = max(half, abs(value) * ROUNDING)
    return max(value - half, 0.0) * unit, (value + half) * unit


def common(intervals: Iterable[Interval | None]) -> Interval | None:
    """Returns what intervals have in common; None if they have nothing, or there are none."""
    known = [one for one in intervals if one is not None]
    least, most = max((one[0] for one in known), default=inf), min((one[1] for one in known), default=-inf)
    return (least, most) if least <= most else None


def factor_of(algbw: Interval, busbw: Interval) -> Interval | None:
    """Returns the interval of busbw / algbw."""
    return (busbw[0] / algbw[1], busbw[1] / algbw[0]) if algbw[0] > 0 else None


def permitted(collective: str | None, factor: Interval | None) -> tuple[int, int] | None:
    """Returns the least and the most ranks that busbw / algbw permits; None if it permits any, or none."""
    if factor is None or collective in (None, "broadcast", "reduce", "sendrecv"):
        return None
    low, high = (one / 2 if collective == "all_reduce" else one for one in factor)
    if low >= 1:
        return None
    least = ceil(1 / (1 - low) - ROUNDING)
    most = floor(1 / (1 - high) + ROUNDING) if high < 1 - 1 / MOST_RANKS else MOST_RANKS
    return (least, most) if least <= most else None


def is_any(factor: Interval | None) -> bool:
    """Says whether busbw / algbw is of any number of ranks."""
    return factor is not None and (
        factor[0] <= 1 <= factor[1] or any(permitted(one, factor) for one in ("all_reduce", "all_gather"))
    )


def plainest(least: int, most: int) -> int | None:
    """Returns the number of a range with the largest power of two; None if the range is wide."""
    return max(range(least, most + 1), key=lambda number: number & -number) if most < 2 * least else None


def commanded(line: str) -> int | None:
    """Returns the number of ranks that the command of a run starts."""
    launcher, _, options = line.partition("_perf")
    found = _COMMAND.search(launcher)
    if found is None:
        return None
    ranks = int(found[1] or found[2])
    for each in _PER_PROCESS.findall(options):
        ranks *= int(each)
    return ranks
