"""Rounds in which everything is timed once, on the same arrays, in an order drawn at random.

The machine's speed changes by the minute, so only what was timed in the same round is compared: a ratio is the median
of the rounds' ratios. The order is drawn anew in every round, because who follows whom matters: whatever came right
after the roofline, whose threads sleep between runs and leave the other processor cold, was 5 % slower. (Measured.)

Before each call the arrays are rewritten; after it every element of every rank is compared, bit for bit, with the
oracle. One round before the first is not timed: it builds, proves and binds.

A time is a median with its quartiles (`Spread`): half of the rounds lie between them.

numpy is what a user of one thread writes: each rank added to rank 0's array in place, then copied to each.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import nvcoll
from nvcoll import Algorithm, InvalidArgument, oracle
from nvcoll._nvcoll import ops, roofline
from nvcoll.cli import sizes

Array = np.ndarray[Any, Any]

NUMPY: dict[str, Callable[..., Array]] = {
    "sum": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "avg": np.add,
    "premul_sum": np.add,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
    "land": np.logical_and,
    "lor": np.logical_or,
}
"""For each op, the numpy function of two arrays."""


def dtype_named(name: str) -> np.dtype[Any]:
    """Returns the numpy dtype of a registered name.

    Raises:
        InvalidArgument: numpy lacks it and ml_dtypes is not installed.
    """
    try:
        return np.dtype(name)
    except TypeError:
        pass
    try:
        import ml_dtypes
    except ImportError:
        raise InvalidArgument(f"{name} is a dtype that numpy lacks: pip install ml_dtypes") from None
    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return dtype


@dataclass
class Reduction:
    """What is folded: the dtype, the op, and its scalars, one per rank."""

    dtype: str
    op: str
    world_size: int

    def __post_init__(self) -> None:
        defined = dict(ops())[self.op]
        if self.dtype not in defined:
            has = ", ".join(op for op, dtypes in ops() if self.dtype in dtypes)
            what = f"{self.op} is not defined on {self.dtype}"
            raise InvalidArgument(f"{what}: it is defined on {', '.join(defined)}; {self.dtype} has {has}")
        self.numpy_dtype = dtype_named(self.dtype)

    @property
    def scalars(self) -> list[float]:
        """One number per rank that every dtype can hold."""
        return [float(rank % 3 + 1) for rank in range(self.world_size)]

    @property
    def argument(self) -> Any:
        """What a call takes as its op."""
        return nvcoll.premul_sum(self.scalars) if self.op == "premul_sum" else self.op

    def data(self, count: int, rank: int) -> Array:
        """Returns numbers that look random: any for integers and bools, of [0, 1) for floats and parts of complex."""
        rng = np.random.default_rng((count, rank))
        if self.numpy_dtype.kind in "iu":
            limits = np.iinfo(self.numpy_dtype)
            return rng.integers(limits.min, limits.max, count, self.numpy_dtype, endpoint=True)
        if self.numpy_dtype.kind == "b":
            return rng.integers(0, 2, count, "u1").view(bool)
        if self.numpy_dtype.kind == "c":
            return rng.random(2 * count, dtype="f4").astype(self.numpy_dtype.type(0).real.dtype).view(self.numpy_dtype)
        return rng.random(count, dtype="f4").astype(self.numpy_dtype)

    def by_numpy(self, arrays: Sequence[Array]) -> None:
        """The chain that a numpy user writes."""
        total = arrays[0]
        if self.op == "premul_sum":
            for x, scalar in zip(arrays, self.scalars, strict=True):
                np.multiply(x, self.numpy_dtype.type(scalar), out=x)
        for x in arrays[1:]:
            NUMPY[self.op](total, x, out=total)
        if self.op == "avg":
            np.divide(total, self.numpy_dtype.type(self.world_size), out=total)
        for x in arrays[1:]:
            np.copyto(x, total)


@dataclass(frozen=True)
class Spread:
    """A quarter of some values lies below ``low``, half below ``median``, a quarter above ``high``."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Returns the median and the quartiles, interpolated."""
        return cls(*map(float, np.percentile(values, (25, 50, 75))))

    @property
    def width(self) -> float:
        """How far the quartiles are apart, in medians."""
        return (self.high - self.low) / self.median


@dataclass
class Candidate:
    """Something that is timed."""

    call: Callable[[], float | None]
    """Makes the call; returns seconds if it has a clock of its own."""
    results: list[Array]
    expected: Array | None = None
    """What every result must be, to the bit; None if that is not looked at."""
    seconds: list[float] = field(default_factory=list)
    wrong: int = 0

    def run(self, is_counted: bool) -> None:
        """Makes the call and looks at what it did."""
        start = time.perf_counter()
        measured = self.call()
        elapsed = time.perf_counter() - start
        if is_counted:
            self.seconds.append(elapsed if measured is None else measured)
        if self.expected is not None:
            self.wrong += sum(count_unequal(result, self.expected) for result in self.results)


def count_unequal(a: Array, b: Array) -> int:
    """Returns the number of elements whose bits differ."""
    bits = f"u{min(a.dtype.itemsize, 8)}"
    return int(np.count_nonzero((a.view(bits) != b.view(bits)).reshape(a.size, -1).any(axis=1)))


class Case:
    """One size, and everything that is timed on its arrays."""

    def __init__(self, node: nvcoll.Node, reduction: Reduction, nbytes: int) -> None:
        self.node, self.reduction = node, reduction
        self.count = nbytes // reduction.numpy_dtype.itemsize
        self.nbytes = self.count * reduction.numpy_dtype.itemsize
        self.data = [reduction.data(self.count, rank) for rank in range(node.world_size)]
        self.arrays = [np.empty_like(x) for x in self.data]
        self.candidates: dict[str, Candidate] = {}
        self._order = random.Random(self.count)

    def add_algorithm(self, name: str, algorithm: str | Algorithm, out: list[Array] | None = None) -> None:
        """Adds an algorithm, in place or out of place."""
        n, op = self.node.world_size, self.reduction.argument
        schedule = schedule_of(algorithm, n, in_place=out is None)
        expected = oracle.all_reduce(schedule, self.data, self.reduction.op, self.reduction.scalars)[0]

        def call() -> None:
            self.node.all_reduce(self.arrays, op, algorithm=algorithm, out=out)

        self.candidates[name] = Candidate(call, self.arrays if out is None else out, expected)

    def add_baselines(self) -> None:
        """Adds numpy, and the roofline on float32 of as many bytes."""
        floats = [x.view("u1")[: self.nbytes // 4 * 4].view("f4") for x in self.arrays]
        self.candidates["numpy"] = Candidate(lambda: self.reduction.by_numpy(self.arrays), self.arrays)
        self.candidates["roofline"] = Candidate(lambda: roofline(floats, self.node.workers), self.arrays)

    def round(self, is_counted: bool = True) -> None:
        """Times everything once, in an order drawn at random."""
        candidates = list(self.candidates.values())
        self._order.shuffle(candidates)
        for candidate in candidates:
            for x, fresh in zip(self.arrays, self.data, strict=True):
                np.copyto(x, fresh)
            if candidate.results is not self.arrays:
                for x in candidate.results:
                    x.view("u1").fill(0)
            candidate.run(is_counted)

    def let_go(self) -> None:
        """Frees the arrays; what was measured stays."""
        self.data, self.arrays = [], []
        for candidate in self.candidates.values():
            candidate.call, candidate.results, candidate.expected = lambda: None, [], None

    def seconds(self, name: str) -> Spread:
        """Returns how long a call took."""
        return Spread.of(self.candidates[name].seconds)

    def ratio(self, above: str, below: str) -> Spread:
        """Returns the rounds' ratios of two times."""
        pairs = zip(self.candidates[above].seconds, self.candidates[below].seconds, strict=True)
        return Spread.of([a / b for a, b in pairs])

    @property
    def wrong(self) -> int:
        """The number of wrong elements, over all rounds, ranks and algorithms."""
        return sum(candidate.wrong for candidate in self.candidates.values())


def schedule_of(algorithm: str | Algorithm, world_size: int, in_place: bool = True) -> nvcoll.Schedule:
    """Returns the mapped schedule of an algorithm, by name or written by the user."""
    if isinstance(algorithm, Algorithm):
        return algorithm.schedule(world_size, in_place)
    return nvcoll.schedule("all_reduce", algorithm, world_size=world_size, in_place=in_place)


def check_memory(nbytes: int, world_size: int, algorithms: int) -> None:
    """Refuses sizes whose arrays do not fit: data, calls, out of place, and what the oracle holds.

    Raises:
        InvalidArgument: with what is needed and what is free.
    """
    needed = nbytes * (5 * world_size + algorithms)
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return
    if needed > free:
        raise InvalidArgument(
            f"{sizes.show(nbytes)} on each of {world_size} ranks take about {sizes.show(needed)} with all copies, "
            f"and {sizes.show(free)} are free: use fewer ranks or a smaller size"
        )
