"""One file of torch.profiler: its events, the step that is read, and the operations of the GPU in it.

::

    traceEvents ─▶ events ─▶ the step: ProfilerStep#N ─▶ its launches, and by their correlation its kernels and copies

An operation belongs to the step in which it was launched, wherever it ran.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Final

from nvcoll.errors import InvalidArgument
from nvcoll.traces.program import MOST

US: Final = 1e-6

SAME_US: Final = 2.0
"""Times that differ by less count as equal. Chosen: the clocks of GPU and processor agree to a microsecond or two."""

LONGEST_GAP_US: Final = 5.0
"""The longest gap before a kernel that was ready which counts as the GPU's own. Chosen."""

STEP: Final = re.compile(r"ProfilerStep#(\d{1,18})")

GPU_CATEGORIES: Final = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
CALL_CATEGORIES: Final = frozenset({"cuda_runtime", "cuda_driver"})


@dataclass(frozen=True)
class Event:
    """A complete event: name, category, thread, start and end in microseconds, arguments."""

    name: str
    category: str
    thread: object
    start: float
    end: float
    args: Mapping[str, object]

    @property
    def correlation(self) -> object:
        """The number that a launch and its kernels share."""
        return self.args.get("correlation")

    @property
    def external(self) -> object:
        """The number of the operator that launched it."""
        return self.args.get("External id")


@dataclass
class Rank:
    """One file: the operations of the GPU in the step, in the order of launches, and the calls of the processor."""

    where: str
    number: int
    world: int
    start: float
    end: float
    ops: list[Event]
    launches: list[Event]
    calls: list[Event]
    syncs: dict[object, Event]
    facts: Mapping[str, object]
    meta: dict[object, Mapping[str, object]]
    step: int | None
    """The number of its step; None if it is the whole trace."""
    running: list[tuple[float, float]]
    """Starts of operations of the GPU, in order, each with the latest end so far."""
    streams: dict[object, list[int]] = field(default_factory=lambda: defaultdict(list))

    blocking: dict[object, Event] = field(default_factory=dict)
    """Copies whose end the processor awaited, by the correlation of their launches."""
    gaps: dict[int, float] = field(default_factory=dict)
    """Microseconds between an operation and the next one of its stream, if that was ready."""

    def __post_init__(self) -> None:
        pairs = zip(self.ops, self.launches, strict=True)
        self.blocking = {call.correlation: op for op, call in pairs if "Memcpy" in op.name and call.end >= op.end}
        for number, op in enumerate(self.ops):
            self.streams[stream_of(op)].append(number)
        for numbers in self.streams.values():
            for one, other in pairwise(numbers):
                gap = self.ops[other].start - self.ops[one].end
                if self.launches[other].end < self.ops[one].end and 0 < gap <= LONGEST_GAP_US:
                    self.gaps[one] = gap

    @property
    def title(self) -> str:
        """The step in words."""
        return "all" if self.step is None else f"step {self.step}"

    def idle(self, call: Event, op: Event) -> float:
        """Returns the microseconds from a launch to its start in which nothing ran on the GPU."""
        before = bisect_left(self.running, op.start, key=lambda span: span[0])
        return max(op.start - max([call.end, *(end for _, end in self.running[max(before - 1, 0) : before])]), 0.0)

    def before(self, time: float, stream: object) -> int:
        """Returns the number of operations of a stream that were launched before a time."""
        return bisect_left(self.streams[stream], time, key=lambda number: self.launches[number].end)


def stream_of(op: Event) -> int:
    """Returns the stream of an operation."""
    stream = op.args.get("stream")
    return stream if isinstance(stream, int) and 0 <= stream < 2**31 else 0


def events_of(where: str, document: object) -> list[Event]:
    rows = rows_of(document)
    if len(rows) > 8 * MOST:
        raise InvalidArgument(f"{where} has {len(rows)} events, at most {8 * MOST} are read: trace fewer steps")
    found = []
    for row in rows:
        if isinstance(row, dict) and row.get("ph") == "X":
            start, duration, args = number_of(row.get("ts")), number_of(row.get("dur", 0)), row.get("args")
            if start is None or duration is None or not isinstance(name := row.get("name"), str):
                raise InvalidArgument(f"{where} has an event without name, `ts` or `dur`: {str(row)[:80]}")
            thread = key_of(row.get("tid"))
            args = {key: key_of(value) if key == "correlation" else value for key, value in fields_of(args).items()}
            args["External id"] = key_of(args.get("External id"))
            found.append(Event(name, str(row.get("cat")), thread, start, start + max(duration, 0.0), args))
    return found


def number_of(value: object) -> float | None:
    """Returns a finite number, or one that is written as text."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if abs(number) < 1e19 else None


def key_of(value: object) -> object:
    return value if isinstance(value, int | str) else None


def fields_of(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def rows_of(document: object) -> list[object]:
    """Returns the events of a document; none if it is no trace."""
    rows = document.get("traceEvents") if isinstance(document, dict) else document
    return rows if isinstance(rows, list) else []


def window_of(where: str, events: Sequence[Event], step: int | None) -> tuple[int | None, float, float]:
    """Returns number, start and end of a step; None, start and end of a trace without steps."""
    steps = {
        int(match[1]): one
        for one in events
        if (match := STEP.match(one.name)) and one.category != "gpu_user_annotation"
    }
    if not steps and step is None:
        kept = [one for one in events if one.category in GPU_CATEGORIES | CALL_CATEGORIES]
        return None, min(one.start for one in kept), max(one.end for one in kept)
    if step is not None and step not in steps:
        there = ", ".join(map(str, sorted(steps))) or "none: the script did not call profiler.step()"
        raise InvalidArgument(f"{where} has no ProfilerStep#{step}: it has {there}")
    by_time = sorted(steps, key=lambda number: steps[number].end - steps[number].start)
    chosen = by_time[len(by_time) // 2] if step is None else step
    return chosen, steps[chosen].start, steps[chosen].end


def rank_of(where: str, document: object, step: int | None) -> Rank:
    events = events_of(where, document)
    calls = [one for one in events if one.category in CALL_CATEGORIES]
    ran = [one for one in events if one.category in GPU_CATEGORIES]
    if not calls or not ran:
        missing = "kernels of a GPU" if calls else "launches (category cuda_runtime)"
        raise InvalidArgument(f"{where} has no {missing}: profile with ProfilerActivity.CPU and ProfilerActivity.CUDA")
    if len({str(one.args.get("device")) for one in ran if one.category == "kernel"}) > 1:
        raise InvalidArgument(f"{where} has kernels of several GPUs, one rank in each file was expected")
    chosen, start, end = window_of(where, events, step)
    by_correlation = {one.correlation: one for one in calls if one.correlation is not None}
    launched = [(by_correlation[one.correlation], one) for one in ran if one.correlation in by_correlation]
    launched = [pair for pair in launched if start <= pair[0].start < end]
    launched.sort(key=lambda pair: (pair[0].end, pair[1].start))
    if not launched:
        raise InvalidArgument(f"{where} has no kernels in step {chosen}: choose another step")
    facts = fields_of(document) if isinstance(document, dict) else {}
    job = fields_of(facts.get("distributedInfo"))
    number, world = (whole(job.get(key), default) for key, default in (("rank", 0), ("world_size", 1)))
    return Rank(
        where=where,
        number=number,
        world=max(world, 1),
        start=start,
        end=end,
        ops=[op for _, op in launched],
        launches=[call for call, _ in launched],
        calls=sorted((one for one in calls if start <= one.start < end), key=lambda one: one.end),
        syncs={one.correlation: one for one in events if one.category == "cuda_sync"},
        facts=facts,
        meta={
            one.external: one.args for one in events if one.name == "record_param_comms" and one.external is not None
        },
        step=chosen,
        running=[*zip(sorted(one.start for one in ran), latest_ends(ran), strict=True)],
    )


def latest_ends(ran: Sequence[Event]) -> Iterator[float]:
    """Yields for each operation, in the order of starts, the latest end so far."""
    return accumulate((one.end for one in sorted(ran, key=lambda one: one.start)), max)


def whole(value: object, default: int = 0) -> int:
    """Returns a number, or text of a number, as a rank, size or count; `default` if it cannot be one."""
    number = number_of(value)
    return int(number) if number is not None and 0 <= number < 2**31 else default


def is_collective(op: Event) -> bool:
    """Says whether a kernel is one of NCCL or RCCL."""
    return op.category == "kernel" and "nccl" in op.name[:24].lower()
