"""A training step, planned or recorded, as one HTML page that one can send to a colleague: it opens without a network.

Several machines or a sweep come first, then the best step: headline, where the time goes, timeline of the stages,
memory of each role, communication and the machine.
`nvcoll.training.charts` draws with Vega-Lite, by altair: its scripts are 0.9 MB in the page, plotly's 4.5 MB,
and bokeh needs pandas. The frame is `page.html.jinja`, which escapes every name; `step.html.jinja` is
what a step fills in. A content security policy in the page forbids all loading, and all scripts but its own two.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from nvcoll._nvcoll import InvalidArgument, StepPrediction
from nvcoll.draw import machine_drawing
from nvcoll.training import colours
from nvcoll.training.communication import busy, traffic
from nvcoll.training.page_rows import commas, of_layouts, of_lines, of_machines, of_memory, of_time, of_timeline, timed
from nvcoll.training.prediction import FITS, fit_words
from nvcoll.training.sweep import TABLE_ROWS, Sweep
from nvcoll.training.trace import Document

HERE: Final = Path(__file__).parent

DRAWN: Final = 2.0
"""The most memory of a layout in the chart of a sweep, as a multiple of the GPU's. Chosen: what fits stays in view."""


def of(
    prediction: StepPrediction,
    *,
    timeline: Document | None = None,
    sweep: Sweep | None = None,
    several: Sequence[StepPrediction] = (),
) -> str:
    """Makes the page of a prediction, with its machine and its input.

    Args:
        prediction: the prediction of a step.
        timeline: the document of its pipeline, of `Machine.timeline`.
        sweep: the layouts; the step is the best of them.
        several: predictions on several machines; the step is the best of them.

    Returns:
        A self-contained HTML document.

    Raises:
        InvalidArgument: altair, Jinja2 or vl-convert-python is not installed, or two roles have one name.
    """
    _, charts = libraries()
    tables, machine, gpu_gib = prediction.memory or (), prediction.machine, prediction.gpu_memory_gib
    names = Counter(one.name for one in prediction.roles)
    if twice := [name for name, count in names.items() if count > 1]:
        raise InvalidArgument(f"{names[twice[0]]} roles are called `{twice[0]}`: give each role its own name")
    carried = traffic(prediction)
    shown: dict[str, Any] = {
        "time": of_time(prediction.machine.name, prediction.parts, prediction.seconds),
        "memory": of_memory(tables),
        "traffic": carried,
        "machines": of_machines(several),
        "layouts": of_layouts(sweep.candidates if sweep else ()),
        "spans": of_timeline(timeline) if timeline is not None else [],
        "lines": of_lines(prediction),
        "facts": _facts(prediction),
        "machine_svg": machine_drawing.svg(
            machine, busy=busy(carried, prediction.seconds, machine_drawing.families(machine))
        ),
    }
    specs = {"time": charts.time_bar(shown["time"])}
    if tables:
        specs["memory"] = charts.memory(shown["memory"], [one.role for one in tables], gpu_gib)
    if several:
        specs["machines"] = charts.machines([row for one in shown["machines"] for row in one["parts"]])
    if shown["spans"] and timeline is not None:
        specs["timeline"] = charts.timeline(shown["spans"], timeline["stages"])
    if drawn := [row for row in shown["layouts"] if row["memory_gib"] <= DRAWN * gpu_gib]:
        chosen = next((row for row in drawn if row["fit"] != "too_large"), drawn[0])
        specs["sweep"] = charts.sweep(drawn, gpu_gib, chosen)
    shown |= {"title": prediction.step.name, "price": prediction, "tables": tables, "drawn": drawn}
    return written(HERE / "step.html.jinja", shown, specs)


def _facts(prediction: StepPrediction) -> list[tuple[str, str]]:
    """Returns names and values of the input, as ``("model", "Llama 3 70B")``."""
    machine, request = prediction.machine, prediction.request
    facts = [("machine", f"{machine.name}: {machine.title}")]
    if prediction.is_recorded:
        facts.append(("recorded", _recorded(json.loads(prediction.step.to_json())["streams"])))
    if request:
        layout, model = request["layout"], request["model"]
        sizes = f"global batch {layout['global_batch']:,} sequences of {layout['sequence']:,} tokens"
        facts.insert(0, ("model", model["title"] or model["name"]))
        facts.append(("layout", f"{commas(prediction.words)}, {layout['dtype']}, {sizes}"))
        facts.append(("software", request["software"]["title"]))
    return facts


def _recorded(streams: Mapping[str, Any]) -> str:
    ops = sum(len(rank["issued"]) for rank in streams["ranks"])
    ranks = ", ".join(f"{rank['name']} (rank {rank['rank']} for {rank['stands_for']:,})" for rank in streams["ranks"])
    return f"on {streams['gpu']}, {ops:,} operations of {ranks}"


def written(template: Path, shown: Mapping[str, object], specs: Mapping[str, object]) -> str:
    """Writes a page: a template that fills in the frame, what it shows, and specifications of its charts by name.

    Raises:
        InvalidArgument: a library is not installed.
    """
    jinja2, _ = libraries()
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([template.parent, HERE]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    environment.filters["timed"] = timed
    environment.globals |= {"colours": vars(colours), "fits": FITS, "fit_words": fit_words, "most": TABLE_ROWS}
    scripts = (_bundle(), (HERE / "page.js").read_text(encoding="utf-8"))
    hashes = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in scripts]
    rendered: str = environment.get_template(template.name).render(**shown, specs=specs, scripts=scripts, hashes=hashes)
    return rendered


def libraries() -> tuple[ModuleType, ModuleType]:
    """Returns Jinja2 and the charts.

    Raises:
        InvalidArgument: a library is not installed.
    """
    try:
        import altair  # noqa: F401
        import jinja2
        import vl_convert  # noqa: F401

        from nvcoll.training import charts
    except ImportError as error:
        lacks = f"a page of a step is drawn with {error.name}, which is not installed"
        raise InvalidArgument(f"{lacks}: pip install '.[page]' in a clone of nvcoll") from None
    return jinja2, charts


@cache
def _bundle() -> str:
    """Returns the scripts of Vega, Vega-Lite and Vega-Embed, of the version for which altair writes."""
    import altair
    import vl_convert

    version = ".".join(altair.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    bundle: str = vl_convert.javascript_bundle(vl_version=version)
    return bundle.replace("</script", "<\\/script")
