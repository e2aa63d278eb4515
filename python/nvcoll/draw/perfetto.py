"""A timeline in the trace format that Perfetto and Chrome read: JSON, one event for each step in each tile.

::

    process   rank 0, rank 1, …                critical path                    links
    thread    queue 0, queue 1, …              one                              -
    event     a step in a tile: fold, copy     a piece of the path to the end   a counter: steps with bytes on it

Times are microseconds, the unit of the format, with picoseconds behind the point. An event begins when all waits of its
step are over. Source of the format: "Trace Event Format" of Chromium, events of phase X (complete),
C (counter) and M (metadata).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from os import PathLike
from typing import Any

from nvcoll._nvcoll import InvalidArgument, Timeline
from nvcoll.draw.drawing import kind
from nvcoll.draw.schedule_layout import place

Event = dict[str, Any]


def named(what: str, name: str, process: int, thread: int = 0) -> Event:
    """Returns the event that names a process or a thread."""
    return {"ph": "M", "name": f"{what}_name", "pid": process, "tid": thread, "args": {"name": name}}


def complete(name: str, start: float, end: float, process: int, thread: int, **arguments: object) -> Event:
    """Returns an event with begin and end, in microseconds."""
    event = {"ph": "X", "name": name, "cat": name, "pid": process, "tid": thread}
    return event | {"ts": start, "dur": round(end - start, 6), "args": arguments}


def step_events(timeline: Timeline) -> list[Event]:
    """Returns an event for each step in each tile, and the names of ranks and queues."""
    if timeline.spans is None:
        raise InvalidArgument("the timeline has no spans: simulate with spans=True")
    steps = {place(step): (kind(step), f"{', '.join(step.dst)} = {' + '.join(step.src)}") for step in timeline.steps}
    events = [named("process", f"rank {rank}", rank) for rank in range(len(timeline.end_us))]
    events += [named("thread", f"queue {queue}", rank, queue) for rank, queue in sorted({key[:2] for key in steps})]
    for rank, queue, step, tile, start, end in timeline.spans:
        name, words = steps[rank, queue, step]
        text = f"r{rank}.q{queue}.{step}  {words}"
        events.append(complete(name, start, end, rank, queue, step=text, tile=tile))
    return events


def critical_events(timeline: Timeline) -> list[Event]:
    """Returns an event for each piece of the critical path, as a process behind the ranks."""
    process = len(timeline.end_us)
    pieces = timeline.critical
    events = [complete(piece.reason, piece.start_us, piece.end_us, process, 0, words=piece.words) for piece in pieces]
    return [named("process", "critical path", process), named("thread", "what the end waits for", process), *events]


def link_events(timeline: Timeline) -> list[Event]:
    """Returns a counter for each used link: the number of steps with bytes on it, at every change."""
    process = len(timeline.end_us) + 1
    of_span, ways = timeline._ways()
    changes: dict[int, Counter[float]] = defaultdict(Counter)
    for way, (*_, start, end) in zip(of_span, timeline.spans or [], strict=True):
        before, links = ways[way]
        for link in links:
            changes[link][round(start + before, 6)] += 1
            changes[link][end] -= 1
    events = [named("process", "links", process)]
    for link, at in sorted(changes.items()):
        source, target, *_ = timeline.links[link]
        steps = 0
        for time, change in sorted(at.items()):
            steps += change
            if change:
                shared = {"ph": "C", "name": f"{source} -> {target}", "pid": process, "tid": 0}
                events.append(shared | {"ts": time, "args": {"steps": steps}})
    return events


def trace(timeline: Timeline) -> dict[str, object]:
    """Returns a timeline as a document of the trace format; see `Timeline.trace`."""
    links = [
        {"from": source, "to": target, "bytes": nbytes, "busy_us": busy}
        for source, target, nbytes, busy in timeline.links
        if nbytes
    ]
    about = {"schedule": timeline.schedule, "fabric": timeline.fabric, "time_us": timeline.time_us}
    events = step_events(timeline) + critical_events(timeline) + link_events(timeline)
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": about | {"links": links}}


def save(timeline: Timeline, path: str | PathLike[str]) -> None:
    """Writes a timeline to a file; see `Timeline.save_trace`."""
    text = json.dumps(trace(timeline), separators=(",", ":"))
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
