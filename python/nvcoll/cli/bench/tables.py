"""The output of ``nvcoll bench``: a table, the columns of nccl-tests, or JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from nvcoll import Algorithm, Schedule, __version__
from nvcoll._nvcoll import bus_factor, machine, why
from nvcoll.cli import formats
from nvcoll.cli.bench.timing import NUMPY, Case, Spread, schedule_of
from nvcoll.cli.operands import HAS_ROOT, writes_its_arrays
from nvcoll.text.formatting import counted, sized
from nvcoll.text.tables import print_labelled
from nvcoll.text.tables import print_table as print_fitted

NCCL_DTYPES = {
    "float16": "half",
    "float32": "float",
    "float64": "double",
    "float8_e4m3fn": "f8e4m3",
    "float8_e5m2": "f8e5m2",
}
"""The names of dtypes in nccl-tests, if they differ from ours."""

NCCL_OPS = {"premul_sum": "mulsum"}
"""The names of ops in nccl-tests, if they differ from ours."""

NCCL_KINDS = ("out of place", "in place")

NCCL_WIDTHS = (12, 12, 8, 6, 6, *(7, 6, 6, 6) * 2)
"""The widths of the columns of nccl-tests: size, count, type, redop, root; twice time, algbw, busbw, #wrong."""

UNITS = ((1, "x"), (100, " %"))
"""The scale and the unit of a ratio: to numpy, and to the roofline, which is a limit."""

UNSTEADY = 0.5
"""A ratio to times whose quartiles are further apart than this part of their median is marked. Chosen."""


def ranks_and_cores(case: Case) -> str:
    """Returns the number of ranks and of cores, in words."""
    return f"{counted(case.node.world_size, 'thread rank')} on {counted(machine()['usable_cpus'], 'core')}"


def what(case: Case) -> str:
    """Returns the collective, the root, the dtype, the op and the aliasing, in words."""
    words = [case.collective, f"root {case.root}" if HAS_ROOT[case.collective] else "", case.reduction.dtype]
    words += [case.reduction.op or "", "in place" if case.in_place else "out of place"]
    return "  ".join(filter(None, words))


def print_table(cases: Sequence[Case], chosen: dict[str, str | Algorithm], rounds: int) -> None:
    """Prints algorithms beside their baselines; the first chosen is compared with each."""
    facts, case = machine(), cases[0]
    best = next(iter(chosen))
    columns = [*chosen, *case.baselines]
    l3 = "" if facts["l3_bytes"] is None else f", L3 {sized(facts['l3_bytes'])}"
    who = f"{ranks_and_cores(case)}   {facts['cpu'] or 'unknown processor'}, {facts['isa']}{l3}"
    how = "median us (and quartiles); data rewritten each call; every element checked"
    print_labelled("", f"{what(case)}   {who}", label=0)
    print_labelled("", f"{rounds} interleaved rounds, {how}", label=0)
    heads = [f"{best} {'of' if name == 'roofline' else 'vs'} {name}" for name in case.baselines]
    rows = []
    for case in cases:
        medians = [case.seconds(name).median * 1e6 for name in columns]
        times = [f"{us:.0f}" if us >= 100 else f"{us:.1f}" for us in medians]
        ratios = [_beside(case, name, best) for name in case.baselines]
        rows.append([sized(case.nbytes), *times, "|", *ratios, str(case.wrong)])
    print_fitted(["size", *columns, "|", *heads, "#wrong"], rows)
    names = [*chosen]
    schedules = {name: _schedule(case, chosen[name]) for name in names}
    if "auto" in chosen:
        print_labelled("auto", f"chooses {', '.join(f'{_taken(c, c.in_place)} at {sized(c.nbytes)}' for c in cases)}")
    print_labelled("why", why(list(schedules.values())))
    print_labelled("with", _baselines(case))
    shown = next((name for name in names if isinstance(chosen[name], str)), "auto")
    print_labelled("next", f"--nccl   --json   nvcoll show {case.collective} {shown} -n {case.node.world_size}")
    for line in _wrong(cases):
        print_labelled("", line, label=0)


def _ratio(spread: Spread, scale: int, unit: str) -> str:
    digits, least = (1, 0.1) if scale == 1 else (0, 1.0)
    if 0 < scale * spread.median < least:
        digits = 1 - math.floor(math.log10(scale * spread.median))  # two digits that say something
    low, median, high = (f"{scale * value:.{digits}f}" for value in (spread.low, spread.median, spread.high))
    return f"{median}{unit} ({low}-{high})"


def _beside(case: Case, baseline: str, name: str) -> str:
    """Writes a ratio to a baseline, marked where the baseline's own times are too far apart to compare with."""
    ratio = _ratio(case.ratio(baseline, name), *UNITS[baseline == "roofline"])
    return f"{ratio} unsteady" if case.seconds(baseline).width > UNSTEADY else ratio


def _schedule(case: Case, algorithm: str | Algorithm) -> Schedule:
    algorithm = _taken(case, case.in_place) if algorithm == "auto" else algorithm
    return schedule_of(case.collective, algorithm, case.node.world_size, case.in_place, case.root)


def _taken(case: Case, in_place: bool) -> str:
    """Returns the algorithm that auto chooses for the calls of a case."""
    root = case.root if HAS_ROOT[case.collective] else None
    arguments = (case.collective, case.count, case.reduction.dtype)
    return str(case.node.estimates(*arguments, root=root, in_place=in_place).algorithm)


def _baselines(case: Case) -> str:
    """Describes each baseline."""
    threads = counted(case.node.workers, "thread")
    size = "" if case.reduction.dtype == "float32" else ", as float32 of the same size"
    roofline = f"hand-written loops, each element read once and written once{size}, {threads}"
    numpy = f"np.{NUMPY[case.reduction.op].__name__}(a, b, out=c)" if case.reduction.op else ""
    numpy += " for each array after the first" + (", then copies" if case.collective == "all_reduce" else "")
    memcpy = "np.copyto of the same bytes, 1 thread"
    meanings = {"numpy": f"{numpy}, 1 thread", "memcpy": memcpy, "roofline": roofline}
    return "; ".join(f"{name}: {meanings[name]}" for name in case.baselines)


def _wrong(cases: Sequence[Case]) -> list[str]:
    return [
        f"WRONG {counted(candidate.wrong, 'element')} of {name} at {sized(case.nbytes)} in "
        f"{counted(len(candidate.seconds) + 1, 'call')}"
        for case in cases
        for name, candidate in case.candidates.items()
        if candidate.wrong
    ]


def print_nccl(cases: Sequence[Case], name: str, rounds: int) -> None:
    """Prints the columns of nccl-tests. Lines that begin with # hold everything else."""
    n = cases[0].node.world_size
    first, last = cases[0].nbytes, cases[-1].nbytes
    uses = [in_place for in_place, kind in enumerate(NCCL_KINDS) if kind in cases[0].candidates]
    if name == "auto":
        name = f"auto ({', '.join(dict.fromkeys(_taken(case, bool(use)) for case in cases for use in uses))})"
    print(f"# nvcoll {__version__} {cases[0].collective} {name}, {ranks_and_cores(cases[0])}, {machine()['cpu'] or ''}")
    iterations = f"iters: {rounds} (median of interleaved rounds) warmup iters: 1 validation: 1"
    print(f"# minBytes {first} maxBytes {last} {iterations}")
    print("#")
    print(f"#{'out-of-place':>74}{'in-place':>31}{'':10}")
    print(_nccl_head("size", "count", "type", "redop", "root", *("time", "algbw", "busbw", "#wrong") * 2))
    print(_nccl_head("(B)", "(elements)", "", "", "", *("(us)", "(GB/s)", "(GB/s)", "") * 2))
    rates: list[float] = []
    for case in cases:
        dtype, op = case.reduction.dtype, case.reduction.op or "none"
        count = case.count if writes_its_arrays(case.collective) else case.count // n  # nccl-tests counts one part
        row: list[object] = [case.nbytes, count, NCCL_DTYPES.get(dtype, dtype), NCCL_OPS.get(op, op)]
        row.append(case.root if HAS_ROOT[case.collective] else -1)
        for kind in NCCL_KINDS:
            if kind not in case.candidates:
                row += ["N/A"] * 4
                continue
            us = case.seconds(kind).median * 1e6
            algbw = case.nbytes / us / 1e3
            busbw = algbw * bus_factor(case.collective, n)
            rates.append(busbw)
            digits = 0 if us >= 10_000 else 1 if us >= 100 else 2
            row += [f"{us:.{digits}f}", f"{algbw:.2f}", f"{busbw:.2f}", case.candidates[kind].wrong]
        print(_nccl_line(*row))
    wrong = sum(case.wrong for case in cases)
    print(f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}")
    print(f"# Avg bus bandwidth    : {sum(rates) / len(rates):g} ")
    print("#")


def _nccl_line(*cells: object) -> str:
    return "  ".join(f"{cell!s:>{width}}" for cell, width in zip(cells, NCCL_WIDTHS, strict=True))


def _nccl_head(*cells: str) -> str:
    return "#" + _nccl_line(*cells)[1:]


def print_csv(cases: Sequence[Case]) -> None:
    """Prints a row for each size and each algorithm or baseline, with the median and the quartiles of the rounds."""
    formats.print_csv(
        [
            {
                "collective": case.collective,
                "world_size": case.node.world_size,
                "dtype": case.reduction.dtype,
                "op": case.reduction.op,
                "in_place": case.in_place,
                "nbytes": case.nbytes,
                "count": case.count,
                "name": name,
                "median_us": (seconds := case.seconds(name)).median * 1e6,
                "low_us": seconds.low * 1e6,
                "high_us": seconds.high * 1e6,
                "wrong": None if name in case.baselines else candidate.wrong,
            }
            for case in cases
            for name, candidate in case.candidates.items()
        ]
    )


def print_json(cases: Sequence[Case], chosen: dict[str, str | Algorithm], rounds: int) -> None:
    """Prints all measurements. ``docs/reference/commands.md`` describes the keys; a schema only gains keys."""
    first = cases[0]
    costs = {name: _schedule(first, a).cost() for name, a in chosen.items()}
    rows: list[dict[str, Any]] = [
        {
            "nbytes": case.nbytes,
            "count": case.count,
            "times_us": {name: [1e6 * time for time in one.seconds] for name, one in case.candidates.items()},
            "median_us": {name: 1e6 * case.seconds(name).median for name in case.candidates},
            "quartiles_us": {name: [1e6 * (of := case.seconds(name)).low, 1e6 * of.high] for name in case.candidates},
            "wrong": {name: case.candidates[name].wrong for name in chosen},
        }
        for case in cases
    ]
    document = {
        "version": __version__,
        "collective": first.collective,
        "world_size": first.node.world_size,
        "workers": first.node.workers,
        "dtype": first.reduction.dtype,
        "op": first.reduction.op,
        "root": first.root if HAS_ROOT[first.collective] else None,
        "in_place": first.in_place,
        "rounds": rounds,
        "processor": machine(),
        "algorithms": {name: {"moved": moved, "waits": waits} for name, (moved, waits) in costs.items()},
        "baselines": first.baselines,
        "rows": rows,
    }
    formats.print_json("bench", document)
