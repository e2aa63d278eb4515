"""The oracle: what a schedule gives, to the bit, by running its steps one after the other in numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nvcoll._nvcoll import Schedule, dtypes

Array = np.ndarray[Any, Any]

ACCUMULATORS = {name: accumulator for name, _, _, accumulator in dtypes()}


def minimum(a: Array, b: Array) -> Array:
    """IEEE 754-2019 minimum: NaN propagates, -0 < +0."""
    zeros = (a == 0) & (b == 0)
    return np.where(zeros & np.signbit(a), a, np.where(zeros, b, np.minimum(a, b)))


def maximum(a: Array, b: Array) -> Array:
    """IEEE 754-2019 maximum."""
    zeros = (a == 0) & (b == 0)
    return np.where(zeros & np.signbit(a), b, np.where(zeros, a, np.maximum(a, b)))


FOLDS: dict[str, Callable[[Array, Array], Array]] = {
    "sum": np.add,
    "avg": np.add,
    "premul_sum": np.add,
    "min": minimum,
    "max": maximum,
}


def all_reduce(schedule: Schedule, inputs: Sequence[Array], op: str, scalars: Sequence[float] = ()) -> list[Array]:
    """Returns what every rank's output holds after ``schedule``.

    Args:
        schedule: any schedule of an all_reduce, on any path.
        inputs: one vector per rank, of one dtype and count; not changed.
        op: the name of the op.
        scalars: one per rank, for premul_sum.
    """
    n, dtype = schedule.world_size, inputs[0].dtype
    accumulator = np.dtype(ACCUMULATORS[dtype.name])
    ranges = schedule.chunk_ranges(inputs[0].size)
    memory = {(r, "input", c): x[lo:hi].copy() for r, x in enumerate(inputs) for c, (lo, hi) in enumerate(ranges)}

    def home(rank: int, buffer: str, chunk: int) -> tuple[int, str, int]:
        return rank, "input" if schedule.in_place and buffer == "output" else buffer, chunk

    for step in schedule.steps:
        _, _, first, end = step.destinations[0]
        for chunk in range(first, end):
            values = []
            for rank, buffer, _, _, contribution in step.sources:
                value = memory[home(rank, buffer, chunk)].astype(accumulator)
                if op == "premul_sum" and contribution is not None:
                    value = value * accumulator.type(scalars[contribution])
                values.append(value)
            total = values[0]
            for value in values[1:]:
                total = FOLDS[op](total, value)
            if op == "avg" and step.is_final:
                total = total / accumulator.type(n)
            for rank, buffer, _, _ in step.destinations:
                memory[home(rank, buffer, chunk)] = total.astype(dtype)
    return [np.concatenate([memory[home(r, "output", c)] for c in range(schedule.chunks)]) for r in range(n)]


def same_bits(a: Array, b: Array) -> bool:
    """Says whether two arrays are equal bit for bit, except that a NaN need only be a NaN."""
    width = f"u{a.dtype.itemsize}"
    equal = a.view(width) == b.view(width)
    return bool(np.all(equal if a.dtype.kind == "i" else equal | (np.isnan(a) & np.isnan(b))))
