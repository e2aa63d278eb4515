"""What the collectives of a step carry: bytes and seconds of one GPU, by the parallelism that needs them.

The price of a step has each collective once, with its price. `traffic` multiplies by repetitions: of the block in a
role, of micro-batches, of layers that are computed again. Where roles differ, the role with the most seconds counts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nvcoll._nvcoll import CollectivePrice, StepPrediction

PARALLELISM = {
    "tp": "tensor",
    "cp": "context",
    "ep": "expert",
    "dp": "data",
    "shard": "data",
    "copies": "data",
    "edp": "data",
    "pp": "pipeline",
}
"""The parallelism of a group of ranks that the planner names."""

EXPOSED = {
    "tensor": ("tensor",),
    "context": ("context",),
    "expert": ("expert",),
    "data": ("data", "sharded"),
    "pipeline": ("sends",),
}
"""The parts of the step's time that are what nothing hides of a parallelism."""

INSIDE = ("nvlink", "xgmi")
"""Families of links that collectives take inside a node, if it has them."""

WHOLE = 0.999
"""The part of the GEMMs of a layer from which on it is computed again as a whole, with its collectives."""


@dataclass
class Traffic:
    """What one kind of parallelism carries in a step.

    Attributes:
        name: the parallelism; for a group that the planner does not know, the name of the group.
        ranks: where the ranks of its groups are.
        gb: bytes of one GPU, as nccl-tests counts them, in GB.
        seconds: seconds of its collectives, if nothing hid them.
        exposed_s: seconds that nothing hides, with what computing loses beside it; None if not known.
    """

    name: str
    ranks: list[str] = field(default_factory=list)
    gb: float = 0.0
    seconds: float = 0.0
    exposed_s: float | None = None

    @property
    def is_in_node(self) -> bool:
        """Whether it stays inside nodes."""
        return all("of one node" in ranks for ranks in self.ranks)

    @property
    def is_wide(self) -> bool:
        """Whether some nodes have several ranks of a group."""
        return any(not ranks.startswith("one GPU") for ranks in self.ranks)


def traffic(found: StepPrediction) -> list[Traffic]:
    """Returns what each kind of parallelism carries in a step."""
    step = json.loads(found.step.to_json())
    totals: dict[str, Traffic] = {}
    for role in step["streams"]["ranks"] if "streams" in step else step["layers"]["roles"]:
        of_role: dict[str, Traffic] = {}
        for one, calls in _calls(found.collectives, step, role):
            name = PARALLELISM.get(one.group, one.group)
            total = of_role.setdefault(name, Traffic(name))
            total.gb += calls * one.bytes / 1e9
            total.seconds += calls * one.seconds
            if one.exposed_s is not None:
                total.exposed_s = (total.exposed_s or 0.0) + one.exposed_s
            total.ranks += [] if one.ranks in total.ranks else [one.ranks]
        for name, total in of_role.items():
            totals[name] = max(totals.get(name, total), total, key=lambda each: each.seconds)
    for name, total in totals.items():
        parts = EXPOSED.get(name)
        if total.exposed_s is None and parts:
            total.exposed_s = sum(found.parts.get(part, 0.0) for part in parts)
    return sorted(totals.values(), key=lambda each: -each.seconds)


def _calls(
    collectives: Sequence[CollectivePrice], step: Mapping[str, Any], role: Mapping[str, Any]
) -> Iterator[tuple[CollectivePrice, float]]:
    """Yields collectives of a role with the number of their calls in a step."""
    if "streams" in step:
        yield from ((one, one.count) for one in collectives if one.of == role["name"])
        return
    pipeline, blocks = step["layers"]["pipeline"], step["layers"]["blocks"]
    micro_batches = pipeline["micro_batches"]
    repeats: Counter[str] = Counter()
    for run in (run for chunk in role["chunks"] for run in chunk):
        repeats[run["block"]] += run["repeat"]
    for one in collectives:
        if one.pass_ == "pipeline":
            yield one, 2 * one.count * micro_batches * pipeline["chunks"]
        elif one.pass_ == "once" and one.of == role["name"]:
            yield one, one.count
        elif one.pass_ != "once" and repeats[one.of]:
            is_again = one.pass_ == "forward" and blocks[one.of]["recompute"]["gemm"] >= WHOLE
            yield one, one.count * repeats[one.of] * micro_batches * (2 if is_again else 1)


def busy(found: Iterable[Traffic], step_s: float, families: Container[str]) -> dict[str, float]:
    """Returns the part of the step in which links carry collectives, by family of links, at most 1.

    Inside nodes, collectives take the fastest family. Between nodes they take the network, and PCIe up to the cards.

    Args:
        found: what `traffic` returns.
        step_s: seconds of the step.
        families: the families of links of the machine.
    """
    inside = next((family for family in INSIDE if family in families), "pcie")
    shares: dict[str, float] = {}
    for one in found:
        used = {inside} if one.is_in_node else {"network", "pcie"} | ({inside} if one.is_wide else set())
        for family in used:
            shares[family] = min(1.0, shares.get(family, 0.0) + one.seconds / step_s)
    return shares
