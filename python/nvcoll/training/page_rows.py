"""The rows of tables and charts of a page of a step: names, numbers, colours, and how they are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from nvcoll.training import colours
from nvcoll.training.prediction import PARTS

LEAST: Final = 5e-4
"""The least share of a part of the time that is shown. Chosen: tables show tenths of a per cent."""

LINES: Final = 12
"""The lines of a script that are shown. Chosen."""

PASS: Final = {"F": "forward", "B": "backward", "W": "weights"}
"""What a stage does in a span, by the first word of its name."""

Row = dict[str, Any]
Fields = Mapping[str, Any]


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


def of_time(price: Fields) -> list[Row]:
    """Returns the parts of the step's time that can be seen."""
    rows = []
    for part, seconds in price["parts"].items():
        name, colour, share = PARTS.get(part, part), _colour(part), seconds / price["seconds"]
        if share < LEAST:
            continue
        text = f"{timed(seconds)}, {share:.1%}"
        rows.append({"name": name, "colour": colour, "seconds": seconds, "share": share, "text": text})
    return rows


def of_memory(price: Fields) -> list[Row]:
    """Returns the parts of the memory of each role."""
    return [
        {
            "role": role["name"],
            "name": name,
            "colour": _colour(name),
            "gb": nbytes / 2**30,
            "text": f"{nbytes / 2**30:.1f} GiB",
        }
        for role in price["roles"]
        for name, nbytes in role["memory"].items()
    ]


def of_timeline(timeline: Fields) -> list[Row]:
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


def of_lines(price: Fields) -> list[Row]:
    """Returns the lines of a script for which the GPU waits longest, with seconds of each kind and their share."""
    rows = []
    for one in price.get("lines", [])[:LINES]:
        lost = one["exposed_s"] + one["copies_s"] + one["waits_s"] + one["host_s"]
        rows.append({**one, "lost": lost, "share": lost / price["seconds"]})
    return [row for row in rows if row["share"] >= LEAST]


def _kind(span: Fields) -> str:
    if (kind := span.get("args", {}).get("kind")) is not None:
        return str(kind)
    if span["stream"] != "compute":
        return "communication"
    return PASS.get(span["name"].split(" ")[0], "once in a step")


def of_price(row: Fields) -> Row:
    """Returns what a chart of layouts shows of a price."""
    seconds, memory_gb, fit = row["seconds"], row["memory_gb"], row["fit"]
    return {
        "seconds": seconds,
        "memory_gb": memory_gb,
        "fit": fit,
        "text": timed(seconds),
        "memory": f"{memory_gb:.1f} GiB",
    }


def of_layouts(sweep: Sequence[Fields]) -> list[Row]:
    """Returns the rows of a sweep, fastest first, with the Pareto front of each number of GPUs marked."""
    rows: list[Row] = []
    least: dict[int | None, float] = {}
    for one in sorted(sweep, key=lambda one: (one["seconds"], one["memory_gb"])):
        gpus, is_usable = one.get("gpus"), one["fit"] != "too_large"
        is_best = is_usable and one["memory_gb"] < least.get(gpus, float("inf"))
        if is_best:
            least[gpus] = one["memory_gb"]
        extra = {"gpus": gpus, "dollars": one.get("dollars"), "is_best": is_best}
        rows.append({"layout": commas(one["layout"]), **of_price(one), **extra})
    return rows
