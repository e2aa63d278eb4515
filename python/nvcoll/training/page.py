"""A training step, planned or recorded, as one HTML page that one can send to a colleague: it opens without a network.

Headline, where the time goes, timeline of the stages, memory of each role, communication and the machine, sweep.
`nvcoll.training.charts` draws with Vega-Lite, by altair: its scripts are 0.9 MB in the page, those of plotly 4.5 MB,
and bokeh needs pandas. The frame is `page.html.jinja`, which escapes every name. A content security policy in the page
forbids all loading, and all scripts but its own two.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from nvcoll._nvcoll import InvalidArgument
from nvcoll.draw import machine_drawing
from nvcoll.training import colours
from nvcoll.training.communication import busy, traffic
from nvcoll.training.layouts import words
from nvcoll.training.page_rows import commas, of_layouts, of_lines, of_memory, of_price, of_time, of_timeline, timed
from nvcoll.training.prediction import FITS, StepPrediction
from nvcoll.training.sweep import Candidate

HERE: Final = Path(__file__).parent

TABLE_ROWS: Final = 10
"""Layouts in the table of a sweep. Chosen."""

DRAWN: Final = 2.0
"""The most memory of a layout in the chart of a sweep, in that of the GPU. Chosen: what fits stays in view."""

NEEDED: Final = (
    *("seconds", "low_s", "high_s", "tokens_per_second", "mfu", "tflops", "parts", "roles"),
    *("memory_gb", "gpu_memory_gb", "fit"),
)
"""The fields of a price that a page shows."""


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
    if prediction.is_recorded:
        facts.append(("recorded", _recorded(price["step"]["streams"])))
    if request:
        layout, model = request["layout"], request["model"]
        sizes = f"global batch {layout['global_batch']:,} sequences of {layout['sequence']:,} tokens"
        facts.insert(0, ("model", model.get("title", model["name"])))
        facts.append(("layout", f"{commas(words(layout))}, {layout['dtype']}, {sizes}"))
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


def _recorded(streams: Mapping[str, Any]) -> str:
    ops = sum(len(rank["issued"]) for rank in streams["ranks"])
    ranks = ", ".join(f"{rank['name']} (rank {rank['rank']} for {rank['stands_for']:,})" for rank in streams["ranks"])
    return f"on {streams['gpu']}, {ops:,} operations of {ranks}"


def page(
    title: str,
    price: Mapping[str, Any],
    *,
    step: Mapping[str, Any] | None = None,
    timeline: Mapping[str, Any] | None = None,
    sweep: Sequence[Mapping[str, Any]] = (),
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
    jinja2, charts = libraries()
    _check(price)
    shown: dict[str, Any] = {
        "time": of_time(price),
        "memory": of_memory(price),
        "traffic": traffic(price, step) if step is not None else [],
        "layouts": of_layouts(sweep),
        "spans": of_timeline(timeline) if timeline is not None else [],
        "lines": of_lines(price),
        "is_recorded": "streams" in (step or {}),
    }
    gpu_gb = price["gpu_memory_gb"]
    specs = {
        "time": charts.time_bar(shown["time"]),
        "memory": charts.memory(shown["memory"], [role["name"] for role in price["roles"]], gpu_gb),
    }
    if shown["spans"] and timeline is not None:
        specs["timeline"] = charts.timeline(shown["spans"], timeline["stages"])
    drawn = [row for row in shown["layouts"] if row["memory_gb"] <= DRAWN * gpu_gb]
    if drawn:
        chosen = {"layout": "the layout of this page", "gpus": (step or {}).get("gpus"), **of_price(price)}
        specs["sweep"] = charts.sweep(drawn, gpu_gb, chosen)
    shown |= {"title": title, "price": price, "facts": facts, "machine_svg": machine_svg, "drawn": drawn}
    return _written(jinja2, shown, specs)


def _check(price: Mapping[str, Any]) -> None:
    if missing := [name for name in NEEDED if name not in price]:
        raise InvalidArgument(f"the price of the step lacks `{missing[0]}`: pass the JSON of a price, as a mapping")
    if price["fit"] not in FITS:
        raise InvalidArgument(f"the fit of the price is `{price['fit']}`: pass one of {', '.join(FITS)}")
    names = Counter(role["name"] for role in price["roles"])
    if twice := [name for name, count in names.items() if count > 1]:
        raise InvalidArgument(f"{names[twice[0]]} roles are called `{twice[0]}`: give each role its own name")


def _written(jinja2: ModuleType, shown: Mapping[str, Any], specs: Mapping[str, Any]) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    environment.filters["timed"] = timed
    environment.globals |= {"colours": vars(colours), "fits": FITS, "most": TABLE_ROWS}
    scripts = (_bundle(), (HERE / "page.js").read_text(encoding="utf-8"))
    hashes = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in scripts]
    template = environment.get_template("page.html.jinja")
    rendered: str = template.render(**shown, specs=specs, scripts=scripts, hashes=hashes)
    return rendered


def libraries() -> tuple[ModuleType, ModuleType]:
    """Imports what draws pages: Jinja2, and the module of charts.

    Raises:
        InvalidArgument: altair, Jinja2 or vl-convert-python is not installed.
    """
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
