"""Predicts steps that another tool wrote: the output of ``nvcoll price`` for them, shared in part with ``whatif``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nvcoll._nvcoll import Fabric, InvalidArgument
from nvcoll.cli.plan.show import show_collectives, show_parts
from nvcoll.text.formatting import duration as seconds
from nvcoll.text.tables import print_labelled, print_table
from nvcoll.traces import Trace, chakra
from nvcoll.traces.kineto import Measured
from nvcoll.training import page, trace
from nvcoll.training.planning import Machine
from nvcoll.training.prediction import COMPUTING, StepPrediction

if TYPE_CHECKING:
    from nvcoll.cli.dryrun.options import Outputs

SCHEMA = "nvcoll.price/1"


def price(
    read: Trace,
    fabrics: Sequence[Fabric],
    conditions: Mapping[str, Any],
    outputs: Outputs,
    folder: Path | None,
) -> None:
    """Predicts a step that no dry run recorded, and prints the output, without memory and script: they are unknown."""
    step = read.steps[0]
    asked = [Machine(one, step.gpus, **conditions) for one in fabrics]
    found = [one.predict(step) for one in asked]
    if folder is not None:
        chakra.write(step, folder)
    if outputs.trace is not None:
        trace.save(asked[0].timeline(step), outputs.trace)
    if outputs.html is not None:
        outputs.html.write_text(page.of(found[0], timeline=asked[0].timeline(step)), encoding="utf-8")
    if outputs.as_json:
        row: dict[str, Any] = {"schema": SCHEMA, "step": step.name, "assumed": read.notes}
        print(json.dumps(row | {"predictions": [one.to_dict() for one in found]}, indent=2))
        return
    show_step(step.name, step.gpus, read.notes)
    if len(found) > 1:
        print()
        best = min(found, key=lambda one: one.seconds)
        show_machines(found, best.seconds, "best")
        return
    one = found[0]
    print_labelled("step", f"{seconds(one.seconds)} (90 %: {seconds(one.low_s, one.high_s)})")
    print_labelled("limit", one.limit)
    for reason in one.extrapolated:
        print_labelled("accuracy", f"extrapolated: {reason}; the interval is wider")
    print()
    show_parts(one)
    if one.collectives:
        print()
        show_collectives(one)


def refuse_virtual(read: Trace, file: str | Path) -> None:
    """Refuses traces of the virtual GPU: their processor is that of the machine of the dry run.

    Raises:
        InvalidArgument: it is one.
    """
    if isinstance(read.measured, Measured) and read.measured.is_virtual:
        raise InvalidArgument(
            f"{file} is the trace of a dry run: its processor's times are of the machine that ran it, not of a GPU's "
            "host; pass the recording (nvcoll dryrun --save) to nvcoll price"
        )


def show_step(name: str, ranks: int, notes: Sequence[str]) -> None:
    """Prints name, ranks and assumptions of a step."""
    print_labelled("", f"{name}, {ranks} GPUs", label=0)
    for nth, note in enumerate(notes):
        print_labelled("assumed" if nth == 0 else "", note)


def parts(found: StepPrediction) -> Mapping[str, float]:
    """Returns the parts of a prediction that a trace measures, too, in seconds."""
    computing = sum(time for name, time in found.parts.items() if name in COMPUTING)
    processor = found.parts.get("host", 0.0)
    return {"computing": computing, "exposed": found.seconds - computing - processor, "processor": processor}


def show_machines(found: Sequence[StepPrediction], base: float, whose: str) -> None:
    """Prints machines side by side, each with its time as a part of `base` seconds."""
    heads = ("machine", "step", "90 % interval", "computes", "exposed", "processor", f"vs {whose}")
    rows = []
    for one in found:
        of = parts(one)
        shown = [seconds(of[name]) for name in ("computing", "exposed", "processor")]
        interval = seconds(one.low_s, one.high_s)
        rows.append((one.machine.name, seconds(one.seconds), interval, *shown, f"{one.seconds / base:.2f}x"))
    print_table(heads, rows, left=("machine",), optional=("90 % interval", "processor"))
    for one in found:
        for reason in one.extrapolated:
            print_labelled("accuracy", f"{one.machine.name}: extrapolated: {reason}; the interval is wider")
