"""The baselines of a collective: for a reduction the loop of a numpy user, for a copy a memcpy.

The numpy loop runs one array operation after another on one thread, in place if the collective is. The memcpy is
numpy's copy of the same bytes by two threads, half by each. One thread copies few bytes, because waking the
other takes longer. numpy releases the GIL while it copies.

The second thread is started once and sleeps between calls. During a call each thread is pinned to its own processor,
because the system often places a woken thread beside the thread that woke it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from nvcoll._nvcoll import Error
from nvcoll.cli.operands import FOLDS, Array, Layout, Operands

Fold = Callable[[Array, Array, Array], Any]
"""Folds two arrays into a third, which may be one of them."""

Copy = tuple[Array, Array]
"""Destination, source."""


def all_reduce(x: Operands, fold: Fold, finish: Callable[[Array], Any]) -> None:
    """Each array is folded into the first, which is copied to each; in place."""
    total, *others = [y for y in x.outputs if y is not None]
    for other in others:
        fold(total, other, total)
    finish(total)
    for other in others:
        np.copyto(other, total)


def reduce(x: Operands, fold: Fold, finish: Callable[[Array], Any]) -> None:
    """Each array is folded into the root's; in place."""
    total = x.outputs[x.layout.root]
    assert total is not None
    for rank, other in enumerate(x.inputs):
        if rank != x.layout.root:
            assert other is not None
            fold(total, other, total)
    finish(total)


def reduce_scatter(x: Operands, fold: Fold, finish: Callable[[Array], Any]) -> None:
    """For each rank, its slices of all arrays are folded into its output."""
    for rank, total in enumerate(x.outputs):
        assert total is not None
        part = x.layout.shorter_in_longer(rank)
        first, *others = [y[part] for y in x.inputs if y is not None]
        if not others:
            np.copyto(total, first)
        else:
            fold(first, others[0], total)
        for other in others[1:]:
            fold(total, other, total)
        finish(total)


def scan(x: Operands, fold: Fold, finish: Callable[[Array], Any]) -> None:
    """Each array is folded into the next; in place."""
    arrays = [y for y in x.outputs if y is not None]
    for before, total in pairwise(arrays):
        fold(before, total, total)


def exscan(x: Operands, fold: Fold, finish: Callable[[Array], Any]) -> None:
    """As scan, and one array behind: two more arrays hold the fold so far and the next one; in place."""
    first, *others = [y for y in x.inputs if y is not None]
    so_far, following = x.temporary("so far", first), x.temporary("following", first)
    np.copyto(so_far, first)
    for total in others:
        fold(so_far, total, following)
        np.copyto(total, so_far)
        so_far, following = following, so_far


LOOPS = {loop.__name__: loop for loop in (all_reduce, reduce, reduce_scatter, scan, exscan)}
"""For each collective that folds, the loop of a numpy user."""


def loop(collective: str) -> Callable[[Operands, Fold, Callable[[Array], Any]], None]:
    """Returns the numpy loop of a collective that folds.

    Raises:
        Error: nobody has written it.
    """
    if collective not in LOOPS:
        raise Error(f"{collective} folds and has no loop of numpy to be compared with: write it in baselines.py")
    return LOOPS[collective]


def copies(x: Operands) -> list[Copy]:
    """Returns the copies that a collective without folds makes; what is already in its place is not copied.

    Slices that lie next to each other on both sides are one copy.
    """
    assert not FOLDS[x.layout.collective]
    sent = {chunk: (rank, part) for rank in range(x.layout.world_size) for chunk, part in _slices(x.layout, rank, 0)}
    made: list[tuple[int, slice, int, slice]] = []
    for rank in range(x.layout.world_size):
        for chunk, to in _slices(x.layout, rank, 1):
            sender, part = sent[chunk]
            if x.in_place and rank == sender:
                continue
            last = made[-1] if made else None
            if last and (last[0], last[1].stop, last[2], last[3].stop) == (rank, to.start, sender, part.start):
                made[-1] = rank, slice(last[1].start, to.stop), sender, slice(last[3].start, part.stop)
            else:
                made.append((rank, to, sender, part))
    return [(_bytes(x.outputs[rank], to), _bytes(x.inputs[sender], part)) for rank, to, sender, part in made]


def _bytes(x: Array | None, part: slice) -> Array:
    assert x is not None
    return x[part].view("u1")


def _slices(layout: Layout, rank: int, side: int) -> list[tuple[int, slice]]:
    return [(chunk, part) for chunk, part in layout.slices(rank, side).items() if part.stop > part.start]


def halves(every: Sequence[Copy]) -> tuple[list[Copy], list[Copy]]:
    """Shares out copies: one is cut where half of the bytes are through."""
    left = sum(to.size for to, _ in every) // 2
    first: list[Copy] = []
    second: list[Copy] = []
    for to, source in every:
        cut = min(left, to.size)
        left -= cut
        first += [(to[:cut], source[:cut])] if cut else []
        second += [(to[cut:], source[cut:])] if cut < to.size else []
    return first, second


def _run(every: Sequence[Copy]) -> None:
    for to, source in every:
        np.copyto(to, source)


ALONE_BYTES = 1 << 20
"""With fewer bytes a memcpy stays on the calling thread. Chosen: as the engine, for which it was measured."""


class Memcpy:
    """Copies by the calling thread and one more. ``close`` ends that."""

    def __init__(self, every: Sequence[Copy], threads: int | None = None) -> None:
        """``threads`` is 1 or 2, or what the bytes are enough for."""
        wanted = 2 if sum(to.size for to, _ in every) >= ALONE_BYTES else 1
        self._mine, self._other = halves(every) if (threads or wanted) == 2 else (list(every), [])
        self._wanted, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._is_open = True
        self._processors = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def __call__(self) -> None:
        """Makes all copies."""
        if not self._other:
            _run(self._mine)
            return
        self._wanted.release()
        self._confine(self._processors[:1])
        _run(self._mine)
        self._done.acquire()
        self._confine(self._processors)

    def _serve(self) -> None:
        self._confine(self._processors[1:2] or self._processors)
        while True:
            self._wanted.acquire()
            if not self._is_open:
                return
            _run(self._other)
            self._done.release()

    def _confine(self, processors: Sequence[int]) -> None:
        if len(self._processors) > 1:
            os.sched_setaffinity(0, processors)

    def close(self) -> None:
        """Ends the second thread."""
        self._is_open = False
        self._wanted.release()
        self._thread.join()
