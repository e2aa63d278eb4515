"""The rows of tables and charts of a page of a step: names, numbers, colours, and how they are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from nvcoll._nvcoll import MemoryTable, StepPrediction
from nvcoll.training import colours
from nvcoll.training.prediction import PARTS, TITLES
from nvcoll.training.trace import Document, Span

LEAST: Final = 5e-4
"""The least share of a part of the time that is shown. Chosen: tables show tenths of a per cent."""

LINES: Final = 12
"""The lines of a script that are shown. Chosen."""

PASS: Final = {"F": "forward", "B": "backward", "W": "weights"}
"""What a stage does in a span, by the first word of its name."""

Row = dict[str, object]


def timed(seconds: float) -> str:
    """Writes seconds with three digits: ``14.7 s``, ``830 ms``, ``1,200 s``; a line does not break before the unit."""
    scale, unit = next((row for row in ((1.0, "s"), (1e-3, "ms")) if seconds >= row[0]), (1e-6, "µs"))
    number = float(f"{seconds / scale:.3g}")
    digits = 2 if number < 10 else 1 if number < 100 else 0
    return f"{number:,.{digits}f}\u00a0{unit}"


def _colour(part: str) -> str:
    return colours.OF_PART.get(part, colours.GREY)


def commas(layout: str) -> str:
    """Writes a layout for HTML, where two blanks are one."""
    return layout.replace("  ", ", ")


def of_time(machine: str, parts: Mapping[str, float], all_: float) -> list[Row]:
    """Returns the parts of a time that can be seen."""
    return [
        {
            "machine": machine,
            "name": PARTS.get(part, part),
            "colour": _colour(part),
            "seconds": seconds,
            "share": seconds / all_,
            "text": f"{timed(seconds)}, {seconds / all_:.1%}",
        }
        for part, seconds in parts.items()
        if seconds >= LEAST * all_
    ]


def of_machines(found: Sequence[StepPrediction]) -> list[Row]:
    """Returns the rows of machines beside each other, each with the parts of its time."""
    best = min((one.seconds for one in found), default=0.0)
    return [
        {"price": one, "vs_best": one.seconds / best, "parts": of_time(one.machine.name, one.parts, one.seconds)}
        for one in found
    ]


def of_memory(tables: Sequence[MemoryTable]) -> list[Row]:
    """Returns the parts of the memory of each role."""
    return [
        {
            "role": one.role,
            "line": name,
            "name": TITLES.get(name, name),
            "colour": _colour(name),
            "gib": nbytes / 2**30,
            "text": f"{nbytes / 2**30:.1f} GiB",
        }
        for one in tables
        for name, nbytes in one.lines.items()
    ]


def of_timeline(timeline: Document) -> list[Row]:
    """Returns the spans of a timeline."""
    return [
        {
            "stage": timeline["stages"][one["stage"]],
            "stream": one["stream"],
            "kind": _kind(one),
            "name": one["name"],
            "start": round(one["start_s"], 6),
            "end": round(one["end_s"], 6),
        }
        for one in timeline["spans"]
    ]


def of_lines(found: StepPrediction) -> list[Row]:
    """Returns the lines of a script for which the GPU waits longest, with seconds of each kind and their share."""
    lost = [(one.exposed_s + one.copies_s + one.waits_s + one.host_s, one) for one in found.lines[:LINES]]
    return [{**one._asdict(), "share": s / found.seconds} for s, one in lost if s >= LEAST * found.seconds]


def _kind(span: Span) -> str:
    if (kind := span.get("args", {}).get("kind")) is not None:
        return str(kind)
    if span["stream"] != "compute":
        return "communication"
    return PASS.get(span["name"].split(" ")[0], "once in a step")


def of_layouts(sweep: Sequence[StepPrediction]) -> list[Row]:
    """Returns the rows of a sweep, fastest first, with the Pareto front of each number of GPUs marked."""
    rows: list[Row] = []
    least: dict[int, float] = {}
    for one in sorted(sweep, key=lambda one: (one.seconds, one.memory_gib)):
        is_best = one.fit != "too_large" and one.memory_gib < least.get(one.gpus, float("inf"))
        if is_best:
            least[one.gpus] = one.memory_gib
        row: Row = {"layout": commas(one.words), "gpus": one.gpus, "seconds": one.seconds, "fit": one.fit}
        row |= {"memory_gib": one.memory_gib, "text": timed(one.seconds), "memory": f"{one.memory_gib:.1f} GiB"}
        rows.append(row | {"is_best": is_best})
    return rows
