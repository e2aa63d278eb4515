"""Predicted times of each record of a rank, for a second run in which clock and profiler of the script show them.

::

    records of the step    launch  launch  event  gemm  wait  ...      (nvcoll.dryrun.wire.rank_recording)
    operations             kernel x 2      -      gemm  wait  ...      (nvcoll.dryrun.parent.step)
    prediction             3 us to 9 us    -      9 to 40     ...      of each operation (StepPricer.timeline)
    times of records       3-6     6-9     9-9    9-40  ...

Launches that are one operation share its time. A record without an operation (an event for which no stream waits) takes
no time, at the end of the operation before it on its stream: so `torch.cuda.Event.elapsed_time` is right. Captured
work, which does not run in the step, has the time of the record before it.

A file of times is an array (2, n) of uint64, as numpy saves it: nanoseconds from the begin of the step at which each
record begins and ends.
"""

from __future__ import annotations

import io
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from nvcoll.dryrun.wire.rank_recording import RankRecording
from nvcoll.dryrun.wire.virtual_gpu import CAPTURED

Times = NDArray[np.uint64]


def times_of(
    recording: RankRecording, places: Sequence[int], timeline: Mapping[str, Sequence[int]], period_ns: int
) -> Times:
    """Returns when each record of a rank begins and ends.

    Args:
        recording: the recording of the rank.
        places: for each record that ran the position of its operation, or -1.
        timeline: ``start_ns`` and ``end_ns`` of the operations of the rank.
        period_ns: nanoseconds of a step. Streams begin a step with work that the step before has left.

    Returns:
        array (2, n), uint64: nanoseconds from the begin of the step.
    """
    shares, taken = Counter(places), Counter[int]()
    ends = _left(recording, places, timeline["end_ns"], period_ns)
    found = np.zeros((2, len(recording.records)), np.uint64)
    ran, last = iter(places), 0
    for nth, (kind, stream) in enumerate(
        zip(*(recording.records[name].tolist() for name in ("kind", "stream")), strict=True)
    ):
        place = -1 if kind & CAPTURED else next(ran)
        if place < 0:
            start = end = last if kind & CAPTURED else ends[stream]
        else:
            begin, until = timeline["start_ns"][place], timeline["end_ns"][place]
            each = (until - begin) / shares[place]
            start, end = begin + round(taken[place] * each), begin + round((taken[place] + 1) * each)
            taken[place] += 1
            ends[stream] = max(ends[stream], end)
        found[:, nth] = start, end
        last = end
    return found


def _left(
    recording: RankRecording, places: Sequence[int], end_ns: Sequence[int], period_ns: int
) -> defaultdict[int, int]:
    """Returns when each stream has finished the work of the step before, in ns from the begin of a step."""
    found: defaultdict[int, int] = defaultdict(int)
    ran = recording.records[(recording.records["kind"] & CAPTURED) == 0]
    for stream, place in zip(ran["stream"].tolist(), places, strict=True):
        if place >= 0:
            found[stream] = max(found[stream], end_ns[place] - period_ns)
    return found


def saved(times: Times) -> bytes:
    """Returns the file of times."""
    file = io.BytesIO()
    np.save(file, times)
    return file.getvalue()
