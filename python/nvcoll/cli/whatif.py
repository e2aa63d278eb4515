"""``nvcoll whatif``: predicts a step that torch.profiler traced with collectives of other machines."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from nvcoll._nvcoll import InvalidArgument
from nvcoll.cli.machines import Env, On, machines, named, settings
from nvcoll.cli.traces import parts, refuse_virtual, show_machines, show_step
from nvcoll.dryrun.launch import gpu_of
from nvcoll.text.formatting import duration as seconds
from nvcoll.text.formatting import sized
from nvcoll.text.tables import print_labelled, print_table
from nvcoll.traces import chakra
from nvcoll.traces.formats import opened
from nvcoll.traces.kineto import Measured
from nvcoll.training.planning import Machine
from nvcoll.training.prediction import StepPrediction

SCHEMA = "nvcoll.whatif/1"

UNLIKE = 1.5
"""The factor by which collectives may differ from a prediction before a line says so. Chosen."""

MOST = 8
"""The rows of collectives that are shown. Chosen."""


def whatif(
    traces: Annotated[list[str], typer.Argument(help="A trace of torch.profiler, or one of each rank, or a folder.")],
    on: On = None,
    recorded_on: Annotated[
        str | None, typer.Option("--from", help="The traced machine: compares its prediction with the trace.")
    ] = None,
    step: Annotated[
        int | None, typer.Option(help="The number N of ProfilerStep#N. Default: the step of median time.")
    ] = None,
    nccl_version: Annotated[str | None, typer.Option("--nccl-version", help="Version of NCCL, as 2.27.7.")] = None,
    env: Env = None,
    record: Annotated[Path | None, typer.Option("--save", help="Write the step as JSON.", metavar="FILE")] = None,
    chakra_folder: Annotated[
        Path | None, typer.Option("--chakra", help="Write the step as execution traces of Chakra.", metavar="FOLDER")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Predicts a traced step on other machines: measured kernels and processor, predicted collectives.

    Example: nvcoll whatif trace.json.gz --from hgx-a100 --on hgx-h100,hgx-a100x2+ib-ndr-8
    """
    there = None if recorded_on is None else named(recorded_on)
    trace = opened(traces, gpu=None if there is None else gpu_of(there).name, step=step)
    if not isinstance(trace.measured, Measured):
        raise InvalidArgument(
            f"{traces[0]} is no trace of torch.profiler: it has no measured times; pass it to nvcoll price"
        )
    refuse_virtual(trace, traces[0])
    (found,) = trace.steps
    if record is not None:
        record.write_text(found.to_json(), encoding="utf-8")
    if chakra_folder is not None:
        chakra.write(found, chakra_folder)
    elsewhere = machines(on, None) if on or there is None else []
    conditions: dict[str, Any] = {"version": nccl_version, "settings": settings(env or ())}
    priced = [
        Machine(one, found.gpus, **conditions).predict(found) for one in [*([there] if there else []), *elsewhere]
    ]
    check = priced.pop(0) if there is not None else None
    replayed = Machine(there or elsewhere[0], found.gpus).predict(trace.measured.replay).seconds
    if as_json:
        row: dict[str, Any] = {"schema": SCHEMA, "step": found.name, "assumed": trace.notes}
        row |= {
            "measured": _row(trace.measured),
            "replayed_s": replayed,
            "from": check and check.to_dict(),
            "predictions": [one.to_dict() for one in priced],
        }
        print(json.dumps(row, indent=2))
        return
    show_step(found.name, found.gpus, trace.notes)
    if check is not None:
        print()
        _show_check(trace.measured, replayed, check)
    if priced:
        print()
        if check is None:
            show_machines(priced, trace.measured.seconds, "measured")
        else:
            show_machines(priced, check.seconds, check.machine.name)


def _row(measured: Measured) -> dict[str, Any]:
    """Returns measured times for JSON."""
    keys = ("pattern", "group", "bytes", "seconds")
    times = {key: value for key, value in vars(measured).items() if key.endswith("s") and key != "collectives"}
    return times | {"collectives": [dict(zip(keys, one, strict=True)) for one in measured.collectives]}


def _show_check(measured: Measured, replayed_s: float, check: StepPrediction) -> None:
    """Prints measured times beside predictions for the same machine."""
    of = parts(check)
    rows = [
        ("the GPU computes", measured.computing_s, of["computing"]),
        ("collectives that nothing hides", measured.exposed_s, of["exposed"]),
        ("the GPU waits for the processor", measured.idle_s, of["processor"]),
        ("the step", measured.seconds, check.seconds),
    ]
    rows += [(name, was, is_) for name, was, is_ in _collectives(measured, check)]
    head = "of the traced machine"
    shown = [(name, seconds(was), seconds(is_), _difference(was, is_)) for name, was, is_ in rows]
    print_table((head, "measured", check.machine.name, "difference"), shown, left=(head,))
    what = f"with measured collectives the step takes {seconds(replayed_s)}"
    print_labelled("replayed", f"{what}, {_difference(measured.seconds, replayed_s)}: order, waits and processor alone")
    took = sum(row[3] for row in measured.collectives)
    alone = sum(one.count * one.seconds for one in check.collectives if one.of == check.roles[0].name)
    if took > 0 < alone and not 1 / UNLIKE < took / alone < UNLIKE:
        what = f"collectives took {took / alone:.2g} times as long as {check.machine.name} predicts"
        print_labelled("check", f"{what}: ranks came late to them, or it was traced on another machine")


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
