"""The meaning of names that frameworks give to process groups and kernels."""

from __future__ import annotations

import re

WORDS = {
    "tp": ("tp", "tensor"),
    "cp": ("cp", "context", "sequence"),
    "ep": ("ep", "expert", "moe"),
    "pp": ("pp", "pipe", "pipeline", "stage"),
    "shard": ("shard", "fsdp", "zero"),
    "copies": ("replicate", "replica", "copies"),
    "dp": ("dp", "data", "ddp"),
}
"""Names of the parts of a layout, with the words of frameworks for them."""


def word_of(description: str) -> str | None:
    """Returns the part of the layout that a description of a group names; None: it names none, or several."""
    said = set(re.split(r"[^a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", description).lower()))
    found = [word for word, names in WORDS.items() if said & set(names)]
    if found == ["shard", "dp"] or found == ["copies", "dp"]:  # dp_shard, dp_replicate
        return found[0]
    if found == ["tp", "ep"]:  # experts whose matrices are sharded, too
        return "ep"
    if found == ["cp", "dp"]:  # gradients are reduced over cp, too
        return "dp"
    if found == ["cp", "shard", "dp"] or found == ["cp", "shard"]:  # parameters are sharded over cp, too
        return "shard"
    return found[0] if len(found) == 1 else None


PARTS = {
    "optimizer": ("optimizer", "adam", "_fused_sgd", "_foreach_"),
    "attention": ("attention", "flash", "fmha"),
    "gemm": ("gemm", "nvjet", "cutlass"),
}
"""Parts of the time of a step, with words in the names of their kernels."""


def part_of(kernel: str) -> str | None:
    """Returns the part of the time that the name of a kernel tells; None: other work."""
    return next((part for part, words in PARTS.items() if any(word in kernel for word in words)), None)


def moved(name: str, nbytes: float) -> dict[str, object]:
    """Returns the work of a kernel that moves bytes, by its name: those of optimizers stream."""
    part = part_of(name)
    rate = {"rate": "stream"} if part == "optimizer" else {}
    return {"work": "move", "bytes": nbytes} | ({"part": part} if part else {}) | rate


def timed(name: str, seconds: float) -> dict[str, object]:
    """Returns the work of a kernel of known time, by its name."""
    part = part_of(name)
    return {"work": "timed", "seconds": seconds} | ({"part": part} if part else {})
