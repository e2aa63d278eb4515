"""Sizes as nccl-tests writes them: ``64K``, ``1M``, ``1G`` are binary; with a B, ``140GB``, decimal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import groupby
from math import inf

from nvcoll._nvcoll import InvalidArgument, Prediction
from nvcoll.formatting import sized

UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}

MOST_BYTES = 2**56
"""More than any machine has, and few enough to compute with. Chosen."""

MOST_SIZES = 1000
"""How many sizes a sweep may have. Chosen: whoever asks for more has mistyped."""


def parse(text: str) -> int:
    """Returns the bytes that a size names."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(iB|B)?", text.strip(), re.IGNORECASE)
    if match and (match[3] or "").endswith("b"):
        raise InvalidArgument(f"`{text}` is bits: write {text.strip()[:-1]}B for bytes, or an eighth of it")
    if not match:
        raise InvalidArgument(f"`{text}` is not a size: write 4096, 64K, 16MiB or 140GB")
    base = 1000 if (match[3] or "").upper() == "B" and match[2] else 1024
    nbytes = int(Decimal(match[1]) * base ** UNITS[match[2].upper()])
    if nbytes > MOST_BYTES:
        raise InvalidArgument(f"`{text}` is more than any machine has: use a smaller size")
    return nbytes


def trusted(found: Sequence[Prediction]) -> str:
    """Returns how predictions of rising sizes are known: once if of all alike, else from which size on."""
    first, *others = [next(run) for _, run in groupby(found, key=lambda one: one.trust)]
    return "; ".join([first.trust, *(f"from {sized(one.nbytes)} {one.trust}" for one in others)])


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
