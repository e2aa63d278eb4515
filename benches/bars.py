"""Do the bars hold? Everything that docs/maintainers/performance.md claims of a call, measured in one run.

    python benches/bars.py                      all, in about ten minutes
    python benches/bars.py roofline dtype       some

A row is one ratio. Its two sides are timed in the same rounds, in an order drawn at random in each, on data rewritten
before every call and compared with the expected result after it. Printed are the median of the rounds' ratios and the
bound that it keeps in 95 % of bootstrap resamples, away from the bar; a bar holds if that bound is within 5 % of it.
Calls are planned (`plan.run()`) unless a row says otherwise. `collectives` compares in the first and last calls only.
A size is that of a rank's longer buffer. `auto` has a program of its own, benches/auto.py.
"""

from __future__ import annotations

import os
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import nvcoll
from nvcoll import oracle
from nvcoll._nvcoll import algorithms as registry
from nvcoll._nvcoll import bus_factor, dtypes, roofline
from nvcoll.cli.bench import baselines
from nvcoll.cli.bench.timing import Reduction, count_unequal, dtype_named, layout_of
from nvcoll.cli.operands import FOLDS, Operands, distinct, writes_its_arrays

Array = np.ndarray[Any, Any]

TOLERANCE = 0.05
RESAMPLES = 2000
KIB, MIB = 1 << 10, 1 << 20


@dataclass
class Side:
    """What is timed, on arrays of its own or of several sides."""

    call: Callable[[], float | None]
    """Returns seconds if it has a clock of its own."""
    arrays: Sequence[Array]
    fresh: Sequence[Array]
    expected: Array | None = None
    times: list[float] = field(default_factory=list)

    def run(self) -> None:
        for x, value in zip(self.arrays, self.fresh, strict=True):
            np.copyto(x, value)
        start = time.perf_counter()
        own = self.call()
        self.times.append(time.perf_counter() - start if own is None else own)
        if self.expected is not None:
            assert all((x == self.expected).all() for x in self.arrays), "a wrong result"


def interleave(sides: dict[str, Side], rounds: int) -> dict[str, Array]:
    """Returns the times of every side, after three rounds that do not count."""
    for turn in range(rounds + 3):
        for name in random.sample(list(sides), len(sides)):
            sides[name].run()
        if turn < 3:
            for side in sides.values():
                side.times.clear()
    return {name: np.array(side.times) for name, side in sides.items()}


@dataclass
class Row:
    """A ratio that should be at least, or at most, its bar."""

    what: str
    ranks: int
    size: str
    ratios: Array
    at_least: float | None = None
    at_most: float | None = None
    unit: str = "x"

    def cells(self) -> list[str]:
        medians = [statistics.median(random.choices(self.ratios, k=len(self.ratios))) for _ in range(RESAMPLES)]
        if self.at_least is not None:
            bar, bound = f">= {self.at_least}", float(np.quantile(medians, 0.05))
            holds = bound >= self.at_least * (1 - TOLERANCE)
        else:
            assert self.at_most is not None
            bar, bound = f"<= {self.at_most}", float(np.quantile(medians, 0.95))
            holds = bound <= self.at_most * (1 + TOLERANCE)
        numbers = [f"{number:.2f} {self.unit}" for number in (float(np.median(self.ratios)), bound)]
        return [self.what, str(self.ranks), self.size, *numbers, bar, "holds" if holds else "MISSED"]


def rounds_of(nbytes: int) -> int:
    """Fewer rounds for large arrays. Chosen."""
    return 200 if nbytes <= 8 * MIB else 60 if nbytes <= 128 * MIB else 20


def show(nbytes: int) -> str:
    return f"{nbytes // MIB} MiB" if nbytes >= MIB else f"{nbytes // KIB} KiB"


class Stack:
    """A node, and one array whose rows are its ranks' arrays, and random numbers to fill it with."""

    def __init__(self, ranks: int, nbytes: int, dtype: Any = np.float32) -> None:
        rng = np.random.default_rng(ranks)
        count = nbytes // np.dtype(dtype).itemsize
        self.node = nvcoll.Node(ranks)
        self.fresh = rng.random((ranks, count), dtype=np.float32).astype(dtype)
        self.stack = np.empty_like(self.fresh)
        self.arrays = list(self.stack)
        self.temporary = np.empty_like(self.arrays[0])

    def side(self, call: Callable[[], float | None], expected: Array | None = None) -> Side:
        return Side(call, self.arrays, self.fresh, expected)

    def algorithm(self, name: str, is_planned: bool = True) -> Side:
        schedule = nvcoll.schedule("all_reduce", name, world_size=self.node.world_size)
        expected = oracle.all_reduce(schedule, list(self.fresh), "sum")[0]
        if is_planned:
            return self.side(self.node.plan("all_reduce", self.arrays, algorithm=name).run, expected)
        return self.side(lambda: self.node.all_reduce(self.arrays, algorithm=name) and None, expected)

    def roofline(self) -> Side:
        return self.side(lambda: roofline(self.arrays, self.node.workers))

    def reduce(self) -> None:
        """What `numpy` has for a stack."""
        np.add.reduce(self.stack, axis=0, out=self.temporary)
        self.stack[:] = self.temporary

    def chain(self, block: int | None = None) -> None:
        """One array after the other is added to the first, in blocks of so many elements."""
        count = self.arrays[0].size
        for start in range(0, count, block or count):
            first, *others = (x[start : start + (block or count)] for x in self.arrays)
            for x in others:
                np.add(first, x, out=first)
            for x in others:
                np.copyto(x, first)


def against_roofline() -> Iterator[Row]:
    for ranks in (2, 8):
        for nbytes in (MIB, 16 * MIB, 64 * MIB):
            stack = Stack(ranks, nbytes)
            sides = {"nvswitch": stack.algorithm("nvswitch"), "roofline": stack.roofline()}
            times = interleave(sides, rounds_of(ranks * nbytes))
            bar = 0.95 if ranks == 2 else 0.9
            ratios = times["roofline"] / times["nvswitch"]
            yield Row("nvswitch, of the roofline's speed", ranks, show(nbytes), ratios, at_least=bar)


def against_numpy() -> Iterator[Row]:
    for ranks in (2, 8):
        for nbytes in (64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB):
            stack = Stack(ranks, nbytes)
            sides = {
                "nvswitch": stack.algorithm("nvswitch"),
                "unplanned": stack.algorithm("nvswitch", is_planned=False),
                "reduce": stack.side(stack.reduce),
                "whole": stack.side(stack.chain),
                "8K": stack.side(lambda stack=stack: stack.chain(8192)),
                "32K": stack.side(lambda stack=stack: stack.chain(32768)),
            }
            times = interleave(sides, rounds_of(ranks * nbytes))
            ours = {name: times.pop(name) for name in ("nvswitch", "unplanned")}
            reduce = times.pop("reduce")
            best = min(times, key=lambda name: float(np.median(times[name])))
            bar = 2 if nbytes >= 16 * MIB else 1.3
            for name, seconds in ours.items():
                yield Row(f"np.add.reduce / {name}", ranks, show(nbytes), reduce / seconds, at_least=3)
                yield Row(f"np.add chain ({best}) / {name}", ranks, show(nbytes), times[best] / seconds, at_least=bar)


def against_bytes() -> Iterator[Row]:
    """The roofline reads every buffer once and writes it once: 2 N. An algorithm that moves more may take longer."""
    nbytes = 64 * MIB
    for ranks in (2, 8):
        stack = Stack(ranks, nbytes)
        sides = {name: stack.algorithm(name) for name in ("ring", "tree")} | {"roofline": stack.roofline()}
        times = interleave(sides, rounds_of(ranks * nbytes))
        for name in ("ring", "tree"):
            moved, _ = nvcoll.schedule("all_reduce", name, world_size=ranks).cost()
            ratios = times[name] / (times["roofline"] * moved / 2)
            yield Row(f"{name} / what its {moved:.2f} N imply", ranks, show(nbytes), ratios, at_most=1.05)


def many_ranks() -> Iterator[Row]:
    """64 ranks x 64 KiB and 2 ranks x 2 KiB both have chunks of 1 KiB: time / executed steps is compared."""
    for path in ("mapped", "staged"):
        sides, steps = {}, {}
        for ranks, nbytes in ((64, 64 * KIB), (2, 2 * KIB)):
            stack = Stack(ranks, nbytes)
            steps[ranks] = len(nvcoll.schedule("all_reduce", "ring", world_size=ranks, path=path).steps)
            plan = stack.node.plan("all_reduce", stack.arrays, algorithm="ring", path=path)
            sides[str(ranks)] = stack.side(plan.run)
        times = interleave(sides, 100)
        ratios = (times["64"] / steps[64]) / (times["2"] / steps[2])
        yield Row(f"ring {path}, time per step / that of 2 ranks", 64, "64 KiB", ratios, at_most=2)


def against_float32() -> Iterator[Row]:
    for nbytes in (MIB, 16 * MIB):
        for ranks in (2, 8):
            stacks = {name: Stack(ranks, nbytes, dtype_named(name)) for name in ("float32", *SPEEDS)}
            times = interleave({name: stack.algorithm("nvswitch") for name, stack in stacks.items()}, 60)
            for name, speed in SPEEDS.items():
                ratios = times["float32"] / times[name]
                yield Row(f"{name}, of float32's speed", ranks, show(nbytes), ratios, at_least=speed)


SPEED_BY_BYTES = {2: 0.7, 1: 0.35}
SPEEDS = {row.name: SPEED_BY_BYTES[row.nbytes] for row in dtypes() if row.accumulator == "float32" != row.name}
SPEEDS["bfloat16"] = 0.8
"""How much of float32's bytes per second a call of each dtype must reach."""


def of_a_call() -> Iterator[Row]:
    """Microseconds, not ratios; the mean of 1,000 calls is one round."""
    stack = Stack(8, 256)
    plan = stack.node.plan("all_reduce", stack.arrays)
    calls = {"planned": plan.run, "unplanned, a list of arrays": lambda: stack.node.all_reduce(stack.arrays) and None}

    def mean(call: Callable[[], None]) -> float:
        start = time.perf_counter()
        for _ in range(1000):
            call()
        return (time.perf_counter() - start) / 1000

    times = interleave({name: stack.side(lambda call=call: mean(call)) for name, call in calls.items()}, 50)
    for (name, seconds), bar in zip(times.items(), (1.5, 4), strict=True):
        yield Row(f"call, {name}", 8, "256 B", seconds * 1e6, at_most=bar, unit="us")


def of_a_group() -> Iterator[Row]:
    """64 all_reduces of 256 floats, launched as one, against one of 16,384: `group.run()` and `plan.run()`."""
    for ranks in (2, 8):
        one = Stack(ranks, 64 * KIB)
        fresh = [row for part in np.split(one.fresh, 64, axis=1) for row in part]
        gradients = [row.copy() for row in fresh]
        with one.node.group() as group:
            for nth in range(0, len(gradients), ranks):
                one.node.all_reduce(gradients[nth : nth + ranks])
        sides = {"64": Side(group.run, gradients, fresh), "1": one.algorithm("auto")}
        times = interleave(sides, 200)
        sides["64"].run()
        sums = [total for total in np.split(sides["1"].expected, 64) for _ in range(ranks)]
        assert all(map(np.array_equal, gradients, sums)), "a wrong result"
        yield Row("64 x 256 floats in a group / 16,384 at once", ranks, "64 KiB", times["64"] / times["1"], at_most=1.5)
    for ranks in (2, 8):
        yield of_the_groups_of_ranks(ranks)


def of_the_groups_of_ranks(ranks: int, rounds: int = 100, repeats: int = 20) -> Row:
    """The same where each rank is a thread that calls for itself, by `group.run()` of 64 calls and of one.

    A round is the mean of some calls in a row, as the slowest rank sees it; the first three do not count.
    """
    fresh = np.random.default_rng(ranks).random((ranks, 64 * KIB // 4), dtype=np.float32)
    expected = oracle.all_reduce(nvcoll.schedule("all_reduce", "nvswitch", world_size=ranks), list(fresh), "sum")[0]

    def program(comm: nvcoll.Communicator) -> dict[int, list[float]]:
        launches: dict[int, Callable[[], None]] = {}
        arrays = {parts: [x.copy() for x in np.split(fresh[comm.rank], parts)] for parts in (64, 1)}
        for parts, of_group in arrays.items():
            with comm.group() as group:
                for x in of_group:
                    comm.all_reduce(x)
            launches[parts] = group.run
            assert (np.concatenate(of_group) == expected).all(), "a wrong result"
        order = random.Random(ranks)
        times: dict[int, list[float]] = {64: [], 1: []}
        for turn in range(rounds + 3):
            for parts in order.sample([64, 1], 2):
                for x in arrays[parts]:
                    x[:] = 0
                comm.barrier()
                start = time.perf_counter()
                for _ in range(repeats):
                    launches[parts]()
                if turn >= 3:
                    times[parts].append((time.perf_counter() - start) / repeats)
        return times

    of_ranks = nvcoll.Node(ranks).run(program)
    many, one = (np.max([times[parts] for times in of_ranks], axis=0) for parts in (64, 1))
    return Row("the same by ranks that call for themselves", ranks, "64 KiB", many / one, at_most=1.5)


COLLECTIVES = list(dict.fromkeys(row.collective for row in registry() if bus_factor(row.collective, 2) > 0))


class Ranks:
    """A node, and what its ranks bring to one collective: `nbytes` are those of a rank's longer buffer.

    Out of place where a call without `out` makes new arrays: all_gather, reduce_scatter, gather, scatter, all_to_all.
    """

    def __init__(self, collective: str, ranks: int, nbytes: int) -> None:
        self.node, self.collective, self.count = nvcoll.Node(ranks), collective, nbytes // 4
        self.reduction = Reduction("float32", "sum" if FOLDS[collective] else None, ranks)
        layout = layout_of(collective, ranks, self.count, 0)
        rng = np.random.default_rng(ranks)
        noise = rng.random(self.count + ranks, dtype=np.float32)
        data = [None if n is None else noise[rank : rank + n] for rank, n in enumerate(layout.inputs)]
        self.operands = Operands(layout, data, writes_its_arrays(collective))
        self.operands.rewrite()

    def plan(self, algorithm: str) -> nvcoll.Plan:
        arrays, out = self.operands.arguments()
        return self.node.plan(self.collective, arrays, algorithm=algorithm, out=out, **self.operands.options("sum"))

    def expected(self, algorithm: str) -> list[Array]:
        schedule = nvcoll.schedule(
            self.collective, algorithm, world_size=self.node.world_size, in_place=self.operands.in_place
        )
        results = oracle.run(schedule, self.operands.data, self.count)
        known: list[Array] = []
        return [distinct(x, known, count_unequal) for x in results if x is not None]

    def check(self, call: Callable[[], object], expected: Sequence[Array]) -> None:
        self.operands.rewrite()
        call()
        assert sum(map(count_unequal, self.operands.results, expected)) == 0, f"a wrong result of {self.collective}"

    def times(self, calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, Array]:
        """Returns what each call takes, in rounds whose inputs are rewritten; the first two do not count."""
        times: dict[str, list[float]] = {name: [] for name in calls}
        for turn in range(rounds + 2):
            for name in random.sample(list(calls), len(calls)):
                self.operands.rewrite_inputs()
                start = time.perf_counter()
                calls[name]()
                if turn >= 2:
                    times[name].append(time.perf_counter() - start)
        return {name: np.array(seconds) for name, seconds in times.items()}


def algorithms_of(collective: str) -> list[str]:
    return [row.name for row in registry() if row.collective == collective]


def fastest(times: dict[str, Array]) -> str:
    return min(times, key=lambda name: float(np.median(times[name])))


def halves(every: Sequence[baselines.Copy]) -> tuple[list[baselines.Copy], list[baselines.Copy]]:
    """Shares out copies: one is cut where half of the bytes are through."""
    left = sum(to.size for to, _ in every) // 2
    first: list[baselines.Copy] = []
    second: list[baselines.Copy] = []
    for to, source in every:
        cut = min(left, to.size)
        left -= cut
        first += [(to[:cut], source[:cut])] if cut else []
        second += [(to[cut:], source[cut:])] if cut < to.size else []
    return first, second


class Memcpy:
    """Copies by the calling thread and, of two, by one more. ``close`` ends that.

    The second thread is started once and sleeps between calls. During a call each thread is pinned to its own
    processor, because the system often places a woken thread beside the thread that woke it.
    """

    def __init__(self, every: Sequence[baselines.Copy], threads: int) -> None:
        self._mine, self._other = halves(every) if threads == 2 else (list(every), [])
        self._wanted, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._is_open = True
        self._processors = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def __call__(self) -> None:
        """Makes all copies."""
        if not self._other:
            baselines.memcpy(self._mine)
            return
        self._wanted.release()
        self._confine(self._processors[:1])
        baselines.memcpy(self._mine)
        self._done.acquire()
        self._confine(self._processors)

    def _serve(self) -> None:
        self._confine(self._processors[1:2] or self._processors)
        while True:
            self._wanted.acquire()
            if not self._is_open:
                return
            baselines.memcpy(self._other)
            self._done.release()

    def _confine(self, processors: Sequence[int]) -> None:
        if len(self._processors) > 1:
            os.sched_setaffinity(0, processors)

    def close(self) -> None:
        """Ends the second thread."""
        self._is_open = False
        self._wanted.release()
        self._thread.join()


def of_collectives() -> Iterator[Row]:
    """The best algorithm against numpy's loop, or a memcpy by one or two threads, whichever is faster.

    Before and after the rounds every element of the best algorithm's result, and of a memcpy's, is compared.
    """
    for collective in COLLECTIVES:
        for ranks in (2, 8):
            for nbytes in (MIB, 64 * MIB):
                yield of_collective(Ranks(collective, ranks, nbytes), 40 if nbytes == MIB else 7)


def of_collective(ranks: Ranks, rounds: int) -> Row:
    plans: dict[str, Callable[[], object]] = {name: ranks.plan(name).run for name in algorithms_of(ranks.collective)}
    best = fastest(ranks.times(plans, max(rounds // 4, 2)))
    calls: dict[str, Callable[[], object]] = {best: plans[best]}
    if FOLDS[ranks.collective]:
        calls["numpy"] = lambda: ranks.reduction.by_numpy(ranks.operands)
    else:
        copies = baselines.copies(ranks.operands)
        calls |= {f"memcpy x {threads}": Memcpy(copies, threads) for threads in (1, 2)}
    expected = ranks.expected(best)
    checked = [call for name, call in calls.items() if name != "numpy"]
    for call in checked:
        ranks.check(call, expected)
    times = ranks.times(calls, rounds)
    for call in checked:
        ranks.check(call, expected)
    for call in calls.values():
        if isinstance(call, Memcpy):
            call.close()
    ours = times.pop(best)
    baseline = fastest(times)
    what, size = f"{ranks.collective}: {baseline} / {best}", show(ranks.count * 4)
    bar = 1.5 if FOLDS[ranks.collective] else 0.9
    return Row(what, ranks.node.world_size, size, times[baseline] / ours, at_least=bar)


QUESTIONS: dict[str, Callable[[], Iterator[Row]]] = {
    "roofline": against_roofline,
    "numpy": against_numpy,
    "bytes": against_bytes,
    "ranks": many_ranks,
    "dtype": against_float32,
    "call": of_a_call,
    "group": of_a_group,
    "collectives": of_collectives,
}


def main(questions: Annotated[list[str] | None, typer.Argument(help=f"Of {', '.join(QUESTIONS)}.")] = None) -> None:
    """Measures and prints what was asked, or everything; ends with 1 if a bar is missed."""
    facts = nvcoll._nvcoll.machine()
    table = Table("what", "ranks", "size", "median", "95 % bound", "bar", "", box=None, pad_edge=False)
    for question in questions or QUESTIONS:
        for row in QUESTIONS[question]():
            table.add_row(*row.cells())
    Console(width=120).print(f"{facts['cpu']}, {facts['isa']}, {facts['usable_cpus']} processors", table)
    raise typer.Exit(any("MISSED" in cell for cell in table.columns[-1].cells))


if __name__ == "__main__":
    typer.run(main)
