"""Facts of a dry run beside the step: script, versions, counts, groups, assumptions. JSON, for reports and files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from nvcoll.dryrun import roles
from nvcoll.dryrun.groups import shapes_of
from nvcoll.dryrun.launch import Request
from nvcoll.dryrun.recording import Recording, Run
from nvcoll.dryrun.totals import Totals
from nvcoll.dryrun.wire import CAPTURED, Kind

Facts = dict[str, Any]

ALONE = "the script does not call torch.distributed: one GPU"
"""The fact of a script that made no process group."""


def facts_of(request: Request, recordings: Sequence[Recording], runs: Sequence[Run]) -> Facts:
    """Returns the facts of a recording.

    Args:
        request: the request.
        recordings: those of the ranks that ran at the same time.
        runs: how these ranks ended.
    """
    ranks = [one.rank for one in recordings]
    stands_for = roles.stand_for(ranks, request.world_size)
    names = roles.names_of(ranks, recordings)
    totals = Totals.of(recordings, stands_for)
    first = recordings[0]
    shapes = [shape for one in shapes_of(recordings) for shape in one.values()]
    return {
        "script": request.words,
        "world_size": request.world_size,
        "gpu": request.gpu.name,
        "gpu_title": request.gpu.title,
        "versions": first.versions,
        "optimizer": first.optimizer,
        "ranks": [
            {"name": name, "stands_for": count, **_of_rank(one, run)}
            for one, run, name, count in zip(recordings, runs, names, stands_for, strict=True)
        ],
        "groups": _groups(recordings),
        "tokens": totals.found,
        "model_flops": totals.model_flops,
        "hardware_flops": totals.hardware_flops,
        "flops": Totals.of([first], [1]).hardware_flops,
        "assumed": [
            {"text": one.text, "line": first.lines[one.line], "times": one.times}
            for one in {(one.text, one.line): one for each in recordings[:1] for one in each.assumed}.values()
        ]
        + [
            {"text": text, "line": "", "times": 1}
            for text in dict.fromkeys(one.assumed for one in shapes if one.assumed)
        ],
        "alone": ALONE if first.is_alone and request.world_size == 1 else "",
        "ddp_waits": first.ddp_waits,
        "without_gradients": first.without_gradients,
        "saves": first.saves,
        "growth": first.growth,
        "unanswered": sorted({name for one in recordings for name in one.unanswered}),
    }


def _of_rank(recording: Recording, run: Run) -> Facts:
    rows = recording.records[(recording.records["kind"] & CAPTURED) == 0]
    kinds = Counter(rows["kind"].tolist())
    work = rows[[kind in (Kind.LAUNCH, Kind.GEMM, Kind.COLLECTIVE) for kind in rows["kind"].tolist()]]
    return {
        "rank": recording.rank,
        "steps": run.steps,
        "launches": kinds[Kind.LAUNCH],
        "products": kinds[Kind.GEMM],
        "calls": kinds[Kind.COLLECTIVE],
        "host_waits": kinds[Kind.HOST_WAIT],
        "streams": len(set(work["stream"].tolist())),
        "host_ops": recording.host_ops,
        "allocated": recording.memory.allocated,
        "reserved": recording.memory.reserved,
        "capacity": recording.memory.capacity,
    }


def _groups(recordings: Sequence[Recording]) -> list[Facts]:
    """Returns the groups that communicate, each once."""
    found: dict[str, Facts] = {}
    for one, shapes in zip(recordings, shapes_of(recordings), strict=True):
        for number, shape in shapes.items():
            group = one.groups[number]
            known = {"name": shape.name, "called": group.name, **shape.row}
            found.setdefault(shape.name, known | {"first": min(group.ranks)})
    return sorted(found.values(), key=lambda row: (row["stride"], row["size"], row["name"]))
