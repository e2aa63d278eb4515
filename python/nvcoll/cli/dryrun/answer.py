"""The output of ``nvcoll dryrun`` and ``nvcoll price``: recordings on machines, as text, JSON and files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import typer

from nvcoll._nvcoll import Fabric
from nvcoll.cli.dryrun import show
from nvcoll.cli.dryrun.options import Outputs
from nvcoll.cli.machines import Env, settings
from nvcoll.dryrun.failures import OutOfGpuMemory
from nvcoll.dryrun.recorded import Recorded
from nvcoll.training import page, trace
from nvcoll.training.planning import Machine
from nvcoll.training.prediction import StepPrediction

SCHEMA = "nvcoll.dryrun/1"

DOES_NOT_FIT = 3
"""The exit status if the script runs out of memory."""


def answer(
    fabrics: Sequence[Fabric],
    recorded: Sequence[Recorded | OutOfGpuMemory],
    version: str | None,
    env: Env,
    outputs: Outputs,
) -> None:
    """Predicts recordings and prints the output.

    Raises:
        Exit: with `DOES_NOT_FIT`, if a script ran out of memory.
    """
    conditions: dict[str, Any] = {"version": version, "settings": settings(env or ())}
    found: list[tuple[Fabric, Recorded, StepPrediction]] = []
    failed: list[tuple[Fabric, OutOfGpuMemory]] = []
    for fabric, one in zip(fabrics, recorded, strict=True):
        if isinstance(one, OutOfGpuMemory):
            failed.append((fabric, one))
            continue
        machine = Machine(fabric, one.step.gpus, **conditions)
        found.append((fabric, one, machine.predict(one.step)))
        timeline = machine.timeline(one.step) if outputs.html or outputs.trace else None
        if outputs.trace is not None and timeline is not None:
            trace.save(timeline, outputs.trace)
        if outputs.html is not None:
            outputs.html.write_text(page.of(found[-1][2], timeline=timeline), encoding="utf-8")
    if outputs.as_json:
        print(json.dumps(_row(found, failed), indent=2))
    else:
        show.show(found, failed)
    if failed:
        raise typer.Exit(DOES_NOT_FIT)


def _row(
    found: Sequence[tuple[Fabric, Recorded, StepPrediction]], failed: Sequence[tuple[Fabric, OutOfGpuMemory]]
) -> dict[str, Any]:
    """Returns the output as JSON, without the step, which ``--save`` writes."""
    predictions = []
    for _, one, prediction in found:
        row = prediction.to_dict()
        del row["step"]
        predictions.append(row | {"gpu": one.facts["gpu"]})
    facts = {one.facts["gpu"]: one.facts for _, one, _ in found}
    out = [{"machine": fabric.name, "message": str(error), "line": error.line} for fabric, error in failed]
    return {"schema": SCHEMA, "recordings": facts, "predictions": predictions, "out_of_memory": out}
