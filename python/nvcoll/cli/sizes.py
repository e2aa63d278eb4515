"""Sizes as nccl-tests writes them: ``64K``, ``1M``, ``1G`` are binary; with a B, ``140GB``, decimal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import Annotated, Any

import typer

from nvcoll._nvcoll import InvalidArgument, parse_size

MOST_SIZES = 1000
"""The most sizes of a sweep. Chosen: more are a slip of the keys."""


def begin(default: str) -> Any:
    """Returns the option ``-b`` of a command."""
    words = f"Size, as nccl-tests counts it: 64K, 1M; 140G is binary, 140GB decimal. Repeatable. Default: {default}."
    return typer.Option("-b", "--minbytes", help=words)


End = Annotated[str | None, typer.Option("-e", "--maxbytes", help="Last size of a sweep that begins at -b.")]
Factor = Annotated[float | None, typer.Option("-f", "--stepfactor", help="Factor between sizes; default: 2.")]


def parse(text: str) -> int:
    """Returns the bytes that a size names."""
    return parse_size(text)


def of(begin: Sequence[str] | None, end: str | None, factor: float | None, default: Sequence[int]) -> list[int]:
    """Returns the sizes of ``-b``, ``-e`` and ``-f``, each once; the default if none is given.

    Raises:
        InvalidArgument: one that is no size, or that would be ignored.
    """
    if end is None:
        if factor is not None:
            raise InvalidArgument("-f is the factor of a sweep: pass -e, its last size")
        return list(dict.fromkeys(map(parse, begin))) if begin else [*default]
    if len(begin or ()) != 1:
        raise InvalidArgument("-e ends a sweep: pass -b once, where it begins")
    return list(sweep(parse((begin or ())[0]), parse(end), factor))


def sweep(begin: int, end: int, factor: float | None) -> Iterator[int]:
    """Yields sizes from ``begin`` to at most ``end``: each ``factor`` times the last (default 2).

    Raises:
        InvalidArgument: the sweep would not end, is empty, or is longer than anybody waits.
    """
    if factor is not None and not 1 < factor < inf:
        raise InvalidArgument(f"-f is {factor:g}: sizes grow only by a factor above 1")
    if not 0 < begin <= end:
        raise InvalidArgument(f"the sweep goes from {begin} to {end} bytes: -b must be at least 1, and -e at least -b")
    nbytes, count = begin, 0
    while nbytes <= end:
        if count == MOST_SIZES:
            raise InvalidArgument(f"the sweep has more than {MOST_SIZES} sizes: take a larger -f")
        yield nbytes
        count += 1
        nbytes = max(int(nbytes * (factor or 2)), nbytes + 1)
