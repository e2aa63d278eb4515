"""The timeline of a training step in the trace format that Perfetto and Chrome read.

::

    process   stage 0, stage 1, …              links
    thread    compute, communication, …        -
    event     a span: F 3, B 3, W 3            a counter: what the link carries
    flow      a send: from the end of a span to the begin of another

The timeline of a pipeline (`of_pipeline`), the streams of a recorded step (`of_streams`) or any other `Document`
becomes a trace. A document is open: whoever knows
more of a step adds spans of other streams, sends and loads. Times of a trace are microseconds, with picoseconds behind
the point. Source of the format: "Trace Event Format" of Chromium, events of phase X (complete), s and f (flow),
C (counter) and M (metadata).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from os import PathLike
from typing import Any, NotRequired, TypedDict

from nvcoll._nvcoll import InvalidArgument
from nvcoll.draw.perfetto import Event, complete, named

STREAMS = ("compute", "communication")
"""The streams that come first, as threads 0 and 1 of each stage; others follow as they come."""

WITHIN_US = 1e-3
"""How long before the end of its span a flow begins: an event at the end would belong to the next span. Chosen."""


class Span(TypedDict):
    """A time of a stream of a stage. Spans of a stream do not overlap."""

    stage: int
    stream: str
    name: str
    start_s: float
    end_s: float
    args: NotRequired[Mapping[str, object]]


class Send(TypedDict):
    """Data that one span sends to another, by their positions in the document."""

    name: str
    source: int
    target: int


class Load(TypedDict):
    """What a link carries for some time. Loads of a link at the same time add up."""

    link: str
    start_s: float
    end_s: float
    load: float


class Document(TypedDict):
    """A step: names of its stages, spans, sends, loads, and the unit of loads."""

    title: str
    stages: list[str]
    spans: list[Span]
    sends: list[Send]
    loads: list[Load]
    unit: str


def of_pipeline(timeline: Mapping[str, Any], *, send_s: float = 0.0, title: str = "") -> Document:
    """Makes a document of the timeline of a pipeline.

    Args:
        timeline: what ``nvcoll_step::pipeline::Timeline`` is in JSON, with spans.
        send_s: seconds of a send between stages. While one is under way, its link has a load.
        title: what the step is.

    Raises:
        InvalidArgument: the timeline has no spans.
    """
    stages = timeline["stages"]
    spans: list[Span] = []
    numbers: dict[tuple[str, int, int], int] = {}
    for stage, row in enumerate(stages):
        for span in row.get("spans", ()):
            what, micro_batch, chunk = span["pass"], span["micro_batch"], span["chunk"]
            if what != "W":
                numbers[what, chunk * len(stages) + stage, micro_batch] = len(spans)
            name = f"{what} {micro_batch}" + (f" chunk {chunk}" if len(row["in_flight"]) > 1 else "")
            start_s, end_s = span["start_ps"] / 1e12, span["end_ps"] / 1e12
            args = {"pass": what, "micro_batch": micro_batch, "chunk": chunk}
            spans.append(Span(stage=stage, stream="compute", name=name, start_s=start_s, end_s=end_s, args=args))
    if not spans:
        raise InvalidArgument("the timeline has no spans: run the pipeline with spans")
    sends: list[Send] = []
    loads: list[Load] = []
    for (what, place, micro_batch), source in numbers.items():
        target = numbers.get((what, place + (1 if what == "F" else -1), micro_batch))
        if target is None or len(stages) == 1:
            continue
        sends.append(Send(name="activation" if what == "F" else "gradient", source=source, target=target))
        link = f"stage {spans[source]['stage']} -> stage {spans[target]['stage']}"
        begin = spans[source]["end_s"]
        if send_s > 0:
            loads.append(Load(link=link, start_s=begin, end_s=begin + send_s, load=1))
    names = [f"stage {stage}" for stage in range(len(stages))]
    return Document(title=title, stages=names, spans=spans, sends=sends, loads=loads, unit="sends")


KINDS = {
    **dict.fromkeys(("collective", "message"), "communication"),
    "copy": "copies",
    "gemm": "matrix products",
    "attention": "attention",
}
"""Kinds of spans of a recorded step by the work of the operation; all other work is of other kernels."""

ORDER = ("record", "stream_wait", "host_wait", "host")
"""Work of a recorded step that has no span on a stream."""


def of_streams(timeline: Mapping[str, Any], step: Mapping[str, Any]) -> Document:
    """Makes a document of a recorded step: for each recorded rank its streams, and messages between recorded ranks.

    It begins with the first operation of a stream.

    Args:
        timeline: what ``nvcoll_step::pricing::StreamsTimeline`` is in JSON.
        step: the JSON of the step.
    """
    ranks = step["streams"]["ranks"]
    rows = [
        zip(rank["issued"], times["start_ns"], strict=True)
        for rank, times in zip(ranks, timeline["ranks"], strict=True)
    ]
    first = min(start for row in rows for op, start in row if op["work"] not in ORDER)
    lines = step["streams"].get("lines", [])
    spans: list[Span] = []
    lanes: dict[tuple[int, int], list[int]] = defaultdict(list)
    ends: dict[tuple[int, int, int], dict[str, list[int]]] = defaultdict(lambda: {"send": [], "recv": []})
    for stage, (rank, times) in enumerate(zip(ranks, timeline["ranks"], strict=True)):
        for op, start, end in zip(rank["issued"], times["start_ns"], times["end_ns"], strict=True):
            work = op["work"]
            if work in ORDER:
                continue
            if work == "message":
                between = (rank["rank"], op["peer"]) if op["way"] == "send" else (op["peer"], rank["rank"])
                ends[(*between, op.get("tag", 0))][op["way"]].append(len(spans))
            name = op.get("name") or op.get("pattern") or op.get("way") or work
            line = {"line": lines[op["line"]]} if "line" in op else {}
            args = {"kind": KINDS.get(work, "other kernels"), **line}
            where = _lane(lanes[stage, op.get("stream", 0)], f"stream {op.get('stream', 0)}", start, end)
            start_s, end_s = (start - first) / 1e9, (end - first) / 1e9
            spans.append(Span(stage=stage, stream=where, name=name, start_s=start_s, end_s=end_s, args=args))
    sends = [
        Send(name="message", source=source, target=target)
        for both in ends.values()
        if len(both["send"]) == len(both["recv"])
        for source, target in zip(both["send"], both["recv"], strict=True)
    ]
    names = [rank["name"] for rank in ranks]
    return Document(title=step["name"], stages=names, spans=spans, sends=sends, loads=[], unit="messages")


def _lane(lanes: list[int], stream: str, start: int, end: int) -> str:
    """Returns the name of the first lane of a stream that is free; operations of a group call run beside each other."""
    lane = next((lane for lane, until in enumerate(lanes) if until <= start), len(lanes))
    lanes[lane : lane + 1] = [end]
    return stream if lane == 0 else f"{stream} ({lane + 1})"


def _us(seconds: float) -> float:
    return round(1e6 * seconds, 6)


def span_events(document: Document) -> list[Event]:
    """Returns an event for each span, in the order of the document, then the names of stages and streams."""
    spans = document["spans"]
    threads = {stream: thread for thread, stream in enumerate(_streams(document))}
    events = [
        complete(
            span["name"],
            _us(span["start_s"]),
            _us(span["end_s"]),
            span["stage"],
            threads[span["stream"]],
            **span.get("args", {}),
        )
        for span in spans
    ]
    used = sorted({(span["stage"], threads[span["stream"]], span["stream"]) for span in spans})
    events += [named("process", name, stage) for stage, name in enumerate(document["stages"])]
    return events + [named("thread", stream, stage, thread) for stage, thread, stream in used]


def _streams(document: Document) -> list[str]:
    return list(dict.fromkeys((*STREAMS, *(span["stream"] for span in document["spans"]))))


def flow_events(document: Document, spans: list[Event]) -> list[Event]:
    """Returns two events for each send: one within the span that sends, one at the begin of the span that receives.

    A send from or to a span of no time has none: no event can lie within it.
    """
    events = []
    for number, send in enumerate(document["sends"]):
        source, target = spans[send["source"]], spans[send["target"]]
        if not (source["dur"] and target["dur"]):
            continue
        begin = source["ts"] + max(0.0, source["dur"] - WITHIN_US)
        for phase, event, ts in (("s", source, round(begin, 6)), ("f", target, target["ts"])):
            shared = {"ph": phase, "name": send["name"], "cat": "send", "id": number}
            ends = {"bp": "e"} if phase == "f" else {}
            events.append(shared | {"pid": event["pid"], "tid": event["tid"], "ts": ts} | ends)
    return events


def load_events(document: Document) -> list[Event]:
    """Returns a counter for each link: its load, at every change."""
    process = len(document["stages"])
    changes: dict[str, dict[float, float]] = defaultdict(lambda: defaultdict(float))
    for load in document["loads"]:
        changes[load["link"]][_us(load["start_s"])] += load["load"]
        changes[load["link"]][_us(load["end_s"])] -= load["load"]
    events = [named("process", "links", process)] if changes else []
    for link, at in sorted(changes.items()):
        load_now = 0.0
        for ts, change in sorted(at.items()):
            load_now = round(load_now + change, 6)
            shared = {"ph": "C", "name": link, "pid": process, "tid": 0, "ts": ts}
            events.append(shared | {"args": {document["unit"]: load_now}})
    return events


def trace(document: Document) -> dict[str, object]:
    """Returns a step in the trace format."""
    spans = span_events(document)
    events = spans + flow_events(document, spans) + load_events(document)
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"title": document["title"]}}


def save(document: Document, path: str | PathLike[str]) -> None:
    """Writes a step to a file that https://ui.perfetto.dev opens."""
    text = json.dumps(trace(document), separators=(",", ":"))
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
