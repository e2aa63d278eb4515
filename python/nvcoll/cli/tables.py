"""What ``nvcoll bench`` prints: a table for people, the columns of nccl-tests, or JSON."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from nvcoll import Algorithm, __version__, verify
from nvcoll._nvcoll import dtypes, machine, why
from nvcoll.cli import sizes
from nvcoll.cli.timing import NUMPY, Case, Spread, schedule_of
from nvcoll.words import counted

BASELINES = ("numpy", "roofline")

NCCL_DTYPES = {
    "float16": "half",
    "float32": "float",
    "float64": "double",
    "float8_e4m3fn": "f8e4m3",
    "float8_e5m2": "f8e5m2",
}
"""How nccl-tests calls a dtype, where it is not our name."""

NCCL_OPS = {"premul_sum": "mulsum"}
"""How nccl-tests calls an op, where it is not our name."""

NCCL_KINDS = ("out of place", "in place")

NCCL_WIDTHS = (12, 12, 8, 6, 6, *(7, 6, 6, 6) * 2)
"""How wide the columns of nccl-tests are: size, count, type, redop, root; twice time, algbw, busbw, #wrong."""

JSON_SCHEMA = "nvcoll.bench/1"


def ranks_and_cores(case: Case) -> str:
    """Says who calls, on what."""
    return f"{counted(case.node.world_size, 'thread rank')} on {counted(machine()['usable_cpus'], 'core')}"


def print_table(cases: Sequence[Case], chosen: dict[str, str | Algorithm], rounds: int) -> None:
    """Prints algorithms beside numpy and the roofline; the first chosen is compared with both."""
    facts, case = machine(), cases[0]
    best, *others = chosen
    columns = [*others, best, *BASELINES]
    l3 = "" if facts["l3_bytes"] is None else f", L3 {sizes.show(facts['l3_bytes'])}"
    what = f"all_reduce  {case.reduction.dtype} {case.reduction.op}  in place"
    print(f"{what}   {ranks_and_cores(case)}   {facts['cpu'] or 'unknown processor'}, {facts['isa']}{l3}")
    print(f"{rounds} interleaved rounds, median us (and quartiles); data rewritten each call; every element checked")
    rows = [["size", *columns, "|", f"{best} vs numpy", "of roofline", "#wrong"]]
    for case in cases:
        times = [_us(case.seconds(name).median * 1e6) for name in columns]
        ratios = _ratio(case.ratio("numpy", best), 1, "x"), _ratio(case.ratio("roofline", best), 100, " %")
        rows.append([sizes.show(case.nbytes), *times, "|", *ratios, str(case.wrong)])
    for line in _aligned(rows):
        print(line)
    names = [*others, best]
    schedules = {name: schedule_of(chosen[name], case.node.world_size) for name in names}
    _print_prose("why", why(list(schedules.values())))
    _print_prose("bits", _orders({name: verify(schedule).order for name, schedule in schedules.items()}, case))
    _print_prose("with", _baselines(case))
    _print_prose("spread", _spread(cases, columns))
    _print_prose("next", "--nccl   --json   --plot bench.svg   nvcoll show all_reduce ring -n 4")
    for line in _wrong(cases):
        print(line)


def _print_prose(label: str, text: str) -> None:
    """Prints a sentence, wrapped on a terminal and in one line to a file."""
    indent = " " * 8
    width = max(shutil.get_terminal_size().columns, 40) if sys.stdout.isatty() else sys.maxsize
    print(textwrap.fill(f"{label:8}{text}", width, subsequent_indent=indent, break_long_words=False))


def _ratio(spread: Spread, scale: int, unit: str) -> str:
    digits = 1 if scale == 1 else 0
    low, median, high = (f"{scale * value:.{digits}f}" for value in (spread.low, spread.median, spread.high))
    return f"{median}{unit} ({low}-{high})"


def _spread(cases: Sequence[Case], columns: Sequence[str]) -> str:
    """Says how far the quartiles of each column are apart, at the size where it is worst."""
    worst = {name: max(case.seconds(name).width for case in cases) for name in columns}
    apart = ", ".join(f"{name} {width:.0%}" for name, width in worst.items()).replace("%", " %")
    return f"quartiles of a time are apart, at the worst size: {apart} of the median"


def _us(us: float) -> str:
    return f"{us:.0f}" if us >= 100 else f"{us:.1f}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def _orders(orders: dict[str, str], case: Case) -> str:
    """Says in which order each algorithm folds at this world size, as its proof has found."""
    accumulators = {name: accumulator for name, _, _, accumulator in dtypes()}
    left_fold = "the left fold over ranks at any size"
    if case.reduction.op == "sum" and accumulators[case.reduction.dtype] == case.reduction.dtype:
        left_fold = "functools.reduce(np.add, ...) at any size"
    meanings = {"rank": f" = {left_fold}", "nested": ": folds of folds", "own": ": own order (nvcoll verify prints it)"}
    parts = []
    for kind, meaning in meanings.items():
        if of_kind := [name for name, order in orders.items() if order == kind]:
            parts.append(", ".join(of_kind) + meaning)
    return "; ".join(parts)


def _baselines(case: Case) -> str:
    ufunc = f"np.{NUMPY[case.reduction.op].__name__}(x0, x, out=x0)"
    roofline = "hand-written loops, each element read once and written once"
    size = "" if case.reduction.dtype == "float32" else ", as float32 of as many bytes"
    threads = counted(case.node.workers, "thread")
    return f"numpy: {ufunc} for each rank, then copies, 1 thread; roofline: {roofline}{size}, {threads}"


def _wrong(cases: Sequence[Case]) -> list[str]:
    return [
        f"WRONG {counted(candidate.wrong, 'element')} of {name} at {sizes.show(case.nbytes)} in "
        f"{counted(len(candidate.seconds) + 1, 'call')}"
        for case in cases
        for name, candidate in case.candidates.items()
        if candidate.wrong
    ]


def print_nccl(cases: Sequence[Case], name: str, rounds: int) -> None:
    """Prints what nccl-tests prints, column for column; whatever is more stands in lines that begin with #."""
    n = cases[0].node.world_size
    first, last = cases[0].nbytes, cases[-1].nbytes
    print(f"# nvcoll {__version__} all_reduce {name}, {ranks_and_cores(cases[0])}, {machine()['cpu'] or ''}")
    iterations = f"iters: {rounds} (median of interleaved rounds) warmup iters: 1 validation: 1"
    print(f"# minBytes {first} maxBytes {last} {iterations}")
    print("#")
    print(f"#{'out-of-place':>74}{'in-place':>31}{'':10}")
    print(_nccl_head("size", "count", "type", "redop", "root", *("time", "algbw", "busbw", "#wrong") * 2))
    print(_nccl_head("(B)", "(elements)", "", "", "", *("(us)", "(GB/s)", "(GB/s)", "") * 2))
    rates = []
    for case in cases:
        dtype, op = case.reduction.dtype, case.reduction.op
        row: list[object] = [case.nbytes, case.count, NCCL_DTYPES.get(dtype, dtype), NCCL_OPS.get(op, op), -1]
        for kind in NCCL_KINDS:
            us = case.seconds(kind).median * 1e6
            algbw = case.nbytes / us / 1e3
            busbw = algbw * 2 * (n - 1) / n
            rates.append(busbw)
            digits = 0 if us >= 10_000 else 1 if us >= 100 else 2
            row += [f"{us:.{digits}f}", f"{algbw:.2f}", f"{busbw:.2f}", case.candidates[kind].wrong]
        print(_nccl_line(*row))
    print(f"# {_spread(cases, NCCL_KINDS)}")
    wrong = sum(case.wrong for case in cases)
    print(f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}")
    print(f"# Avg bus bandwidth    : {sum(rates) / len(rates):g} ")
    print("#")


def _nccl_line(*cells: object) -> str:
    return "  ".join(f"{cell!s:>{width}}" for cell, width in zip(cells, NCCL_WIDTHS, strict=True))


def _nccl_head(*cells: str) -> str:
    return "#" + _nccl_line(*cells)[1:]


def print_json(cases: Sequence[Case], chosen: dict[str, str | Algorithm], rounds: int) -> None:
    """Prints everything that was measured: ``docs/cli.md`` says what each key holds; a schema only gains keys."""
    first = cases[0]
    costs = {name: schedule_of(a, first.node.world_size).cost() for name, a in chosen.items()}
    rows: list[dict[str, Any]] = [
        {
            "bytes": case.nbytes,
            "count": case.count,
            "seconds": {name: candidate.seconds for name, candidate in case.candidates.items()},
            "median_seconds": {name: case.seconds(name).median for name in case.candidates},
            "quartile_seconds": {name: [case.seconds(name).low, case.seconds(name).high] for name in case.candidates},
            "wrong": {name: case.candidates[name].wrong for name in chosen},
        }
        for case in cases
    ]
    document = {
        "schema": JSON_SCHEMA,
        "version": __version__,
        "collective": "all_reduce",
        "ranks": first.node.world_size,
        "workers": first.node.workers,
        "dtype": first.reduction.dtype,
        "op": first.reduction.op,
        "in_place": True,
        "rounds": rounds,
        "machine": machine(),
        "algorithms": {name: {"moved": moved, "waits": waits} for name, (moved, waits) in costs.items()},
        "baselines": list(BASELINES),
        "rows": rows,
    }
    print(json.dumps(document))
