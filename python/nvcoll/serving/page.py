"""The page of servers: tokens per second against the time of a token, all layouts, and the first one in detail.

The frame, the charts and the scripts are those of a step (`nvcoll.training.page`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, Final

from nvcoll._nvcoll import ServingPrediction
from nvcoll.draw import machine_drawing
from nvcoll.training import page
from nvcoll.training.colours import BLUE, GREEN, ORANGE, SLATE, VERMILION
from nvcoll.training.page_rows import of_time, timed

COLOURS: Final = (BLUE, VERMILION, GREEN, ORANGE, SLATE)
"""Colours of machines, in their order."""

ROWS: Final = 200
"""Layouts of the table. Chosen."""


WORDS: Final = ("machine", "layout", "weights", "server", "drafts", "limit")
"""Columns of words, which are aligned left."""


def of(
    title: str,
    found: Sequence[ServingPrediction],
    best: Sequence[ServingPrediction],
    columns: Mapping[str, Sequence[tuple[str, object]]],
    steps: Mapping[str, Mapping[str, float]],
    facts: Sequence[tuple[str, str]],
) -> str:
    """Makes the page of servers.

    Args:
        title: what was asked, in words.
        found: the servers; the first is shown in detail.
        best: those of `found` that no other on the same machine beats in tokens per second and time of a token.
        columns: cells of the table by heading, one for each server, each with the value by which it is sorted.
        steps: seconds of the iterations of the first, by part of the time.
        facts: names and values of the first.

    Raises:
        InvalidArgument: a library that draws is not installed.
    """
    _, charts = page.libraries()
    one, machines = found[0], list(dict.fromkeys(each.machine.name for each in found))
    colours = dict(zip(machines, cycle(COLOURS), strict=False))
    points = [_point(each, colours, is_best=each in best, is_chosen=each is one) for each in found]
    time = [of_time(name, parts, sum(parts.values())) for name, parts in steps.items()]
    specs = {"time": charts.machines([row for rows in time for row in rows], "iterations of the server")}
    if len(found) > 1:
        specs["servers"] = charts.servers(points)
    rows = [list(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)][:ROWS]
    shown = {"title": title, "one": one, "colours_of": colours, "rows": rows, "heads": list(columns), "facts": facts}
    seconds = {name: sum(parts.values()) for name, parts in steps.items()}
    shown |= {"words": WORDS, "many": len(found), "time": time, "seconds": seconds}
    shown |= {"machine_svg": machine_drawing.svg(one.machine)}
    return page.written(Path(__file__).with_name("servers.html.jinja"), shown, specs)


def _point(one: ServingPrediction, colours: Mapping[str, str], *, is_best: bool, is_chosen: bool) -> dict[str, Any]:
    load, name = one.request["load"], one.machine.name
    requests = f"{load['concurrency']:g} at once" if "concurrency" in load else f"{load['rate']:g} a second"
    low, high = one.tokens_per_second_90
    return {
        "machine": name,
        "colour": colours[name],
        "layout": f"{one.words}, {one.gpus} GPUs",
        "asked": f"{requests}, {load['input']:g} in, {load['output']:g} out",
        "ttft": timed(one.ttft_s),
        "tpot": f"{timed(one.tpot_s)} (90 %: {timed(one.tpot_90[0])} to {timed(one.tpot_90[1])})",
        "rate": f"{one.tokens_per_second:,.0f} (90 %: {low:,.0f} to {high:,.0f})",
        "tpot_ms": 1e3 * one.tpot_s,
        "tpot_low": 1e3 * one.tpot_90[0],
        "tpot_high": 1e3 * one.tpot_90[1],
        "tokens": one.tokens_per_second,
        "tokens_low": low,
        "tokens_high": high,
        "is_best": is_best,
        "is_chosen": is_chosen,
    }
