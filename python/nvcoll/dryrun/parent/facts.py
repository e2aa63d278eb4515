"""Facts of a dry run beside the step: script, versions, counts, groups, assumptions. JSON, for reports and files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from nvcoll.dryrun.parent import roles
from nvcoll.dryrun.parent.launch import Request
from nvcoll.dryrun.parent.recording import Assumed, Facts, Pass, RankFacts, ServedFacts
from nvcoll.dryrun.parent.step import Made
from nvcoll.dryrun.wire.rank_recording import RankRecording, Run
from nvcoll.dryrun.wire.served import Served
from nvcoll.dryrun.wire.virtual_gpu import CAPTURED, Kind

ALONE = "the script does not call torch.distributed: one GPU"
"""The fact of a script that made no process group."""


def facts_of(request: Request, recordings: Sequence[RankRecording], runs: Sequence[Run], made: Made) -> Facts:
    """Returns the facts of a recording.

    Args:
        request: the request.
        recordings: of the ranks that ran at the same time.
        runs: how these ranks ended.
        made: the step that was made of them.
    """
    ranks = [one.rank for one in recordings]
    stands_for = roles.stand_for(ranks, request.world_size)
    names = roles.names_of(ranks, recordings)
    first = recordings[0]
    found: Facts = {
        "script": request.words,
        "world_size": request.world_size,
        "gpu": request.gpu.name,
        "gpu_title": request.gpu.title,
        "versions": first.versions,
        "optimizer": first.optimizer,
        "ranks": [
            _of_rank(one, run, name, count)
            for one, run, name, count in zip(recordings, runs, names, stands_for, strict=True)
        ],
        "groups": made.groups,
        "tokens": made.tokens,
        "model_flops": made.step.model_flops,
        "hardware_flops": made.step.flops(),
        "flops": made.step.flops(0),
        "assumed": [
            *(Assumed(text=one.text, line=first.lines[one.line], times=one.times) for one in first.assumed),
            *(Assumed(text=text, line="", times=1) for text in made.notes),
        ],
        "alone": ALONE if first.is_alone and request.world_size == 1 else "",
        "ddp_waits": first.ddp_waits,
        "without_gradients": first.without_gradients,
        "passes": _passes(first, made.places[0]),
        "saves": first.saves,
        "growth": first.growth,
        "unanswered": sorted({name for one in recordings for name in one.unanswered}),
    }
    if first.served is not None:
        found["served"] = _served(first.served)
    return found


def _served(one: Served) -> ServedFacts:
    return {
        "kind": one.kind,
        "words": one.words,
        "server": one.server,
        "sequences": len(one.new),
        "context": one.context,
        "tokens": sum(one.new),
        "pairs": one.pairs(),
        "kv_tokens": one.cache.tokens,
        "kv_bytes": one.cache.bytes,
        "longest": one.cache.context,
    }


def _passes(recording: RankRecording, places: Sequence[int]) -> list[Pass]:
    """Returns the passes of a rank that has some without gradients."""
    if not any(line for _, line in recording.passes):
        return []
    ops = recording.records["op"][(recording.records["kind"] & CAPTURED) == 0].tolist()
    placed = [(op, place) for op, place in zip(ops, places, strict=True) if place >= 0]
    return [
        Pass(line=line, first=next((place for op, place in placed if op >= number), placed[-1][1]))
        for number, line in recording.passes
    ]


def _of_rank(recording: RankRecording, run: Run, name: str, stands_for: int) -> RankFacts:
    rows = recording.records[(recording.records["kind"] & CAPTURED) == 0]
    kinds = Counter(rows["kind"].tolist())
    work = rows[[kind in (Kind.LAUNCH, Kind.GEMM, Kind.COLLECTIVE) for kind in rows["kind"].tolist()]]
    return {
        "name": name,
        "stands_for": stands_for,
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
