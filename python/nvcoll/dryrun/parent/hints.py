"""Hints from a recording and its prediction: each is a rule with a threshold, and names a number."""

from __future__ import annotations

from collections import Counter

from nvcoll._nvcoll import StepPrediction
from nvcoll.dryrun.parent.recording import Facts
from nvcoll.text.formatting import sized
from nvcoll.training.prediction import PARTS

HOST_BOUND = 0.1
"""The least share of the step in which a GPU waits for the processor that gives a hint. Chosen."""

EXPOSED = 0.1
"""The least share of exposed communication that gives a hint. Chosen."""

SLACK = 0.2
"""The least share of reserved memory outside of tensors at the peak that gives a hint. Chosen."""

NEARLY_FULL = 0.9
"""The share of a GPU's memory above which a step that fits gets a hint: above it a planned step only may fit."""

SMALL_BYTES = 1 << 20
"""Collectives of fewer bytes are bound by latency. Chosen: at 64 KiB an all_reduce over several nodes takes as long."""

MANY = 50
"""The least number of small collectives of a kind that gives a hint. Chosen."""

UNTRAINED = 0.01
"""The least share of FLOPs without gradients that gives a hint. Chosen: rotary embeddings make tiny products so."""

FEWER = "torch.compile, CUDA graphs or a larger micro-batch have fewer launches"
FEWER_OF_SERVERS = "CUDA graphs have fewer launches (no enforce_eager), more requests at once more work for each"
BUCKETS = "larger buckets overlap less, smaller ones are slower: try bucket_cap_mb"
DDP_WAITS = "torch's NCCL backend has DDP wait for each bucket: TORCH_DIST_USE_NCCL2=0 overlaps (docs/train/dryrun.md)"


def hints(facts: Facts, found: StepPrediction) -> list[str]:
    """Returns hints, the largest gain first."""
    found_hints: list[tuple[float, str]] = []
    host = found.parts.get("host", 0.0) / found.seconds
    if host >= HOST_BOUND:
        what = f"{100 * host:.0f} % of the step waits for the processor to launch kernels"
        found_hints.append((host, f"{what}: {FEWER_OF_SERVERS if 'served' in facts else FEWER}"))
    for part, advice in (
        ("sharded", f"prefetch or wrap larger units{', or shard within a node (HSDP)' * _is_wide(found, 'shard')}"),
        ("data", DDP_WAITS if facts["ddp_waits"] else BUCKETS),
        ("tensor", f"fewer tensor-parallel ranks{', or keep them within NVLink' * _is_wide(found, 'tp')}"),
    ):
        share = found.parts.get(part, 0.0) / found.seconds
        if share >= EXPOSED:
            found_hints.append((share, f"{PARTS[part]}: {100 * share:.0f} % of the step; {advice}"))
    if "served" not in facts:  # which fills the memory, and trains nothing
        of_training = _of_room(found), _of_growth(facts), _of_memory(facts), _of_calls(found), _of_other_work(facts)
        found_hints += [(0.0, hint) for some in of_training for hint in some]
    return [hint for _, hint in sorted(found_hints, key=lambda one: -one[0])]


def _is_wide(found: StepPrediction, word: str) -> bool:
    """Says whether collectives of groups of this word leave the node; not sharding with one GPU of each node."""
    inside = ("of one node", "one GPU each") if word == "shard" else ("of one node",)
    return any(
        one.group.split(" ")[0] == word and not any(where in one.ranks for where in inside) for one in found.collectives
    )


def _of_growth(facts: Facts) -> list[str]:
    growth = facts["growth"]
    if not (grown := growth.get("bytes", 0)):
        return []
    step, line = growth.get("step", 0), growth.get("line", "")
    where = f", most of it made at {line}" if line else ""
    return [
        f"memory grew by {sized(grown)} from step {step - 1} to {step}{where}: the script keeps tensors of its steps"
    ]


def _of_room(found: StepPrediction) -> list[str]:
    share = found.memory_gib / found.gpu_memory_gib
    if not NEARLY_FULL < share <= 1:
        return []
    return [f"uses {100 * share:.0f} % of the memory: another version of torch, NCCL or fragmentation can exceed it"]


def _of_memory(facts: Facts) -> list[str]:
    allocated, reserved = max(((one["allocated"], one["reserved"]) for one in facts["ranks"]), key=lambda one: one[1])
    if not reserved or 1 - allocated / reserved < SLACK:
        return []
    slack = sized(int(reserved - allocated))
    share = 100 * (1 - allocated / reserved)
    what = f"{slack} of reserved memory ({share:.0f} %) are not in tensors at the peak"
    return [f"{what}: PYTORCH_ALLOC_CONF=expandable_segments:True keeps less"]


def _of_calls(found: StepPrediction) -> list[str]:
    calls, total, all_ = Counter[str](), Counter[str](), found.collectives
    for one in all_:
        if one.bytes < SMALL_BYTES and one.of == all_[0].of:
            what = f"{one.name.removeprefix(f'{one.group} ')} among {one.group}"
            calls[what] += int(one.count)
            total[what] += int(one.count * one.bytes)
    return [
        f"{count} calls of {what} have {sized(total[what] // count)} each: "
        "one call for several tensors has the latency only once"
        for what, count in calls.most_common(1)
        if count >= MANY
    ]


def _of_other_work(facts: Facts) -> list[str]:
    """Returns hints of evaluation and checkpoints within the counted step."""
    shares = facts["without_gradients"].items()
    other = [f"{100 * each:.0f} % of FLOPs without gradients ({line})" for line, each in shares if each >= UNTRAINED]
    other += [f"torch.save ({line})" for line in facts["saves"]]
    advice = "if training does without, --steps N counts another step"
    return [f"the counted step holds {', '.join(other)}; time and MFU include it: {advice}"] if other else []
