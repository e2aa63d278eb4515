"""The report of recorded scripts on machines, of ``nvcoll dryrun``, ``nvcoll price`` and `nvcoll.testing.dryrun`.

Facts of each recording come first, then the step on the machines with hints, then what was assumed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Final, Literal

from nvcoll._nvcoll import Fabric, StepPrediction
from nvcoll.dryrun.parent.failures import OutOfGpuMemory
from nvcoll.dryrun.parent.hints import hints
from nvcoll.dryrun.parent.recording import Facts, GroupFacts, HostTimes, Recording, ServedFacts
from nvcoll.dryrun.parent.serving import rule_of
from nvcoll.dryrun.wire.rank_recording import Run
from nvcoll.text.blocks import Block, Line, Table, under
from nvcoll.text.formatting import counted, duration, sized
from nvcoll.training.planning import Machine
from nvcoll.training.prediction import fit_words
from nvcoll.training.report import LEAST, Detail, Report, TooLarge

SPREAD: Final = 1.6
"""The factor by which processors differ, as `SPREAD` of nvcoll-step."""

SIZES: Final = tuple(1 << power for power in range(10, 31))
"""Sizes at which the limit of a server's own kernels is sought."""

MOST: Final = 8
"""The rows of assumptions and symbols that are shown. Chosen."""


def report_of(
    command: Literal["dryrun", "price"],
    machines: Sequence[Fabric],
    recorded: Sequence[Recording | OutOfGpuMemory],
    price: Callable[[Fabric, int], Machine],
    assumed: Sequence[str] = (),
    host_speed: float | None = None,
) -> Report:
    """Prices recordings, or what came instead, each on its machine.

    Args:
        command: the command.
        machines: the machines.
        recorded: for each machine a recording.
        price: returns a number of the GPUs of a machine, to price steps.
        assumed: further sentences.
        host_speed: the speed of the machines' processors (`wire.host_speed`); None: a usual one.
    """
    each = zip(machines, recorded, strict=True)
    both = [(machine, one) for machine, found in each for one in (found, *getattr(found, "also", ()))]
    asked = [(price(machine, one.step.gpus), one) for machine, one in both if isinstance(one, Recording)]
    made = [(machine, one, machine.predict(one.host.in_step(one.step, host_speed))) for machine, one in asked]
    failed = [(machine.name, one) for machine, one in both if isinstance(one, OutOfGpuMemory)]
    distinct = {(one.facts["gpu"], _kind(one.facts)): one for _, one, _ in made}
    head: list[Block] = [*(line for one in distinct.values() for line in _facts(one)), *under("assumed", assumed)]
    return Report(
        command,
        made[0][1].facts["script"] if made else "",
        [machine for machine, *_ in made],
        [found for *_, found in made],
        head=[*head, None] if len(made) > 1 else head,
        details=[_detail(*one) for one in made],
        recordings={" ".join(filter(None, name)): one.facts for name, one in distinct.items()},
        out_of_memory=[TooLarge(name, str(error), error.line) for name, error in failed],
        assumed=[*assumed, *dict.fromkeys(row["text"] for one in distinct.values() for row in one.facts["assumed"])],
    )


def _kind(facts: Facts) -> str:
    """Returns the kind of an iteration of a server; "" of a step of training."""
    return facts["served"]["kind"] if "served" in facts else ""


def _facts(recorded: Recording) -> Iterator[Line]:
    """Yields the facts of a recording."""
    facts = recorded.facts
    if "served" in facts and facts["served"]["kind"] == "prefill":
        yield Line("prefill", _work(facts))
        return
    ranks = ", ".join(str(row["rank"]) for row in facts["ranks"])
    who = f"rank{'s' if len(facts['ranks']) > 1 else ''} {ranks} of {facts['world_size']}"
    what = "iteration" if "served" in facts else "step"
    took = _took(recorded.runs, what) if recorded.runs else "recorded before"
    yield Line("", f"{facts['script']}: {who} on a virtual {facts['gpu_title']}, {took}")
    if facts["alone"]:
        yield Line("hint", facts["alone"])
    if recorded.not_kept:
        yield Line("hint", f"the script will run again next time: {recorded.not_kept}")
    if versions := ", ".join(f"{name} {version}" for name, version in facts["versions"].items()):
        yield Line("judged", versions)
    if "served" in facts:
        yield from _served(facts["served"])
    yield Line(_kind(facts) or "rank 0", _work(facts))
    if facts["groups"]:
        yield Line("groups", ", ".join(_group(row) for row in facts["groups"]))
    if "served" not in facts:
        yield Line("tokens", f"{recorded.step.tokens or 0:,.0f} in a step: {facts['tokens']}")


def _work(facts: Facts) -> str:
    """Returns what the first rank does in the step."""
    first = facts["ranks"][0]
    work = f"{facts['flops'] / 1e12:,.4g} TFLOP, {counted(first['products'], 'matrix product')}"
    launches = f"{first['launches']:,} launches, {first['calls']:,} NCCL calls on {counted(first['streams'], 'stream')}"
    stage = f", {first['name']}" if len(facts["ranks"]) > 1 else ""
    served = f"{facts['served']['words']}{stage}: " if "served" in facts else ""
    return f"{served}{work}, {launches}"


def _served(one: ServedFacts) -> Iterator[Line]:
    """Yields what the cache of keys and values holds, if it has a size."""
    yield Line("server", f"{one['server']}: sequences of up to {one['longest']:,} tokens")
    if not one["kv_tokens"]:
        return
    each = one["kv_tokens"] / one["longest"]
    size = f"{one['kv_tokens']:,} tokens in {one['kv_bytes'] / 2**30:.2f} GiB"
    yield Line("KV cache", f"{size}: {each:,.1f} sequences of {one['longest']:,} tokens at once")


def _took(runs: Sequence[Run], what: str) -> str:
    rss = sum(run.peak_rss_bytes for run in runs) / 1e9
    return f"{counted(runs[0].steps, what)} in {max(run.seconds for run in runs):.0f} s with {rss:.1f} GB"


def _group(row: GroupFacts) -> str:
    runs, stride = row.get("runs", 1), row["stride"]
    size, last = row["size"] // runs, row["first"] + (runs - 1) * row.get("apart", 0)
    shown = [_run(first, stride, size) for first in dict.fromkeys((row["first"], last))]
    of_ranks = (", ..., " if runs > 2 else " and ").join(shown)
    return f"{row['name']} {row['size']} (rank{'s' if row['size'] > 1 else ''} {of_ranks})"


def _run(first: int, stride: int, size: int) -> str:
    last = first + stride * (size - 1)
    if size <= 2:
        return f"{first} and {last}" if size == 2 else f"{first}"
    return f"{first} to {last}" if stride == 1 else f"{first}, {first + stride}, ..., {last}"


def _detail(machine: Machine, recorded: Recording, found: StepPrediction) -> Detail:
    """Returns memory as the allocator counts it, the line of its peak, hints, times of passes, and what was assumed."""
    fullest = recorded.fullest
    held = f"{fullest['allocated'] / 2**30:.1f} GiB in tensors, {fullest['reserved'] / 2**30:.1f} reserved"
    with_nccl = f"{found.memory_gib:.0f} of {found.gpu_memory_gib:.0f} with NCCL and CUDA"
    passes = _passes(recorded, found, machine)
    memory = f"{held}, {with_nccl}: {fit_words(found)}"
    kind, host = _kind(recorded.facts), _host(recorded.host, found)
    last = [] if kind == "prefill" else [*_assumed(recorded.facts)]  # of the same run as decode
    reduces = _all_reduce(machine, recorded.facts, found) if kind else ""
    return Detail(memory, recorded.peak, hints(recorded.facts, found), last, passes, host, kind, reduces)


def _all_reduce(machine: Machine, facts: Facts, found: StepPrediction) -> str:
    """Says what runs the all_reduce of tensor parallelism, if a server chooses it."""
    sizes = sorted({round(one.bytes) for one in found.collectives if one.name == "tp all_reduce"})
    groups, rule = [row for row in facts["groups"] if row["name"] == "tp"], rule_of(facts["served"]["server"])
    if not (sizes and groups and rule):
        return ""
    first, stride, size = (groups[0][name] for name in ("first", "stride", "size"))
    part = machine.fabric.among([first + stride * each for each in range(size)])
    runs = [f"{sized(each)} by {part.predict('all_reduce', each, as_=rule).implementation}" for each in sizes]
    own = [each for each in SIZES if part.predict("all_reduce", each, as_=rule).implementation != "NCCL"]
    return ", ".join(runs) + (f"; NCCL above {sized(own[-1])}" if own and own[-1] >= sizes[0] else "")


def _host(host: HostTimes, found: StepPrediction) -> str:
    """Says whether the processor limits a step, and how that is known; empty: it does not."""
    issue_s, gpu_s = found.issue_s or 0.0, found.seconds - found.parts.get("host", 0.0)
    if issue_s * SPREAD < gpu_s:
        return ""
    who = "almost any processor" if issue_s > SPREAD * gpu_s else "many processors"
    here = f"{duration(sum(host.seconds))} of Python here, " if host.seconds else ""
    why = f" (not measured: {host.why})" if host.why else ""
    return f"issuing takes {here}{duration(issue_s)} there{why}, the GPU {duration(gpu_s)}: limited by {who}"


def _passes(recorded: Recording, found: StepPrediction, machine: Machine) -> Table | None:
    """Returns the time of passes without gradients and of training, if the step has both."""
    passes = recorded.facts.get("passes", [])
    if not passes:
        return None
    ends = [0, *accumulate(json.loads(machine.pricer.timeline(recorded.step))["ranks"][0]["end_ns"], max)]
    times, bounds = Counter[str](), [*(ends[row["first"]] for row in passes), ends[-1]]
    for row, (begin, end) in zip(passes, pairwise(bounds), strict=True):
        times[row["line"] or "training"] += end - begin
    shares = [(line, each / ends[-1]) for line, each in times.most_common() if each >= LEAST * ends[-1]]
    rows = [(line, duration(each * found.seconds), f"{100 * each:.1f} %") for line, each in shares]
    return Table(("passes", "time", "share"), rows, ("passes",))


def _assumed(facts: Facts) -> Iterator[Line]:
    rows, lines = facts["assumed"], []
    for row in rows[:MOST]:
        where = f" ({row['line']})" if row["line"] else ""
        times = f", {row['times']} times" if row["times"] > 1 else ""
        lines.append(f"{row['text']}{where}{times}")
    if len(rows) > MOST:
        lines.append(f"({len(rows) - MOST} more: --json has all)")
    yield from under("assumed", lines)
    if facts["unanswered"]:
        names = ", ".join(facts["unanswered"][:MOST])
        more = f" and {len(facts['unanswered']) - MOST} more" if len(facts["unanswered"]) > MOST else ""
        yield Line("unanswered", f"{names}{more}: CUDA functions that did nothing and returned success")
