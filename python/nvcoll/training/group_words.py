"""The part of a layout that frameworks mean by the name of a process group."""

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
