"""The charts of a page of a step, as Vega-Lite specifications that altair makes and checks.

A chart has no legend and no width: the page writes legends in HTML, which wraps, and its script sets widths and the
colours of text for light and dark pages.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from nvcoll.training.colours import BUBBLE, DARK, FITS, PASSES, PURPLE, VERMILION

Rows = Sequence[Mapping[str, Any]]

Spec = dict[str, object]

MANY_SPANS = 2000
"""Spans from which on a timeline is pixels, not SVG. Chosen: browsers scroll slowly from about here."""

SEAM = 0.4
"""The width of the line round a span, in pixels. Chosen: without it, the bubble shines through between narrow spans."""

LABELLED = 0.08
"""The part of a bar that has room for its share at the width of a phone. Chosen."""


def _spec(chart: alt.TopLevelMixin, description: str, renderer: str = "svg") -> Spec:
    spec: Spec = chart.to_dict()
    del spec["config"]
    return {**spec, "description": description, "usermeta": {"embedOptions": {"renderer": renderer}}}


def _tips(**titles: str) -> list[alt.Tooltip]:
    return [alt.Tooltip(f"{field}:N", title=title) for field, title in titles.items()]


def _segments(rows: Rows, key: str, amount: str) -> Rows:
    """Stacks the amounts of rows, separately for each value of `key`."""
    ends: dict[object, float] = {}
    stacked = []
    for row in rows:
        start = ends.get(row.get(key), 0.0)
        ends[row.get(key)] = end = start + row[amount]
        ink = "white" if row["colour"] in DARK else "black"
        stacked.append({**row, "start": start, "end": end, "middle": (start + end) / 2, "ink": ink})
    return stacked


def time_bar(rows: Rows) -> Spec:
    """Draws the parts of a step as one bar.

    Args:
        rows: name, seconds, share (of the step), colour and text of each part.
    """
    stacked = _segments(rows, "", "seconds")
    total = stacked[-1]["end"]
    base = alt.Chart()
    axis = alt.X("start:Q", title="seconds of the step", scale=alt.Scale(domain=[0, total], nice=False))
    bar = base.mark_bar(height=44).encode(
        x=axis, x2="end:Q", color=alt.Color("colour:N", scale=None), tooltip=_tips(name="part", text="time")
    )
    shares = (
        base.transform_filter(alt.datum.share >= LABELLED)
        .mark_text(fontSize=12)
        .encode(x="middle:Q", text=alt.Text("share:Q", format=".0%"), color=alt.Color("ink:N", scale=None))
    )
    chart = alt.layer(bar, shares, data=alt.Data(values=stacked), height=60)
    return _spec(chart, "where the time of the step goes, as a stacked bar")


def machines(rows: Rows, title: str = "the step on each machine") -> Spec:
    """Draws the step on each machine, or what else has the name, as a bar of its parts.

    Args:
        rows: machine, name, seconds, colour and text of each part, of all machines.
        title: what is drawn, in words.
    """
    names = list(dict.fromkeys(row["machine"] for row in rows))
    stacked = _segments(rows, "machine", "seconds")
    label = alt.Axis(labelLimit=160)
    bars = alt.Chart(alt.Data(values=stacked)).mark_bar(height=24)
    bars = bars.encode(
        x=alt.X("start:Q", title="seconds"),
        x2="end:Q",
        y=alt.Y("machine:N", sort=names, title=None, axis=label),
        color=alt.Color("colour:N", scale=None),
        tooltip=_tips(machine="machine", name="part", text="time"),
    )
    return _spec(bars.properties(height=38 * len(names)), f"{title}, by parts of its time")


def timeline(rows: Rows, stages: Sequence[str]) -> Spec:
    """Draws spans by stage; a second, small chart below chooses the time that the first one shows.

    Args:
        rows: stage, stream, kind, name, start and end of each span.
        stages: names of the stages, in their order.
    """
    end_s = max(row["end"] for row in rows)
    brush = alt.selection_interval(name="brush", encodings=["x"])
    streams = len({row["stream"] for row in rows})
    scale = alt.Scale(domain=list(PASSES), range=list(PASSES.values()))
    colours = {"color": alt.Color("kind:N", scale=scale, legend=None), "stroke": alt.Stroke("kind:N", scale=scale)}
    y = alt.Y("stage:N", sort=list(stages), title=None, scale=alt.Scale(paddingInner=0.15, paddingOuter=0))
    waits = alt.Data(values=[{"stage": stage, "start": 0, "end": end_s} for stage in stages])
    times = [alt.Tooltip(f"{field}:Q", title=f"{field}, s", format=".4f") for field in ("start", "end")]
    tips = [*_tips(name="span", stage="stage", kind="kind"), *times]

    def layers(domain: alt.Parameter | list[float], title: str, y: alt.Y) -> alt.LayerChart:
        x = alt.X("start:Q", scale=alt.Scale(domain=domain, nice=False), title=title)
        back = alt.Chart(waits).mark_rect(color=BUBBLE, clip=True).encode(x=x, x2="end:Q", y=y)
        spans = alt.Chart().mark_rect(clip=True, strokeWidth=SEAM).encode(x=x, x2="end:Q", y=y, tooltip=tips, **colours)
        return back + (spans.encode(yOffset="stream:N") if streams > 1 else spans)

    rows_px = max(14, min(30, 360 // len(stages))) * streams
    detail = layers(brush, "seconds", y).properties(height=rows_px * len(stages))
    small = y.copy()
    small["axis"] = None
    overview = layers([0, end_s], "drag here to zoom, double-click to see all", small)
    overview = overview.properties(height=max(36, 4 * len(stages)))
    overview.layer[-1] = overview.layer[-1].add_params(brush)
    chart = alt.vconcat(detail, overview, data=_spans(rows), spacing=8)
    renderer = "canvas" if len(rows) > MANY_SPANS else "svg"
    return _spec(chart, "what each stage of the pipeline does over time", renderer)


def _spans(rows: Rows) -> alt.InlineData:
    """Writes spans as CSV: a third of their size as JSON, which counts where there are 40,000."""
    text = io.StringIO()
    writer = csv.DictWriter(text, ["stage", "stream", "kind", "name", "start", "end"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    parse = {"start": "number", "end": "number"}
    return alt.InlineData(values=text.getvalue(), format=alt.CsvDataFormat(type="csv", parse=parse))


def memory(rows: Rows, roles: Sequence[str], gpu_gib: float) -> Spec:
    """Draws the memory of each role as a bar of its parts, and the memory of the GPU as a line.

    Args:
        rows: role, name, gib, colour and text of each part.
        roles: names of the roles, in their order.
        gpu_gib: the memory of the GPU.
    """
    bars = (
        alt.Chart(alt.Data(values=_segments(rows, "role", "gib")))
        .mark_bar(height=24)
        .encode(
            x=alt.X("start:Q", title="GiB on one GPU"),
            x2="end:Q",
            y=alt.Y("role:N", sort=list(roles), title=None),
            color=alt.Color("colour:N", scale=None),
            tooltip=_tips(role="role", name="part", text="memory"),
        )
    )
    limit = alt.Chart(alt.Data(values=[{"start": gpu_gib, "label": f"GPU: {gpu_gib:.4g} GiB"}]))
    line = limit.mark_rule(strokeWidth=2, strokeDash=[5, 3]).encode(x="start:Q")
    label = limit.mark_text(align="right", baseline="bottom", dx=-2, dy=-4).encode(x="start:Q", y=alt.value(0))
    chart = bars + line + label.encode(text="label:N")
    return _spec(chart.properties(height=38 * len(roles)), "memory of one GPU by role and part")


def _scale(field: str, rows: Rows) -> alt.Scale:
    """Returns the scale of a field: logarithmic where the largest value is many times the least."""
    values = [row[field] for row in rows]
    is_wide = max(values) > 6 * min(values) > 0
    return alt.Scale(type="log", nice=False, padding=12) if is_wide else alt.Scale(zero=False, padding=12)


def servers(rows: Rows) -> Spec:
    """Draws servers by the time of a token and tokens per second; a line joins those that no other one beats in both.

    Args:
        rows: machine, colour, layout, asked, tpot_ms, tokens, texts of times and intervals, the ends of both intervals,
            is_best (on the Pareto front of its machine) and is_chosen.
    """
    base = alt.Chart()
    x = alt.X("tpot_ms:Q", title="milliseconds of a token (TPOT)", scale=_scale("tpot_ms", rows))
    y = alt.Y("tokens:Q", title="generated tokens a second and GPU", scale=_scale("tokens", rows))
    colour = alt.Color("colour:N", scale=None)
    words = ("machine", "layout", "asked", "ttft", "tpot", "rate")
    points = base.mark_point(filled=True, size=45).encode(
        x=x,
        y=y,
        color=colour,
        opacity=alt.condition("datum.is_best", alt.value(1), alt.value(0.35)),
        tooltip=_tips(
            **{word: {"ttft": "TTFT", "tpot": "TPOT", "rate": "tokens/s/GPU"}.get(word, word) for word in words}
        ),
    )
    best = base.transform_filter("datum.is_best")
    front = best.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour, detail="machine:N")
    spread = best.mark_rule(opacity=0.5, clip=True)
    ends = [
        spread.encode(x="tpot_low:Q", x2="tpot_high:Q", y=y, color=colour),
        spread.encode(y="tokens_low:Q", y2="tokens_high:Q", x=x, color=colour),
    ]
    ring = base.transform_filter("datum.is_chosen").mark_point(size=300, strokeWidth=3, color=PURPLE).encode(x=x, y=y)
    chart = alt.layer(*ends, front, points, ring, data=alt.Data(values=list(rows)), height=380)
    return _spec(chart, "servers by the time of a token and tokens per second")


def sweep(rows: Rows, gpu_gib: float, chosen: Mapping[str, object]) -> Spec:
    """Draws layouts by step time and memory, and joins the layouts that no other one beats in both.

    Args:
        rows: layout, gpus, seconds, memory_gib, fit, text and is_best (on the Pareto front) of each layout.
        gpu_gib: the memory of the GPU.
        chosen: the layout of the page, as a row.
    """
    base = alt.Chart()
    x = alt.X("memory_gib:Q", title="GiB on one GPU", scale=_scale("memory_gib", (*rows, chosen)))
    y = alt.Y("seconds:Q", title="seconds of a step", scale=_scale("seconds", (*rows, chosen)))
    colours, shapes = zip(*FITS.values(), strict=True)
    tips = _tips(layout="layout", gpus="GPUs", text="step", memory="memory", fit="fit")
    points = base.mark_point(filled=True, size=60).encode(
        x=x,
        y=y,
        color=alt.Color("fit:N", scale=alt.Scale(domain=list(FITS), range=colours), legend=None),
        shape=alt.Shape("fit:N", scale=alt.Scale(domain=list(FITS), range=shapes), legend=None),
        tooltip=tips,
    )
    front = base.transform_filter("datum.is_best").mark_line(color=VERMILION, strokeWidth=2)
    front = front.encode(x=x, y=y, detail="gpus:N")
    limit = alt.Chart(alt.Data(values=[{"memory_gib": gpu_gib}])).mark_rule(strokeDash=[5, 3]).encode(x=x)
    this = alt.Chart(alt.Data(values=[dict(chosen)]))
    ring = this.mark_point(size=300, strokeWidth=3, color=PURPLE).encode(x=x, y=y, tooltip=tips)
    layers = [limit, *([front] if any(row["is_best"] for row in rows) else []), points, ring]
    chart = alt.layer(*layers, data=alt.Data(values=list(rows)), height=340)
    return _spec(chart, "layouts by step time and memory")
