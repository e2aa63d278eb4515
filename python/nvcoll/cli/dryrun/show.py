"""The text that ``nvcoll dryrun`` prints: facts of the recording; the step as ``nvcoll plan`` shows it; and, from the
recording alone, the line of the memory peak, exposed communication by line, hints, assumptions, versions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nvcoll._nvcoll import Fabric
from nvcoll.cli.dryrun.hints import hints
from nvcoll.cli.plan.show import show_collectives, show_machines, show_memory, show_parts
from nvcoll.dryrun.failures import OutOfGpuMemory
from nvcoll.dryrun.recorded import Recorded
from nvcoll.dryrun.recording import Run
from nvcoll.text.formatting import counted
from nvcoll.text.formatting import duration as seconds
from nvcoll.text.tables import print_labelled, print_table
from nvcoll.training.prediction import FITS, StepPrediction

Priced = tuple[Fabric, Recorded, StepPrediction]

MOST = 8
"""The rows of lines, assumptions and symbols that are shown. Chosen."""


def show(found: Sequence[Priced], failed: Sequence[tuple[Fabric, OutOfGpuMemory]]) -> None:
    """Prints predictions for all machines."""
    for one in {id(recorded): recorded for _, recorded, _ in found}.values():
        show_recording(one)
    if len(found) == 1:
        show_step(found[0][1], found[0][2])
    elif found:
        print()
        show_machines([prediction for *_, prediction in found], {})
        for fabric, recorded, prediction in found:
            for hint in hints(recorded, prediction)[:1]:
                print_labelled("hint", f"{fabric.name}: {hint}")
    for fabric, error in failed:
        print_labelled("memory", f"{fabric.name}: does not fit: {error}")


def show_recording(recorded: Recorded) -> None:
    """Prints facts of a recording."""
    facts, first = recorded.facts, recorded.facts["ranks"][0]
    ranks = ", ".join(str(row["rank"]) for row in facts["ranks"])
    who = f"rank{'s' if len(facts['ranks']) > 1 else ''} {ranks} of {facts['world_size']}"
    took = _took(recorded.runs) if recorded.runs else "recorded before"
    print_labelled("", f"{facts['script']}: {who} on a virtual {facts['gpu_title']}, {took}", label=0)
    if facts.get("alone"):
        print_labelled("hint", facts["alone"])
    if recorded.not_kept:
        print_labelled("hint", f"the script will run again next time: {recorded.not_kept}")
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    if versions:
        print_labelled("judged", versions)
    work = f"{facts['flops'] / 1e12:,.4g} TFLOP, {counted(first['products'], 'matrix product')}"
    launches = f"{first['launches']:,} launches, {first['calls']:,} NCCL calls on {counted(first['streams'], 'stream')}"
    print_labelled("rank 0", f"{work}, {launches}")
    if facts["groups"]:
        print_labelled("groups", ", ".join(_group(row) for row in facts["groups"]))
    print_labelled("tokens", f"{recorded.row.get('tokens') or 0:,.0f} in a step: {facts['tokens']}")


def _took(runs: Sequence[Run]) -> str:
    rss = sum(run.peak_rss_bytes for run in runs) / 1e9
    return f"{counted(runs[0].steps, 'step')} in {max(run.seconds for run in runs):.0f} s with {rss:.1f} GB"


def _group(row: dict[str, Any]) -> str:
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


def show_step(recorded: Recorded, found: StepPrediction) -> None:
    """Prints the step on one machine."""
    rates = []
    if found.tokens_per_second:
        rates.append(f"{found.tokens_per_second:,.0f} tokens/s per GPU")
    if found.mfu:
        rates.append(f"{100 * found.mfu:.1f} % {'MFU' if recorded.row.get('model_flops') else 'HFU'}")
    interval = f"{seconds(found.seconds)} (90 %: {seconds(found.low_s, found.high_s)})"
    print_labelled("step", ", ".join([interval, *rates]))
    fullest = max(recorded.memory, key=lambda row: row["reserved"])
    held = f"{fullest['allocated'] / 2**30:.1f} GiB in tensors, {fullest['reserved'] / 2**30:.1f} reserved"
    print_labelled("memory", f"{held}, {found.memory_gb:.0f} of {found.gpu_memory_gb:.0f} with NCCL and CUDA: "
                             f"{FITS[found.fit]}")  # fmt: skip
    if fullest.get("stack"):
        print_labelled("peak", f"at {fullest['stack'][-1]}")
    print_labelled("limit", found.limit)
    for reason in found.extrapolated:
        print_labelled("accuracy", f"extrapolated: {reason}; the interval is wider")
    for nth, hint in enumerate(hints(recorded, found)):
        print_labelled("hint" if nth == 0 else "", hint)
    print()
    show_parts(found)
    print()
    show_memory(found)
    _show_lines(found)
    if found.collectives:
        print()
        show_collectives(found)
    _show_assumed(recorded.facts)


def _show_lines(found: StepPrediction) -> None:
    """Prints the lines of the script at which the GPU waits for communication the longest."""
    lost = sorted(((row.exposed_s + row.copies_s + row.waits_s, row) for row in found.lines), key=lambda one: -one[0])
    rows = [
        (row.line, seconds(row.exposed_s + row.copies_s), seconds(row.waits_s), f"{100 * both / found.seconds:.1f} %")
        for both, row in lost
        if both >= 1e-3 * found.seconds
    ]
    if rows:
        print()
        heads = ("line of the script", "exposed", "waits for ranks", "share")
        print_table(heads, rows[:MOST], left=("line of the script",), optional=("waits for ranks",))


def _show_assumed(facts: dict[str, Any]) -> None:
    rows = facts["assumed"]
    if rows or facts["unanswered"]:
        print()
    for nth, row in enumerate(rows[:MOST]):
        where = f" ({row['line']})" if row["line"] else ""
        times = f", {row['times']} times" if row["times"] > 1 else ""
        print_labelled("assumed" if nth == 0 else "", f"{row['text']}{where}{times}")
    if len(rows) > MOST:
        print_labelled("", f"({len(rows) - MOST} more: --json has all)")
    if facts["unanswered"]:
        names = ", ".join(facts["unanswered"][:MOST])
        more = f" and {len(facts['unanswered']) - MOST} more" if len(facts["unanswered"]) > MOST else ""
        print_labelled("unanswered", f"{names}{more}: calls of CUDA that the virtual GPU only said `success` to")
