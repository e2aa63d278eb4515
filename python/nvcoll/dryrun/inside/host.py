"""The pass after the counted step: further steps run without observers, and each record has a stamp.

::

    counted step     LAUNCH  GEMM  EVENT  LAUNCH      kind, name and stream of its work
    further steps    LAUNCH  GEMM  LAUNCH             the same work in the same order: these count
    gap of a record  the least time from the work before it, times `QUIET`

The output of these steps is hidden, and the pass ends before the script writes a file or starts a program. If too few
steps do the same work, nothing is known: control flow by integers, which are computed only in front of the observers.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from nvcoll.dryrun.inside import events
from nvcoll.dryrun.inside.gpu import Gpu
from nvcoll.dryrun.wire.rank_recording import Op
from nvcoll.dryrun.wire.virtual_gpu import Kind, Records

WORK = (Kind.LAUNCH, Kind.GEMM, Kind.COPY, Kind.FILL, Kind.COLLECTIVE, Kind.GRAPH_LAUNCH)
"""Kinds of records that are compared."""

LEAST, MOST, LIMIT_S = 8, 50, 5.0
"""The fewest steps that must agree, the most that run, and the most seconds. Measured: the sum of gaps of four steps
differs by a factor of two from run to run, of 50 steps by a fifth."""

QUIET = 1.18
"""The median of a quiet machine over the least time of each gap. Measured on eager steps: 1.15 to 1.25."""

FASTEST_FLOPS, FASTEST_BYTES, SLOWEST_S = 2.5e15, 8e12, 60e-6
"""FLOP/s and bytes/s that no GPU exceeds, and seconds that few launches exceed. Chosen: FSDP2 takes 63 us."""

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def may_limit(ops: Sequence[Op], records: Records) -> bool:
    """Says whether a processor may take longer for a step than a fast GPU."""
    gpu_s = sum(op.flops for op in ops) / FASTEST_FLOPS + sum(op.bytes for op in ops) / FASTEST_BYTES
    return bool(gpu_s < SLOWEST_S * np.isin(records["kind"], WORK).sum())


def gaps_of(counted: Records, records: Records, stamps: NDArray[np.uint64], ends: Sequence[int]) -> list[float]:
    """Returns seconds of the processor before each record of the counted step; empty: too few steps are like it.

    Args:
        counted: the counted step.
        records: what was written in the pass, names numbered as in `counted`.
        stamps: array (n,) uint64: nanoseconds at which each was written.
        ends: the number of records after each step of the pass. The first step only gives the work before the second.
    """
    fields = ["kind", "name", "stream"]
    is_work, work = np.isin(counted["kind"], WORK), np.flatnonzero(np.isin(records["kind"], WORK))
    alike = []
    for first, end in pairwise(np.searchsorted(work, ends)):
        mine = work[first:end]
        if first and np.array_equal(records[fields][mine], counted[fields][is_work]):
            alike.append(np.diff(stamps[work[first - 1 : end]].astype(np.int64)))
    found = np.zeros(len(counted))
    if len(alike) >= LEAST:
        found[is_work] = QUIET * 1e-9 * np.min(alike, axis=0)
    return found.tolist() if len(alike) >= LEAST else []


class HostPass:
    """Steps without observers.

    Args:
        gpu: the virtual GPU.
        counted: positions in the log between which the counted step lies.
        ended: is called once, at the end, perhaps by another thread.
    """

    def __init__(self, gpu: Gpu, counted: tuple[int, int], ended: Callable[[], object]) -> None:
        self._gpu, self._counted, self._ended = gpu, counted, ended
        self._ends: list[int] = []
        self._process = os.getpid()

    def begin(self) -> None:
        """Hides the output, and begins."""
        sys.stdout.flush()
        sys.stderr.flush()
        for number in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
        self._first, self._began = self._gpu.count(), time.monotonic()
        for event in ("os.rename", "os.mkdir", "os.remove", "os.truncate", "shutil.rmtree", "subprocess.Popen"):
            events.on(event, lambda *_: self._end())
        events.on("open", lambda _file, _mode, flags: self._end() if (flags or 0) & WRITES else None)
        timer = threading.Timer(2 * LIMIT_S, self._end)
        timer.daemon = True
        timer.start()

    def step_ended(self, _number: int) -> None:
        """Counts a step."""
        self._ends.append(self._gpu.count())
        if len(self._ends) > MOST or time.monotonic() > self._began + LIMIT_S:
            self._end()

    def _end(self) -> None:
        if os.getpid() == self._process:
            with events.silence():
                self._ended()

    def measured(self) -> tuple[list[float], str]:
        """Returns `gaps_of` the pass, or why there are none."""
        ends = np.array(self._ends, np.int64) - self._first
        records = self._gpu.records(self._first)
        stamps = self._gpu.stamps()[self._first : self._first + len(records)]
        gaps = gaps_of(self._gpu.records(*self._counted), records, stamps, [*ends])
        why = "later steps do other work" if len(ends) > LEAST else f"{LEAST + 1} more steps are needed"
        return gaps, "" if gaps else why
