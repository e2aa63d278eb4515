"""A planned training step as one HTML page that one can send to a colleague: it opens without a network.

Headline, where the time goes, timeline of the stages, memory of each role, communication and the machine, sweep.
`nvcoll.training.charts` draws with Vega-Lite, by altair: its scripts are 0.9 MB in the page, those of plotly 4.5 MB,
and bokeh needs pandas. The frame is `page.html.jinja`, which escapes every name. A content security policy in the page
forbids all loading, and all scripts but its own two.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from nvcoll.errors import InvalidArgument
from nvcoll.training.communication import traffic

HERE = Path(__file__).parent

BLUE, SKY, GREEN, PURPLE, ORANGE = "#0072B2", "#56B4E9", "#009E73", "#CC79A7", "#E69F00"
VERMILION, YELLOW, GREY, SLATE = "#D55E00", "#F0E442", "#9AA0A6", "#5F6670"

TIME = {
    "gemm": ("matrix products", BLUE),
    "attention": ("attention", SKY),
    "elementwise": ("element-wise work", GREEN),
    "recompute": ("recomputed in the backward pass", PURPLE),
    "host": ("waits for the processor", SLATE),
    "tensor": ("tensor parallelism, exposed", ORANGE),
    "expert": ("expert parallelism, exposed", VERMILION),
    "context": ("context parallelism, exposed", VERMILION),
    "sharded": ("sharded parameters, exposed", YELLOW),
    "bubble": ("pipeline bubble", GREY),
    "sends": ("sends between stages, exposed", ORANGE),
    "data": ("data parallelism, exposed", YELLOW),
    "optimizer": ("optimizer", SLATE),
    "stall": ("stalls that the software is known for", SLATE),
}
"""The title and the colour of a part of the step's time."""

MEMORY = {
    "parameters": BLUE,
    "gradients": SKY,
    "optimizer": GREEN,
    "activations": ORANGE,
    "gathered layers": PURPLE,
    "recomputed layer": PURPLE,
    "logits and loss": VERMILION,
    "slack of the allocator": GREY,
    "NCCL": YELLOW,
    "CUDA context": SLATE,
}
"""The colour of a part of the memory; others are purple."""

FIT = {"fits": "fits", "tight": "tight: may fit", "too_large": "does not fit"}

TABLE_ROWS = 10
"""Layouts in the table of a sweep."""


def page(
    title: str,
    price: Mapping[str, Any],
    *,
    step: Mapping[str, Any] | None = None,
    timeline: Mapping[str, Any] | None = None,
    sweep: Sequence[Mapping[str, Any]] | None = None,
    machine_svg: str | None = None,
    facts: Sequence[tuple[str, str]] = (),
) -> str:
    """Makes the page of a step.

    Args:
        title: what it is a step of.
        price: the price, as the JSON of `StepPrice`.
        step: the step, as its JSON: for what each kind of parallelism carries.
        timeline: `stages` (names) and `spans` (stage, stream, name, start_s, end_s) of the pipeline.
        sweep: other layouts: `layout` (its words), `seconds`, `memory_gb`, `fit`; also `gpus`, `dollars`.
        machine_svg: the picture of the machine, of `nvcoll.draw.machine_drawing`. It is inserted as it is.
        facts: names and values of the input, as ``("model", "llama3-70b")``.

    Returns:
        A self-contained HTML document.

    Raises:
        InvalidArgument: altair, Jinja2 or vl-convert-python is not installed, or the price lacks a field.
    """
    jinja2, charts = _libraries()
    needed = ("seconds", "low_s", "high_s", "tokens_per_second", "mfu", "tflops", "parts", "roles", "memory_gb")
    if missing := [name for name in (*needed, "gpu_memory_gb", "fit") if name not in price]:
        raise InvalidArgument(f"the price of the step lacks `{missing[0]}`: pass the JSON of a price, as a mapping")
    time = _time(price)
    specs = {"time": charts.time_bar(time)}
    memory, roles = _memory(price), [role["name"] for role in price["roles"]]
    specs["memory"] = charts.memory(memory, roles, price["gpu_memory_gb"])
    if timeline is not None and timeline["spans"]:
        specs["timeline"] = charts.timeline(*_timeline(timeline))
    layouts = _layouts(sweep or [])
    if layouts:
        chosen = {"layout": "the layout of this page", **_place(price)}
        specs["sweep"] = charts.sweep(layouts, price["gpu_memory_gb"], chosen)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    environment.filters["timed"] = timed
    bundle, script = _bundle(), (HERE / "page.js").read_text()
    rendered: str = environment.get_template("page.html.jinja").render(
        title=title,
        price=price,
        fit=FIT.get(price["fit"], price["fit"]),
        facts=facts,
        time=time,
        memory=memory,
        memory_parts=list({row["name"]: row for row in sorted(memory, key=_order)}.values()),
        cells={(row["role"], row["name"]): row["gb"] for row in memory},
        passes=charts.PASSES,
        bubble=charts.BUBBLE,
        kinds={row["kind"] for row in _timeline(timeline)[0]} if "timeline" in specs and timeline else set(),
        traffic=traffic(price, step) if step is not None else [],
        machine_svg=machine_svg,
        layouts=layouts,
        best=[row for row in layouts if row["is_usable"]][:TABLE_ROWS],
        fits={FIT[fit]: colour for fit, (colour, _) in charts.FITS.items()},
        colours={"front": VERMILION, "this": PURPLE},
        specs=specs,
        bundle=bundle,
        script=script,
        hashes=[_hash(bundle), _hash(script)],
    )
    return rendered


def _libraries() -> tuple[ModuleType, ModuleType]:
    try:
        import altair  # noqa: F401
        import jinja2
        import vl_convert  # noqa: F401

        from nvcoll.training import charts
    except ImportError as error:
        raise InvalidArgument(
            f"a page of a step is drawn with {error.name}, which is not installed: pip install 'nvcoll[page]'"
        ) from None
    return jinja2, charts


@cache
def _bundle() -> str:
    """Returns the scripts of Vega, Vega-Lite and Vega-Embed, of the version for which altair writes."""
    import altair
    import vl_convert

    version = ".".join(altair.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    bundle: str = vl_convert.javascript_bundle(vl_version=version)
    return bundle.replace("</script", "<\\/script")


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def timed(seconds: float) -> str:
    """Writes seconds with three digits: ``14.7 s``, ``830 ms``."""
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}" if seconds < 1000 * unit else f"{seconds / unit:,.0f} {name}"
    return f"{seconds * 1e6:.3g} µs"


def _time(price: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for part, seconds in price["parts"].items():
        name, colour = TIME.get(part, (part, SLATE))
        share = seconds / price["seconds"]
        text = f"{timed(seconds)}, {share:.1%}"
        rows.append({"name": name, "colour": colour, "seconds": seconds, "share": share, "text": text})
    return rows


def _memory(price: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "role": role["name"],
            "name": name,
            "colour": MEMORY.get(name, PURPLE),
            "gb": nbytes / 1e9,
            "text": f"{nbytes / 1e9:.1f} GB",
        }
        for role in price["roles"]
        for name, nbytes in role["memory"].items()
    ]


def _order(row: Mapping[str, Any]) -> int:
    """Returns the place of a part of the memory; the planner has the others between parameters and activations."""
    known = list(MEMORY)
    return known.index(row["name"] if row["name"] in MEMORY else "optimizer")


def _timeline(timeline: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[str], float]:
    """Returns the rows of a timeline, the names of its stages, and its end."""
    spans = timeline["spans"]
    stages = timeline.get("stages") or [f"stage {stage}" for stage in range(1 + max(one["stage"] for one in spans))]
    rows = [
        {
            "stage": stages[one["stage"]],
            "stream": one["stream"],
            "kind": _kind(one),
            "name": one["name"],
            "start": round(one["start_s"], 6),
            "end": round(one["end_s"], 6),
            "text": f"{timed(one['end_s'] - one['start_s'])} from {timed(one['start_s'])}",
        }
        for one in spans
    ]
    return rows, list(stages), max(row["end"] for row in rows)


def _kind(span: Mapping[str, Any]) -> str:
    if span["stream"] != "compute":
        return "communication"
    return {"F": "forward", "B": "backward", "W": "weights"}.get(span["name"][:2].strip(), "other")


def _place(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a chart of layouts shows of a price."""
    seconds, memory_gb, fit = row["seconds"], row["memory_gb"], row["fit"]
    return {
        "seconds": seconds,
        "memory_gb": memory_gb,
        "fit": fit,
        "text": timed(seconds),
        "memory": f"{memory_gb:.1f} GB",
    }


def _layouts(sweep: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the rows of a sweep, fastest first, with the Pareto front marked: no other layout is better in both."""
    rows: list[dict[str, Any]] = []
    least = float("inf")
    sizes = {one.get("gpus") for one in sweep}
    for one in sorted(sweep, key=lambda one: (one["seconds"], one["memory_gb"])):
        extra = {"gpus": one.get("gpus") if len(sizes) > 1 else None, "dollars": one.get("dollars")}
        usable = one["fit"] != "too_large"
        is_best = usable and one["memory_gb"] < least
        least = one["memory_gb"] if is_best else least
        rows.append(
            {
                "layout": one["layout"].replace("  ", ", "),
                **_place(one),
                **extra,
                "is_best": is_best,
                "is_usable": usable,
            }
        )
    return rows
