"""Rounds of ``nvcoll bench``: each round times every candidate once, on the same arrays, in random order.

The machine's speed changes by the minute, so only times of the same round are compared: a ratio is the median of the
rounds' ratios. Each round draws a new order, because a candidate influences the next one. Measured: a candidate right
after the roofline was 5 % slower, because the roofline's threads sleep between runs.

Before each call the arrays are rewritten. After it, every element of every rank is compared bit for bit with the
oracle. The first round is not timed: it builds, proves and binds.

A time is a median with its quartiles (`Spread`): half of the rounds lie between them. The baselines are in
``baselines.py``; the roofline is in the engine.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import nvcoll
from nvcoll import Algorithm, InvalidArgument, oracle
from nvcoll._nvcoll import ops, roofline
from nvcoll.cli import progress
from nvcoll.cli.bench import baselines
from nvcoll.cli.operands import FOLDS, Array, Layout, Operands, distinct, writes_its_arrays
from nvcoll.text.formatting import sized

NUMPY: dict[str, Callable[..., Array]] = {
    **oracle.FOLDS,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}
"""For each op, the numpy function of two arrays: the oracle's, where that is one."""


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
    """The dtype, the op (None if the collective only copies), and its scalars, one per rank."""

    dtype: str
    op: str | None
    world_size: int

    def __post_init__(self) -> None:
        defined = {row.name: row.dtypes for row in ops()}.get(self.op or "", [self.dtype])
        if self.dtype not in defined:
            has = ", ".join(row.name for row in ops() if self.dtype in row.dtypes)
            what = f"{self.op} is not defined on {self.dtype}"
            raise InvalidArgument(f"{what}: it is defined on {', '.join(defined)}; {self.dtype} has {has}")
        self.numpy_dtype = dtype_named(self.dtype)

    @property
    def scalars(self) -> list[float]:
        """One number per rank that every dtype can hold."""
        return [float(rank % 3 + 1) for rank in range(self.world_size)]

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

    def by_numpy(self, x: Operands) -> None:
        """Runs the loop of a numpy user. Contributions are scaled in place."""
        assert self.op is not None
        ufunc = NUMPY[self.op]
        if self.op == "premul_sum":
            for y, scalar in zip(x.inputs, self.scalars, strict=True):
                assert y is not None
                np.multiply(y, self.numpy_dtype.type(scalar), out=y)

        def fold(a: Array, b: Array, into: Array) -> None:
            ufunc(a, b, out=into)

        def finish(total: Array) -> None:
            if self.op == "avg":
                np.divide(total, self.numpy_dtype.type(self.world_size), out=total)

        baselines.loop(x.layout.collective)(x, fold, finish)


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
        """The distance between the quartiles, in medians."""
        return (self.high - self.low) / self.median


@dataclass
class Candidate:
    """A call that is timed."""

    call: Callable[[], float | None]
    """Makes the call; returns seconds if it has a clock of its own."""
    results: Sequence[Array]
    expected: Sequence[Array] | None = None
    """The bits that the results must have; None if they are not checked."""
    seconds: list[float] = field(default_factory=list)
    wrong: int = 0

    def run(self, is_counted: bool) -> None:
        """Makes the call and checks its results."""
        start = time.perf_counter()
        measured = self.call()
        elapsed = time.perf_counter() - start
        if is_counted:
            self.seconds.append(elapsed if measured is None else measured)
        if self.expected is not None:
            pairs = zip(self.results, self.expected, strict=True)
            self.wrong += sum(count_unequal(result, expected) for result, expected in pairs)

    def let_go(self) -> None:
        """Frees the arrays; the measurements stay."""
        self.call, self.results, self.expected = lambda: None, [], None


def count_unequal(a: Array, b: Array) -> int:
    """Returns the number of elements whose bits differ."""
    if a.size == 0:
        return 0
    bits = f"u{min(a.dtype.itemsize, 8)}"
    return int(np.count_nonzero((a.view(bits) != b.view(bits)).reshape(a.size, -1).any(axis=1)))


class Case:
    """One size of one collective, and the candidates that are timed on its arrays."""

    def __init__(
        self,
        node: nvcoll.Node,
        collective: str,
        reduction: Reduction,
        count: int,
        root: int = 0,
    ) -> None:
        self.node, self.collective, self.reduction, self.root = node, collective, reduction, root
        self.count = count
        """Elements of a rank's longer buffer, before they are cut into parts."""
        self.nbytes = count * reduction.numpy_dtype.itemsize
        self.layout = layout_of(collective, node.world_size, count, root)
        self.candidates: dict[str, Candidate] = {}
        self.baselines: list[str] = []
        self._operands: dict[str, Operands] = {}
        self.in_place = writes_its_arrays(collective)
        """Whether calls are in place unless they say otherwise."""
        self._forms: dict[bool, Operands] = {}
        self._known: list[Array] = []
        self._order = random.Random(count)

    @cached_property
    def data(self) -> list[Array | None]:
        """The input of each rank."""
        return [None if n is None else self.reduction.data(n, rank) for rank, n in enumerate(self.layout.inputs)]

    def operands(self, in_place: bool) -> Operands:
        """Returns the arrays of all calls of one form."""
        if in_place not in self._forms:
            self._forms[in_place] = Operands(self.layout, self.data, in_place)
        return self._forms[in_place]

    def add_algorithm(self, name: str, algorithm: str | Algorithm, in_place: bool | None = None) -> None:
        """Adds an algorithm, by name or written by the user; in place by default, if calls are."""
        operands = self.operands(self.in_place if in_place is None else in_place)
        method, options = getattr(self.node, self.collective), self.options(operands)
        arrays, out = operands.arguments()

        def call() -> None:
            method(arrays, algorithm=algorithm, out=out, **options)

        self._add(name, operands, call, self._expected(algorithm, operands))

    def options(self, operands: Operands) -> dict[str, Any]:
        """Returns the arguments of a call beside its arrays and its algorithm."""
        op: Any = self.reduction.op
        return operands.options(nvcoll.premul_sum(self.reduction.scalars) if op == "premul_sum" else op)

    def _add(
        self,
        name: str,
        operands: Operands,
        call: Callable[[], float | None],
        expected: Sequence[Array] | None = None,
    ) -> None:
        self.candidates[name] = Candidate(call, operands.results, expected)
        self._operands[name] = operands

    def _expected(self, algorithm: str | Algorithm, operands: Operands) -> list[Array]:
        """Returns the outputs of an algorithm by the oracle, on every rank that has an output."""
        n, reduction = self.node.world_size, self.reduction
        schedule = schedule_of(self.collective, algorithm, n, operands.in_place, self.root)
        results = oracle.run(schedule, self.data, self.count, reduction.op or "sum", reduction.scalars)
        return [distinct(x, self._known, count_unequal) for x in results if x is not None]

    def add_baselines(self) -> None:
        """Adds numpy's loop or a memcpy; for an all_reduce the roofline, on float32 of the same size."""
        operands = self.operands(self.in_place)
        if FOLDS[self.collective]:
            self._add("numpy", operands, lambda: self.reduction.by_numpy(operands))
            self.baselines.append("numpy")
        else:
            copies = baselines.copies(operands)
            self._add("memcpy", operands, lambda: baselines.memcpy(copies), self._expected("auto", operands))
            self.baselines.append("memcpy")
        if self.collective == "all_reduce":
            floats = [x.view("u1")[: self.nbytes // 4 * 4].view("f4") for x in operands.results]
            self._add("roofline", operands, lambda: roofline(floats, self.node.workers))
            self.baselines.append("roofline")

    def round(self, is_counted: bool = True) -> None:
        """Times every candidate once, in random order."""
        names = list(self.candidates)
        self._order.shuffle(names)
        for name in names:
            self._operands[name].rewrite()
            self.candidates[name].run(is_counted)

    def let_go(self) -> None:
        """Frees the arrays; the measurements stay."""
        self.__dict__.pop("data", None)
        self._forms, self._operands, self._known = {}, {}, []
        for candidate in self.candidates.values():
            candidate.let_go()

    def seconds(self, name: str) -> Spread:
        """Returns the time of a call."""
        return Spread.of(self.candidates[name].seconds)

    def ratio(self, above: str, below: str) -> Spread:
        """Returns the rounds' ratios of two times."""
        pairs = zip(self.candidates[above].seconds, self.candidates[below].seconds, strict=True)
        return Spread.of([a / b for a, b in pairs])

    @property
    def wrong(self) -> int:
        """The number of wrong elements, over all rounds, ranks and algorithms."""
        return sum(candidate.wrong for candidate in self.candidates.values())


def timed(cases: Callable[[int], Case], counts: Sequence[int], rounds: int) -> list[Case]:
    """Times every count."""
    done = []
    with progress.line() as tell:
        for count in counts:
            case = cases(count)
            for number in range(rounds + 1):
                tell(f"timing {sized(case.nbytes)}, round {number} of {rounds}")
                case.round(is_counted=number > 0)
            case.let_go()
            done.append(case)
    return done


def schedule_of(
    collective: str, algorithm: str | Algorithm, world_size: int, in_place: bool, root: int = 0
) -> nvcoll.Schedule:
    """Returns the mapped schedule of an algorithm, by name or written by the user."""
    if isinstance(algorithm, Algorithm):
        return algorithm.schedule(world_size, in_place, root)
    return nvcoll.schedule(collective, algorithm, world_size=world_size, root=root, in_place=in_place)


def layout_of(collective: str, world_size: int, count: int, root: int) -> Layout:
    """Returns the parts of ``count`` elements on the ranks."""
    return Layout(schedule_of(collective, "auto", world_size, False, root), count)


def check_memory(layout: Layout, forms: Sequence[bool], algorithms: int, itemsize: int) -> None:
    """Refuses sizes whose arrays do not fit: data, arguments of calls in each form, and the oracle's arrays.

    Raises:
        InvalidArgument: with the needed and the free bytes.
    """
    world_size, needed = layout.world_size, layout.elements(forms, algorithms) * itemsize
    nbytes = max(count or 0 for count in (*layout.inputs, *layout.outputs)) * itemsize
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return
    if needed > free:
        raise InvalidArgument(
            f"{sized(nbytes)} on each of {world_size} ranks take about {sized(needed)} with all copies, "
            f"and {sized(free)} are free: use fewer ranks or a smaller size"
        )
