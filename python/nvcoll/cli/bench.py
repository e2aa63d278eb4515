"""``nvcoll bench``: algorithms side by side with numpy and the roofline, interleaved in one run."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import nvcoll
from nvcoll import InvalidArgument, oracle
from nvcoll._nvcoll import algorithms as registry
from nvcoll._nvcoll import machine, roofline
from nvcoll.cli import sizes

DEFAULT_SIZES = ("64K", "1M", "16M")


def _numpy_reduce(arrays: list[Any], scratch: Any) -> None:
    """The in-place chain that a numpy user writes: add, then copy."""
    np.add(arrays[0], arrays[1 % len(arrays)], out=scratch) if len(arrays) > 1 else np.copyto(scratch, arrays[0])
    for x in arrays[2:]:
        np.add(scratch, x, out=scratch)
    for x in arrays:
        np.copyto(x, scratch)


class Case:
    """One size: fresh data for every call, every element checked."""

    def __init__(self, node: nvcoll.Node, names: list[str], nbytes: int) -> None:
        self.node, self.names, self.count = node, names, max(nbytes // 4, 1)
        n = node.world_size
        rng = np.random.default_rng(self.count)
        self.data = [rng.random(self.count, dtype="f4") for _ in range(n)]
        self.arrays = [np.empty_like(x) for x in self.data]
        self.scratch = np.empty_like(self.data[0])
        self.wrong = 0
        self.expected: dict[str, Any] = {}
        self.seconds: dict[str, list[float]] = {name: [] for name in (*names, "numpy", "roofline")}
        for name in names:
            schedule = nvcoll.schedule("all_reduce", name, world_size=n)
            self.expected[name] = oracle.all_reduce(schedule, self.data, "sum")[0]

    def _time(self, name: str, call: Callable[[], float | None]) -> None:
        for x, fresh in zip(self.arrays, self.data, strict=True):
            np.copyto(x, fresh)
        start = time.perf_counter()
        measured = call()
        self.seconds[name].append(time.perf_counter() - start if measured is None else measured)
        if name in self.expected:
            self.wrong += sum(int((x != self.expected[name]).sum()) for x in self.arrays)

    def round(self) -> None:
        """Times everything once, in turn."""
        threads = self.node.workers
        self._time("roofline", lambda: roofline(self.arrays, threads))
        self._time("numpy", lambda: _numpy_reduce(self.arrays, self.scratch))
        for name in self.names:

            def call(name: str = name) -> None:
                self.node.all_reduce(self.arrays, algorithm=name)

            self._time(name, call)

    def median_us(self, name: str) -> float:
        """Returns the median time in microseconds."""
        return statistics.median(self.seconds[name]) * 1e6

    def ratio(self, above: str, below: str) -> float:
        """Returns the median over rounds of the ratio of two times."""
        return statistics.median(a / b for a, b in zip(self.seconds[above], self.seconds[below], strict=True))


def _print_table(cases: list[Case], names: list[str], rounds: int, console: Console) -> None:
    node = cases[0].node
    facts = machine()
    cores = f"{node.world_size} thread ranks on {facts['usable_cpus']} cores"
    print(f"all_reduce  float32 sum  in place   {cores}   {facts['cpu'] or ''}, {facts['isa']}")
    print(f"{rounds} interleaved rounds, median us; data rewritten each call; every element checked")
    best = names[0]
    table = Table(box=None, pad_edge=False)
    headings = ("size", *names, "numpy", "roofline", f"{best} vs numpy", "of roofline", "#wrong")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for case in cases:
        times = [f"{case.median_us(name):.0f}" for name in (*names, "numpy", "roofline")]
        vs_numpy, of_roof = case.ratio("numpy", best), case.ratio("roofline", best)
        table.add_row(sizes.show(case.count * 4), *times, f"{vs_numpy:.1f}x", f"{of_roof:.0%}", str(case.wrong))
    console.print(table)
    costs = {name: nvcoll.schedule("all_reduce", name, world_size=node.world_size).cost() for name in names}
    moved = ", ".join(f"{name} {cost[0]:.1f} N" for name, cost in costs.items())
    print(f"why   a rank moves  {moved};  waits {', '.join(str(cost[1]) for cost in costs.values())}")
    rank_order = [name for collective, name, order, *_ in registry() if collective == "all_reduce" and order == "rank"]
    kept = [name for name in names if name in rank_order]
    print(
        f"bits  {', '.join(kept) or 'none'} = functools.reduce(np.add, ...) at any size; others: own documented order"
    )
    print("next  --nccl   --plot bench.svg   nvcoll show all_reduce ring -n 4")


def _print_nccl(cases: list[Case], name: str) -> None:
    factor = 2 * (cases[0].node.world_size - 1) / cases[0].node.world_size
    print(f"# nvcoll all_reduce {name}, {cases[0].node.world_size} thread ranks; times in place, median")
    print("#       size         count      type   redop    root     time   algbw   busbw #wrong")
    print("#        (B)    (elements)                               (us)  (GB/s)  (GB/s)       ")
    for case in cases:
        nbytes, us = case.count * 4, case.median_us(name)
        algbw = nbytes / us / 1e3
        row = f"{nbytes:12d}  {case.count:12d}     float     sum      -1"
        print(f"{row} {us:8.2f} {algbw:7.2f} {algbw * factor:7.2f} {case.wrong:6d}")


def _plot(cases: list[Case], names: list[str], file: Path) -> None:
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        raise InvalidArgument("--plot needs matplotlib: pip install 'nvcoll[bench]'") from None
    figure, axes = pyplot.subplots(figsize=(7, 4))
    for name in (*names, "numpy", "roofline"):
        style: dict[str, Any] = {"linestyle": "--", "color": "0.5"} if name == "roofline" else {"marker": "o"}
        axes.plot(
            [c.count * 4 for c in cases], [c.count * 4 / c.median_us(name) / 1e3 for c in cases], label=name, **style
        )
    axes.set(xscale="log", xlabel="bytes per rank", ylabel="algbw, GB/s", title="all_reduce, float32 sum, in place")
    axes.legend()
    figure.tight_layout()
    figure.savefig(file)
    print(f"drawn to {file}")


def bench(
    collective: Annotated[str, typer.Argument(help="What to time.")] = "all_reduce",
    ranks: Annotated[int, typer.Option("-n", "--ranks", help="The number of ranks.")] = 8,
    size: Annotated[list[str] | None, typer.Option("-b", "--size", help="Bytes per rank; may be repeated.")] = None,
    algorithm: Annotated[list[str] | None, typer.Option("-a", "--algorithm", help="May be repeated.")] = None,
    rounds: Annotated[int, typer.Option(help="Interleaved rounds.", min=1)] = 20,
    nccl: Annotated[
        bool, typer.Option("--nccl", help="Print the columns of nccl-tests, for the first algorithm.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw to this file.")] = None,
) -> None:
    """Times algorithms beside numpy and the roofline."""
    if collective != "all_reduce":
        raise InvalidArgument(f"`{collective}` cannot be timed: choose all_reduce")
    known = [name for owner, name, *_ in registry() if owner == collective]
    names = algorithm or known
    if unknown := [name for name in names if name not in known]:
        raise InvalidArgument(f"no algorithm is called `{unknown[0]}`: choose from {', '.join(known)}")
    node, console = nvcoll.Node(ranks), Console()
    if not console.is_terminal:
        console = Console(width=160)
    cases = []
    with Progress(console=Console(stderr=True), transient=True, disable=not console.is_terminal) as progress:
        wanted = [sizes.parse(text) for text in size or DEFAULT_SIZES]
        task = progress.add_task("timing", total=len(wanted) * rounds)
        for nbytes in wanted:
            case = Case(node, names, nbytes)
            for _ in range(rounds):
                case.round()
                progress.advance(task)
            cases.append(case)
    if as_json:
        rows = [{"bytes": c.count * 4, "wrong": c.wrong, "seconds": c.seconds} for c in cases]
        print(json.dumps({"collective": collective, "ranks": ranks, "machine": machine(), "rows": rows}))
    elif nccl:
        _print_nccl(cases, names[0])
    else:
        _print_table(cases, names, rounds, console)
    if plot is not None:
        _plot(cases, names, plot)
    if any(case.wrong for case in cases):
        raise typer.Exit(1)
