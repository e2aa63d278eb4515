"""Schedules, proofs, predictions, machines and timelines in a notebook, as tables and pictures.

A table has the colours of the notebook. A picture has its own, for light and dark. A schedule that is too large to read
is not drawn: the picture of a million steps would stop the page.
"""

from __future__ import annotations

from collections.abc import Iterable

from nvcoll._nvcoll import Fabric, Prediction, Proof, Schedule, StepPrediction, Timeline, collectives, step_words
from nvcoll.draw import drawing, machine_drawing, timelines
from nvcoll.text.formatting import EXPRESSIONS, counted, escaped, shortened, sized

MOST_RANKS, MOST_STEPS = 16, 256
"""The limits of a drawn schedule. Chosen: a picture of some screens, and less than a megabyte."""

MOST_GPUS = 144
"""The most GPUs of a drawn machine. Chosen: two racks of 72."""

MOST_COUNTED_STEPS = 1 << 18
"""The most steps of a schedule whose cost is counted. Chosen: counting takes a moment, not seconds."""


def is_drawn(schedule: Schedule) -> bool:
    """Says whether a picture of a schedule can be read."""
    return schedule.world_size <= MOST_RANKS and schedule.step_count <= MOST_STEPS


def schedule_svg(schedule: Schedule) -> str | None:
    """Returns the picture of a schedule; None if it is too large."""
    return drawing.svg(schedule) if is_drawn(schedule) else None


def fabric_svg(fabric: Fabric) -> str | None:
    """Returns the picture of a machine; None if it is too large."""
    return machine_drawing.svg(fabric) if fabric.world_size <= MOST_GPUS else None


def schedule_html(schedule: Schedule) -> str:
    """Returns the summary of a schedule, and its picture if it is not too large."""
    rows = [*_identity(schedule), ("chunks", f"{schedule.chunks:,}"), ("steps", f"{schedule.step_count:,}")]
    if schedule.step_count <= MOST_COUNTED_STEPS:
        moved, waits = schedule.cost()
        most = schedule.moved_by_busiest()
        busiest = "" if f"{moved:.2f}" == f"{most:.2f}" else f"; the busiest {most:.2f}"
        if schedule.chunks:
            rows.append(("a rank moves", f"{moved:.2f} times its longer buffer{busiest}"))
        rows.append(("waits", f"{waits} on the longest chain"))
    if is_drawn(schedule):
        picture = f'<div style="overflow-x:auto">{drawing.svg(schedule)}</div>'
    else:
        limits = f"{counted(MOST_RANKS, 'rank')} and {counted(MOST_STEPS, 'step')}"
        picture = f"<p>Not drawn: a picture can be read up to {limits}. <code>str(schedule)</code> is the text.</p>"
    return f"<div>{_table(f'Schedule {schedule.collective} {schedule.algorithm}', rows)}{picture}</div>"


def timeline_svg(timeline: Timeline) -> str | None:
    """Returns the picture of a timeline; None if it has too many ranks, or no spans."""
    is_drawable = timeline.spans is not None and len(timeline.end_us) <= MOST_RANKS
    return timelines.svg([timeline]) if is_drawable else None


def timeline_html(timeline: Timeline) -> str:
    """Returns the time of a timeline, what takes most of it, and its picture if spans were kept."""
    rows = [
        ("machine", timeline.fabric),
        ("time", f"{timeline.time_us:,.1f} us"),
        ("ranks leave", f"{min(timeline.end_us):,.1f} to {max(timeline.end_us):,.1f} us"),
        ("bottleneck", timeline.bottleneck),
    ]
    picture = timeline_svg(timeline)
    drawn = "" if picture is None else f'<div style="overflow-x:auto">{picture}</div>'
    return f"<div>{_table(f'Timeline {timeline.schedule}', rows)}{drawn}</div>"


def step_html(found: StepPrediction) -> str:
    """Returns the line of a step, and the parts of its time."""
    titles = {name: title for name, _, title in step_words()[0]}
    rows = [(titles[name], f"{100 * seconds / found.seconds:.1f} %") for name, seconds in found.parts.items()]
    return _table(repr(found)[1:-1], rows)


def prediction_html(prediction: Prediction) -> str:
    """Returns the predicted time of a call with its parts, its bounds and its accuracy."""
    head = f"{prediction.collective} of {sized(prediction.nbytes)} on {prediction.fabric}"
    channels = "" if prediction.channels is None else f", {counted(prediction.channels, 'channel')}"
    rows = [
        ("time", f"{prediction.time_us:,.1f} us (90 %: {prediction.low_us:,.1f} to {prediction.high_us:,.1f} us)"),
        ("bandwidth", f"{prediction.busbw:.1f} GB/s busbw, {prediction.algbw:.1f} GB/s algbw"),
        ("lower bound", f"{prediction.floor_us:,.1f} us"),
        ("runs by", prediction.implementation),
        ("algorithm", f"{prediction.algorithm} {prediction.protocol}{channels}; {prediction.choice}"),
        ("launch", prediction.launch),
        ("bottleneck", prediction.bottleneck),
        *((f"of the time: {name}", f"{us:,.1f} us") for name, us in prediction.parts),
        ("accuracy", prediction.trust),
    ]
    return f"<div>{_table(head, rows)}</div>"


def proof_html(proof: Proof) -> str:
    """Returns the proved properties, the time of the proof, and the expressions of some chunks."""
    schedule = proof.schedule
    rows = [*_identity(schedule), ("steps", f"{proof.steps:,}"), ("time", f"{proof.seconds * 1e3:.2f} ms")]
    rows.append(("order", proof.order))
    if proof.is_rank_order and schedule.chunks:
        rows.append(("every element", shortened(proof.expression(0))))
    elif schedule.chunks:
        shown = min(schedule.chunks, EXPRESSIONS)
        rows += [(f"chunk {chunk}", shortened(proof.expression(chunk))) for chunk in range(shown)]
        if schedule.chunks > shown:
            rows.append(("", f"… and so on, {schedule.chunks:,} chunks"))
    return f"<div>{_table(f'Proof of {schedule.collective} {schedule.algorithm}', rows)}</div>"


def _identity(schedule: Schedule) -> list[tuple[str, str]]:
    has_root = next(row.has_root for row in collectives() if row.name == schedule.collective)
    root = f", root {schedule.root}" if has_root else ""
    return [
        ("collective", schedule.collective),
        ("algorithm", schedule.algorithm),
        ("ranks", f"{schedule.world_size:,}{root}"),
        ("path", schedule.path),
        ("aliasing", "in place" if schedule.in_place else "out of place"),
    ]


def _table(caption: str, rows: Iterable[tuple[str, str]]) -> str:
    left = 'style="text-align:left"'
    lines = "".join(
        f"<tr><th {left}>{escaped(label)}</th><td {left}>{escaped(value)}</td></tr>" for label, value in rows
    )
    return f"<table><caption {left}><b>{escaped(shortened(caption))}</b></caption>{lines}</table>"
