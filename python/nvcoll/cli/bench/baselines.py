"""The baselines of a collective: for a reduction the loop of a numpy user, for a copy a memcpy.

The numpy loop runs one array operation after another on one thread, in place if the collective is. The memcpy is
numpy's copy of the same bytes, on one thread too.
"""

from __future__ import annotations

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


def fold_all(x: Operands, fold: Fold, finish: Callable[[Array], Any]) -> None:
    """Each array is folded into the root's, which an all_reduce copies to each; in place."""
    root = x.layout.root
    total = x.outputs[root]
    assert total is not None
    for rank, other in enumerate(x.inputs):
        if rank != root:
            assert other is not None
            fold(total, other, total)
    finish(total)
    for rank, copied in enumerate(x.outputs):
        if rank != root and copied is not None:
            np.copyto(copied, total)


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


LOOPS = {
    "all_reduce": fold_all,
    "reduce": fold_all,
    "reduce_scatter": reduce_scatter,
    "scan": scan,
    "exscan": exscan,
}
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


def memcpy(every: Sequence[Copy]) -> None:
    """Makes all copies."""
    for to, source in every:
        np.copyto(to, source)
