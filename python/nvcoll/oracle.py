"""The oracle: the exact results of a schedule, by running its steps one after another in numpy."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nvcoll._nvcoll import Schedule, dtypes

Array = np.ndarray[Any, Any]

ACCUMULATORS = {row.name: row.accumulator for row in dtypes()}


def minimum(a: Array, b: Array) -> Array:
    """IEEE 754-2019 minimum: NaN propagates, -0 < +0."""
    zeros = (a == 0) & (b == 0)
    return np.where(zeros & np.signbit(a), a, np.where(zeros, b, np.minimum(a, b)))


def maximum(a: Array, b: Array) -> Array:
    """IEEE 754-2019 maximum."""
    zeros = (a == 0) & (b == 0)
    return np.where(zeros & np.signbit(a), b, np.where(zeros, a, np.maximum(a, b)))


def multiply(a: Array, b: Array) -> Array:
    """The product; of complex numbers by the plain formula, where numpy's own may fuse."""
    if a.dtype.kind != "c":
        return np.multiply(a, b)
    product = np.empty_like(a)
    product.real = a.real * b.real - a.imag * b.imag
    product.imag = a.real * b.imag + a.imag * b.real
    return product


def divide(a: Array, n: int) -> Array:
    """One true division, of both parts if the numbers are complex."""
    parts = a.view(a.real.dtype)
    quotient: Array = (parts / parts.dtype.type(n)).view(a.dtype)
    return quotient


FOLDS: dict[str, Callable[[Array, Array], Array]] = {
    "sum": np.add,
    "prod": multiply,
    "min": minimum,
    "max": maximum,
    "avg": np.add,
    "premul_sum": np.add,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
    "land": np.logical_and,
    "lor": np.logical_or,
}
"""For each op, the fold of two arrays of the accumulation type; numpy adds bools by or and multiplies them by and."""


def widen(stored: Array) -> Array:
    """Returns the elements in the type in which a step accumulates; a byte of bool is true unless it is zero."""
    return stored.view("u1") != 0 if stored.dtype == bool else stored.astype(ACCUMULATORS[stored.dtype.name])


def run(
    schedule: Schedule,
    inputs: Sequence[Array | None],
    counts: int | Sequence[int],
    op: str = "sum",
    scalars: Sequence[float] = (),
) -> list[Array | None]:
    """Returns the output of every rank after ``schedule``; None for a rank without output.

    Args:
        schedule: any schedule, of any collective, on any path.
        inputs: one vector per rank, of one dtype; not changed. None where a rank has no input.
        counts: elements of every part, or a number that is cut into parts as a call does.
        op: the name of the op, if the collective folds.
        scalars: one per rank, for premul_sum.
    """
    counted = [end - start for start, end in schedule.chunk_ranges(counts)]
    memory: dict[tuple[int, str, int], Array] = {}

    def home(rank: int, buffer: str, chunk: int) -> tuple[int, str, int]:
        return rank, "input" if schedule.in_place and buffer == "output" else buffer, chunk

    for rank, x in enumerate(inputs):
        at = 0
        for chunk in schedule.chunks_of(rank)[0]:
            assert x is not None, f"rank {rank} has an input"
            memory[rank, "input", chunk] = x[at : at + counted[chunk]].copy()
            at += counted[chunk]

    for step in schedule.steps:
        contributions = [contribution for *_, contribution in step.sources]
        _, _, begin, end = step.destinations[0]
        for nth in range(end - begin):
            stored = [memory[home(rank, buffer, first + nth)] for rank, buffer, first, *_ in step.sources]
            result = stored[0]
            if len(stored) > 1 or (op == "premul_sum" and contributions[0] is not None):
                values = [widen(x) for x in stored]
                if op == "premul_sum":
                    values = [
                        v if c is None else v * v.dtype.type(scalars[c])
                        for v, c in zip(values, contributions, strict=True)
                    ]
                total = functools.reduce(lambda a, b: FOLDS[op](a, b).astype(a.dtype), values)
                if op == "avg" and step.is_final:
                    total = divide(total, schedule.world_size)
                result = total.astype(result.dtype)
            for rank, buffer, first, _ in step.destinations:
                memory[home(rank, buffer, first + nth)] = result

    def output(rank: int) -> Array | None:
        chunks = schedule.chunks_of(rank)[1]
        return np.concatenate([memory[home(rank, "output", chunk)] for chunk in chunks]) if chunks else None

    return [output(rank) for rank in range(schedule.world_size)]


def all_reduce(schedule: Schedule, inputs: Sequence[Array], op: str, scalars: Sequence[float] = ()) -> list[Array]:
    """Returns the output of every rank after a schedule of an all_reduce; see :func:`run`."""
    return [output for output in run(schedule, inputs, inputs[0].size, op, scalars) if output is not None]


def same_bits(a: Array, b: Array) -> bool:
    """Says whether two arrays are equal bit for bit, except that a NaN need only be a NaN."""
    if a.dtype.kind == "c":
        a, b = a.view(a.real.dtype), b.view(b.real.dtype)
    width = f"u{a.dtype.itemsize}"
    equal = a.view(width) == b.view(width)
    if a.dtype.kind in "iub":
        return bool(np.all(equal))
    with np.errstate(invalid="ignore"):
        return bool(np.all(equal | (np.isnan(a) & np.isnan(b))))
