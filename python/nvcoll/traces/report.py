"""The report of steps that other tools wrote; of a trace of torch.profiler also measured times beside predictions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

from nvcoll._nvcoll import StepPrediction
from nvcoll.text.blocks import Block, Line, Table, under
from nvcoll.text.formatting import duration, sized
from nvcoll.traces.program import Measured, Trace
from nvcoll.training.planning import Machine
from nvcoll.training.report import MeasuredStep, Report

UNLIKE: Final = 1.5
"""The factor by which collectives may differ from a prediction without a line `check`. Chosen."""

MOST: Final = 8
"""The rows of collectives that are shown. Chosen."""


def report_of(trace: Trace, machines: Sequence[Machine], traced: str | None = None) -> Report:
    """Prices the step of a trace on machines.

    Args:
        trace: the trace; its first step counts.
        machines: the machines.
        traced: the name of the machine that was traced, if it is one of them: its prediction is compared.
    """
    step = trace.steps[0]
    found = [one.predict(step) for one in machines]
    head: list[Block] = [Line("", f"{step.name}, {step.gpus} GPUs"), *under("assumed", trace.notes)]
    measured = None
    if isinstance(trace.measured, Measured):
        check = next((one for one in found if one.machine.name == traced), None)
        replayed = machines[0].predict(trace.measured.replay).seconds
        measured = _measured(trace.measured, replayed, check)
    return Report(
        "price",
        step.name,
        machines,
        found,
        head=[*head, None] if len(found) > 1 and not (measured and traced) else head,
        measured=measured,
        assumed=trace.notes,
    )


def _measured(measured: Measured, replayed_s: float, check: StepPrediction | None) -> MeasuredStep:
    keys = ("pattern", "group", "bytes", "seconds")
    return MeasuredStep(
        measured.seconds,
        check.machine.name if check else None,
        computes_s=measured.computing_s,
        exposed_s=measured.exposed_s,
        idle_s=measured.idle_s,
        replayed_s=replayed_s,
        collectives=[dict(zip(keys, one, strict=True)) for one in measured.collectives],
        shown=[*_beside(measured, replayed_s, check)] if check else [Line("measured", duration(measured.seconds))],
    )


def _beside(measured: Measured, replayed_s: float, check: StepPrediction) -> Iterator[Block]:
    """Yields measured times beside predictions for the same machine.

    A kernel of NCCL spins while it waits for other stages, so the bubble of a pipeline is measured as a collective.
    """
    spins = check.parts.get("bubble", 0.0)
    rows = [
        ("the GPU computes", measured.computing_s, check.computes_s),
        ("collectives that nothing hides", measured.exposed_s, check.exposed_s + spins),
        ("the GPU waits for the processor", measured.idle_s, check.idle_s - spins),
        ("the step", measured.seconds, check.seconds),
        *_collectives(measured, check),
    ]
    head = "of the traced machine"
    shown = [(name, duration(was), duration(is_), _difference(was, is_)) for name, was, is_ in rows]
    yield from (None, Table((head, "measured", check.machine.name, "difference"), shown, (head,)))
    what = f"with measured collectives the step takes {duration(replayed_s)}"
    difference = _difference(measured.seconds, replayed_s)
    yield Line("replayed", f"{what}, {difference}: from order, waits and processor alone")
    took = sum(row[3] for row in measured.collectives)
    alone = sum(one.count * one.seconds for one in check.collectives if one.of == check.roles[0].name)
    if took > 0 < alone and not 1 / UNLIKE < took / alone < UNLIKE:
        what = f"collectives took {took / alone:.2g} times as long as {check.machine.name} predicts"
        yield Line("check", f"{what}: ranks came late to them, or it was traced on another machine")
    yield None


def _difference(was: float, now: float) -> str:
    return f"{100 * (now / was - 1):+.1f} %" if was > 0 else "-"


def _collectives(measured: Measured, check: StepPrediction) -> Iterator[tuple[str, float, float]]:
    """Yields each collective with the median of measured times and the predicted time, the longest in total first."""
    took: dict[tuple[str, str, float], list[float]] = defaultdict(list)
    for pattern, group, nbytes, time in measured.collectives:
        took[pattern, group, nbytes].append(time)
    known = {(one.name, one.group, one.bytes): one.seconds for one in check.collectives}
    for key, times in sorted(took.items(), key=lambda row: -sum(row[1]))[:MOST]:
        pattern, group, nbytes = key
        if key in known:
            yield f"{pattern} {sized(round(nbytes))} of {group}, {len(times)} x", median(times), known[key]
