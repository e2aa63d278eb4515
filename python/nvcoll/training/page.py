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

from nvcoll._nvcoll import InvalidArgument
from nvcoll.draw import machine_drawing
from nvcoll.training import colours
from nvcoll.training.communication import busy, traffic
from nvcoll.training.layouts import words
from nvcoll.training.prediction import PARTS, StepPrediction
from nvcoll.training.sweep import Candidate

HERE = Path(__file__).parent

FIT = {"fits": "fits", "tight": "may fit", "too_large": "does not fit"}

TABLE_ROWS = 10
"""Layouts in the table of a sweep. Chosen."""

DRAWN = 2.0
"""The most memory of a layout in the chart of a sweep, in that of the GPU. Chosen: what fits stays in view."""

LEAST = 5e-4
"""The least share of a part of the time that is shown. Chosen: tables show tenths of a per cent."""


def of(
    prediction: StepPrediction,
    *,
    timeline: Mapping[str, Any] | None = None,
    sweep: Sequence[Candidate] = (),
) -> str:
    """Makes the page of a prediction, with its machine and its input.

    Args:
        prediction: the prediction of a step.
        timeline: the document of its pipeline, of `Machine.timeline`.
        sweep: other layouts of the step.

    Returns:
        A self-contained HTML document.

    Raises:
        InvalidArgument: altair, Jinja2 or vl-convert-python is not installed.
    """
    price, request, machine = prediction.to_dict(), prediction.request, prediction.machine
    facts = [("machine", f"{machine.name}: {machine.title}")]
    if request:
        layout, model = request["layout"], request["model"]
        sizes = f"global batch {layout['global_batch']:,} sequences of {layout['sequence']:,} tokens"
        facts.insert(0, ("model", model.get("title", model["name"])))
        facts.append(("layout", f"{_commas(words(layout))}, {layout['dtype']}, {sizes}"))
        facts.append(("software", request["software"].get("title", request["software"]["name"])))
    links = busy(traffic(price, price["step"]), prediction.seconds, machine_drawing.families(machine))
    return page(
        prediction.step.name,
        price,
        step=price["step"],
        timeline=timeline,
        sweep=[{**vars(one), "layout": one.words} for one in sweep],
        machine_svg=machine_drawing.svg(machine, busy=links),
        facts=facts,
    )


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
    drawn = [row for row in layouts if row["memory_gb"] <= DRAWN * price["gpu_memory_gb"]]
    if drawn:
        chosen = {"layout": "the layout of this page", "gpus": (step or {}).get("gpus"), **_place(price)}
        specs["sweep"] = charts.sweep(drawn, price["gpu_memory_gb"], chosen)
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
        memory_parts=list({row["name"]: row for row in memory}.values()),
        cells={(row["role"], row["name"]): row["gb"] for row in memory},
        passes=colours.PASSES,
        bubble=colours.BUBBLE,
        kinds={row["kind"] for row in _timeline(timeline)[0]} if "timeline" in specs and timeline else set(),
        traffic=traffic(price, step) if step is not None else [],
        machine_svg=machine_svg,
        layouts=layouts,
        undrawn=len(layouts) - len(drawn),
        columns={name for name in ("gpus", "dollars") if len({row[name] for row in layouts}) > 1},
        best=[row for row in layouts if row["is_usable"]][:TABLE_ROWS],
        fit_words=FIT,
        fits={FIT[fit]: colour for fit, (colour, *_) in colours.FITS.items()},
        colours={"front": colours.VERMILION, "this": colours.PURPLE},
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
    """Writes seconds with three digits: ``14.7 s``, ``830 ms``, ``1,200 s``; a line does not break before the unit."""
    scale, unit = next((row for row in ((1.0, "s"), (1e-3, "ms")) if seconds >= row[0]), (1e-6, "µs"))
    number = float(f"{seconds / scale:.3g}")
    digits = 2 if number < 10 else 1 if number < 100 else 0
    return f"{number:,.{digits}f}\u00a0{unit}"


def _colour(part: str) -> str:
    return colours.OF_PART.get(part, colours.GREY)


def _commas(layout: str) -> str:
    """Writes a layout for HTML, where two blanks are one."""
    return layout.replace("  ", ", ")


def _time(price: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for part, seconds in price["parts"].items():
        name, colour, share = PARTS.get(part, part), _colour(part), seconds / price["seconds"]
        if share < LEAST:
            continue
        text = f"{timed(seconds)}, {share:.1%}"
        rows.append({"name": name, "colour": colour, "seconds": seconds, "share": share, "text": text})
    return rows


def _memory(price: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "role": role["name"],
            "name": name,
            "colour": _colour(name),
            "gb": nbytes / 1e9,
            "text": f"{nbytes / 1e9:.1f} GB",
        }
        for role in price["roles"]
        for name, nbytes in role["memory"].items()
    ]


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
        }
        for one in spans
    ]
    return rows, list(stages), max(row["end"] for row in rows)


def _kind(span: Mapping[str, Any]) -> str:
    if span["stream"] != "compute":
        return "communication"
    return {"F": "forward", "B": "backward", "W": "weights"}.get(span["name"].split(" ")[0], "once in a step")


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
    """Returns the rows of a sweep, fastest first, with the Pareto front of each number of GPUs marked."""
    rows: list[dict[str, Any]] = []
    least: dict[int | None, float] = {}
    for one in sorted(sweep, key=lambda one: (one["seconds"], one["memory_gb"])):
        gpus, is_usable = one.get("gpus"), one["fit"] != "too_large"
        is_best = is_usable and one["memory_gb"] < least.get(gpus, float("inf"))
        if is_best:
            least[gpus] = one["memory_gb"]
        extra = {"gpus": gpus, "dollars": one.get("dollars"), "is_best": is_best, "is_usable": is_usable}
        rows.append({"layout": _commas(one["layout"]), **_place(one), **extra})
    return rows
