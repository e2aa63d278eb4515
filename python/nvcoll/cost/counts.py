"""The calls of a rank by kind: as an engine counts them here, and as text that a rank sends to another process.

A program marks the end of each training step by ``nvcoll.step()``; optimizers of torch do it themselves. The calls
between the first mark and the last belong to training steps. The calls of the set-up, for example the broadcast of the
parameters, and the calls of the first step do not.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields
from functools import cache, partial
from operator import attrgetter

from nvcoll._nvcoll import CallCounts, Schedule

MOST_TOLD_STEPS = 1 << 16
"""The most steps of a schedule that is sent, for prices of calls that NCCL does not have. Chosen: some megabytes."""


@dataclass(frozen=True)
class CallKind:
    """The properties in which kinds of calls differ.

    Attributes:
        collective: the name of the collective; ``sendrecv`` of sends.
        nbytes: the bytes of the longest buffer of a rank, as nccl-tests counts them.
        dtype, op: their names, or None.
        algorithm: what the program asked for.
        root: a place in ``ranks``, or None.
        ranks: the ranks that took part.
        grouped: calls of a group that differ in their lengths only are one, of all their bytes: their number.
    """

    collective: str
    nbytes: int
    dtype: str | None
    op: str | None
    algorithm: str
    root: int | None
    ranks: tuple[int, ...]
    grouped: int


NAMES = [one.name for one in fields(CallKind)]


@dataclass(frozen=True)
class CountedCalls:
    """Calls of one kind: their number, how many are in steps of training, and the schedule of the first, if known."""

    kind: CallKind
    times: int
    in_steps: int
    schedule: Callable[[], Schedule | None]


@dataclass(frozen=True)
class Counts:
    """The kinds of calls, in the order of their first call; calls of ``others`` kinds; and the steps of training."""

    calls: Sequence[CountedCalls]
    others: int
    steps: int


class MarkedCounts:
    """The counts of a rank's calls, and the marks of its steps.

    Attributes:
        steps: the number of whole steps: one less than the marks.
    """

    def __init__(self, counts: CallCounts) -> None:
        self._counts = counts
        self.steps = 0
        self._first: Counter[CallKind] | None = None
        self._last: Counter[CallKind] = Counter()

    def mark(self) -> None:
        """Marks the end of a step."""
        self._last = Counter({one.kind: one.times for one in self.counts().calls})
        if self._first is None:
            self._first = self._last
        else:
            self.steps += 1

    def counts(self) -> Counts:
        """Returns the calls so far."""
        first, calls = self._first or Counter(), []
        for one in self._counts.calls():
            kind = CallKind(*(getattr(one, name) for name in NAMES))
            in_steps = self._last[kind] - first[kind]
            calls.append(CountedCalls(kind, one.times, in_steps, partial(attrgetter("schedule"), one)))
        return Counts(calls, self._counts.others, self.steps)


def packed(of_nodes: Sequence[Counts]) -> str:
    """Returns the counted calls of a rank as text; `unpacked` reads it. A schedule is in it once."""
    schedules: dict[str, int] = {}
    kinds = []
    for one in (calls for counts in of_nodes for calls in counts.calls):
        schedule = one.schedule()  # a send has none
        text = str(schedule) if schedule and schedule.step_count <= MOST_TOLD_STEPS else None
        nth = None if text is None else schedules.setdefault(text, len(schedules))
        kinds.append([astuple(one.kind), one.times, one.in_steps, nth])
    others = sum(counts.others for counts in of_nodes)
    steps = max((counts.steps for counts in of_nodes), default=0)
    return json.dumps([kinds, [*schedules], others, steps])


def unpacked(text: str | bytes) -> Counts:
    """Returns the counts from the text of `packed`.

    Raises:
        ValueError: the text is not whole.
    """
    kinds, schedules, others, steps = json.loads(text)
    parsed = cache(lambda nth: None if nth is None else Schedule.parse(schedules[nth]))
    calls = []
    for kind, times, in_steps, nth in kinds:
        values = dict(zip(NAMES, kind, strict=True))
        of = CallKind(**values | {"ranks": tuple(values["ranks"])})
        calls.append(CountedCalls(of, times, in_steps, partial(parsed, nth)))
    return Counts(calls, others, steps)
