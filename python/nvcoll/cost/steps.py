"""Training steps: the calls of a rank that belong to one.

A program marks the end of each training step by ``nvcoll.step()``; optimizers of torch do it themselves. The calls
between the first mark and the last belong to training steps. The calls of the set-up, for example the broadcast of the
parameters, and the calls of the first step are not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from nvcoll._nvcoll import CallCounts, Calls
from nvcoll.cost.counts import NAMES, Kind, kind_of

MOST_TOLD_STEPS = 1 << 16
"""The most steps of a schedule that is told, for prices of calls that NCCL does not have. Chosen: some megabytes."""


class MarkedCounts:
    """The counts of a rank's calls, and the marks of its steps.

    Attributes:
        counts: the counts.
        steps: the number of whole steps: one less than the marks.
    """

    def __init__(self, counts: CallCounts) -> None:
        self.counts = counts
        self.steps = 0
        self._first: Counter[Kind] | None = None
        self._last: Counter[Kind] = Counter()

    def mark(self) -> None:
        """Marks the end of a step."""
        now = Counter({kind_of(one): one.times for one in self.counts.calls()})
        if self._first is None:
            self._first = now
        else:
            self.steps += 1
        self._last = now

    def calls(self) -> Iterator[tuple[Calls, int]]:
        """Yields the kinds of calls in the order of their first call, each with the number of its calls in steps."""
        first = self._first or Counter()
        for one in self.counts.calls():
            kind = kind_of(one)
            yield one, self._last[kind] - first[kind]


def said_of(marked: Sequence[MarkedCounts]) -> dict[str, Any]:
    """Returns what a rank says about the calls that it has counted, of which `heard` makes them again."""
    schedules: dict[str, int] = {}
    told = []
    for calls, in_steps in (one for counts in marked for one in counts.calls()):
        values = {name: getattr(calls, name) for name in NAMES}
        schedule = calls.schedule  # a send has none
        text = str(schedule) if schedule and schedule.step_count <= MOST_TOLD_STEPS else None
        told.append(values | {"in_steps": in_steps, "schedule": text and schedules.setdefault(text, len(schedules))})
    others = sum(one.counts.others for one in marked)
    steps = max((one.steps for one in marked), default=0)
    return {"calls": told, "others": others, "steps": steps, "schedules": list(schedules)}
