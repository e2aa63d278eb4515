"""Sizes as nccl-tests writes them: ``64K``, ``1M``, ``1G`` are binary; with a B, ``140GB``, decimal."""

from __future__ import annotations

import re

from nvcoll._nvcoll import InvalidArgument

UNITS = {"": 0, "K": 1, "M": 2, "G": 3}


def parse(text: str) -> int:
    """Returns the bytes that a size names."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)(iB|B)?", text.strip(), re.IGNORECASE)
    if not match:
        raise InvalidArgument(f"`{text}` is not a size: write 4096, 64K, 16MiB or 140GB")
    base = 1000 if (match[3] or "").upper() == "B" and match[2] else 1024
    return int(float(match[1]) * base ** UNITS[match[2].upper()])


def show(nbytes: int) -> str:
    """Returns a size for reading."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if nbytes >= unit:
            return f"{nbytes / unit:g} {name}"
    return f"{nbytes} B"
