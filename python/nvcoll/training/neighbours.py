"""The layouts next to one: a size doubled or halved, the batch kept. What to try next.

Each neighbour changes one thing, and data parallelism takes the GPUs that are left::

    TP 8 PP 4 DP 16 ──┬─ TP 4 PP 4 DP 32      ├─ micro-batch 2
                      ├─ TP 8 PP 2 DP 32      ├─ recompute none, selective, full
                      └─ VP 2, 4, …           └─ ZeRO 3 instead of a pipeline
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from nvcoll.training.layouts import RECOMPUTE
from nvcoll.training.planning import Machine
from nvcoll.training.prediction import StepPrediction
from nvcoll.training.sweep import Candidate, candidate

FASTER: Final = 0.98
"""The most seconds of a neighbour worth a try, in those of the layout. Chosen: less is within the noise of runs."""

Layout = Mapping[str, Any]


def _resized(layout: Layout) -> Iterator[dict[str, Any]]:
    """Yields layouts with one size doubled or halved."""
    for name in ("tensor", "stages", "context", "expert", "micro_batch"):
        yield {**layout, name: 2 * layout[name]}
        if layout[name] % 2 == 0:
            yield {**layout, name: layout[name] // 2}
    if layout["tensor"] % 2 == 0:
        yield {**layout, "tensor": layout["tensor"] // 2, "stages": 2 * layout["stages"]}
    if layout["stages"] % 2 == 0:
        yield {**layout, "tensor": 2 * layout["tensor"], "stages": layout["stages"] // 2}


def _otherwise(layout: Layout) -> Iterator[dict[str, Any]]:
    """Yields layouts with other chunks, recomputation or sharding."""
    if layout["stages"] > 1:
        for chunks in {1, 2, 4, layout["chunks"]} - {layout["chunks"]}:
            yield {**layout, "chunks": chunks, "schedule": "1f1b" if chunks == 1 else "interleaved"}
    for parts in RECOMPUTE.values():
        yield {**layout, "recompute": dict(parts)}
    if layout["stages"] == 1:
        yield {**layout, "sharding": "parameters"}
        yield {**layout, "sharding": "optimizer"}


def _whole(layout: dict[str, Any]) -> dict[str, Any] | None:
    """Gives data parallelism the GPUs that the other sizes leave; None if they leave no whole number."""
    others = layout["tensor"] * layout["stages"] * layout["context"]
    if layout["gpus"] % others:
        return None
    if layout["stages"] == 1:
        layout |= {"chunks": 1, "schedule": "1f1b"}
    sharded = (
        {} if "shard_ranks" not in layout else {"shard_ranks": min(layout["shard_ranks"], layout["gpus"] // others)}
    )
    return {**layout, "data": layout["gpus"] // others, **sharded}


def neighbours(machine: Machine, prediction: StepPrediction) -> list[Candidate]:
    """Returns the layouts next to that of a prediction that are possible, fit or are tight, and are faster; best first.

    If the layout does not fit, slower ones that fit are returned, too.

    Args:
        machine: the machine of the prediction.
        prediction: a prediction of `nvcoll.training.plan`.
    """
    request = prediction.request
    layouts = [
        whole for one in (*_resized(request["layout"]), *_otherwise(request["layout"])) if (whole := _whole(one))
    ]
    known = [one for one in layouts if one != request["layout"]]
    answers = machine.pricer.price_all([json.dumps({**request, "layout": one}) for one in known])
    prices = zip(known, map(json.loads, answers), strict=True)
    found = [candidate(machine.gpus, layout, price) for layout, price in prices if "error" not in price]
    most = FASTER * prediction.seconds if prediction.fit != "too_large" else float("inf")
    worth = [one for one in found if one.fit != "too_large" and one.seconds < most]
    return sorted(worth, key=lambda one: one.seconds)
