"""Sizes as nccl-tests writes them: ``64K``, ``1M``, ``1G`` are binary; with a B, ``140GB``, decimal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import inf

from nvcoll._nvcoll import InvalidArgument, Prediction, parse_size
from nvcoll.text.formatting import sized

MOST_SIZES = 1000
"""The most sizes of a sweep. Chosen: more are a slip of the keys."""

PARTS = 16
"""An interval in which the accuracy changes is searched at the ends of this many parts at a time. Chosen."""


def parse(text: str) -> int:
    """Returns the bytes that a size names."""
    return parse_size(text)


def accuracy(found: Sequence[Prediction], predict: Callable[[list[int]], Sequence[Prediction]]) -> str:
    """Returns the accuracy of predictions of rising sizes: once if it is the same for all, else from which size on.

    The sizes at which it changes are searched for between those of ``found``, so that they do not depend on the sweep.

    Args:
        found: predictions of one call on one machine, by size.
        predict: predicts the same call at other sizes.
    """
    parts = [found[0].trust]
    for before, after in pairwise(found):
        if before.trust != after.trust:
            parts.append(f"from {border(before, after, predict)} {after.trust}")
    return "; ".join(parts)


def border(before: Prediction, after: Prediction, predict: Callable[[list[int]], Sequence[Prediction]]) -> str:
    """Returns the smallest size from which the accuracy is that of ``after``, in words."""
    last, first = before.nbytes, after.nbytes
    while first - last > 1:
        tried = sorted({last + (first - last) * nth // PARTS for nth in range(1, PARTS)} - {last})
        for one in predict(tried):
            if one.trust == after.trust:
                first = one.nbytes
                break
            last = one.nbytes
    return sized(first) if first % 1024 == 0 or (first - 1) % 1024 else f"more than {sized(first - 1)}"


def sweep(begin: int, end: int, factor: float | None, step: int | None) -> Iterator[int]:
    """Yields sizes from ``begin`` to at most ``end``: each ``factor`` times the last (default 2), or ``step`` more.

    Raises:
        InvalidArgument: the sweep would not end, is empty, or is longer than anybody waits.
    """
    if factor is not None and step is not None:
        raise InvalidArgument("-f multiplies and -i adds: pass one of them")
    if factor is not None and not 1 < factor < inf:
        raise InvalidArgument(f"-f is {factor:g}: sizes grow only by a factor above 1")
    if step is not None and step < 1:
        raise InvalidArgument("-i is 0: sizes grow only by at least 1 byte")
    if not 0 < begin <= end:
        raise InvalidArgument(f"the sweep goes from {begin} to {end} bytes: -b must be at least 1, and -e at least -b")
    nbytes, count = begin, 0
    while nbytes <= end:
        if count == MOST_SIZES:
            raise InvalidArgument(f"the sweep has more than {MOST_SIZES} sizes: take a larger -f or -i")
        yield nbytes
        count += 1
        nbytes = nbytes + step if step is not None else max(int(nbytes * (factor or 2)), nbytes + 1)
