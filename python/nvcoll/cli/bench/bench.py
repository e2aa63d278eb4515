"""``nvcoll bench``: a collective's algorithms side by side with what they should beat, interleaved in one run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

import nvcoll
from nvcoll import Algorithm, InvalidArgument, Refuted
from nvcoll._nvcoll import DtypeRow, OpRow, bus_factor, collectives, dtypes, ops
from nvcoll._nvcoll import algorithms as registry
from nvcoll.cli import completion, files, formats, hints, sizes
from nvcoll.cli.bench import tables as bench_tables
from nvcoll.cli.bench import tune as tuning
from nvcoll.cli.bench.timing import Case, Reduction, check_memory, layout_of, timed
from nvcoll.cli.gathered import gathered
from nvcoll.cli.operands import CAN_BE_IN_PLACE, FOLDS, root_of, writes_its_arrays
from nvcoll.cli.schedules import Ranks

DEFAULT_SIZES = (1 << 16, 1 << 20, 1 << 24)
TIMED = tuple(row.name for row in collectives() if bus_factor(row.name, 2) > 0)
"""The collectives that move data."""

ALIGNED_BYTES = 16
"""A rank's part is a multiple of this where nccl-tests cuts a size. Cited: ``AllGatherGetCollByteCount`` there."""

OF_COMPLETE_FOLDS = ("avg", "premul_sum")
"""Ops that need the reduction over all ranks."""

OF_PREDECESSORS = tuple(row.name for row in collectives() if row.folds == "predecessors")


def _check_collective(name: str) -> None:
    if name not in TIMED:
        if name in {row.collective for row in registry()}:
            raise InvalidArgument(f"`{name}` moves no data: choose from {', '.join(TIMED)}")
        raise InvalidArgument(hints.of_collective(name, TIMED))


def _algorithms(
    collective: str, wanted: Sequence[str], ranks: int, root: int, uses: Sequence[bool]
) -> dict[str, str | Algorithm]:
    """Returns algorithms by the name that a column has, proved for every use: in place (True), out of place (False)."""
    found = files.chosen(collective, wanted, also=("auto",))
    for spec, algorithm in found.values():
        if isinstance(algorithm, Algorithm):
            _check_proofs(spec, algorithm, ranks, root, uses)
    return {column: algorithm for column, (_, algorithm) in found.items()}


def _check_proofs(spec: str, algorithm: Algorithm, ranks: int, root: int, uses: Sequence[bool]) -> None:
    """Proves what the user wrote before the oracle and the node run it."""
    for in_place in uses:
        try:
            nvcoll.verify(files.schedule_of(spec, algorithm, ranks, in_place, root))
        except Refuted as violation:
            is_default = in_place == CAN_BE_IN_PLACE[algorithm.collective]
            words = ["nvcoll", "verify", spec, "-n", str(ranks), *([] if is_default else ["--out-of-place"])]
            words += ["--root", str(root)] if root else []
            raise Refuted(f"{violation}\nnvcoll: see {shlex.join(words)}") from None


def _choice(what: str, name: str, known: list[str], of_nccl: dict[str, str]) -> str:
    ours = {theirs: mine for mine, theirs in of_nccl.items()}.get(name, name)
    if name == "all":
        raise InvalidArgument(f"bench times one {what} at a time, `all` names several: choose from {', '.join(known)}")
    if ours not in known:
        raise InvalidArgument(f"no {what} is called `{name}`: choose from {', '.join(known)}")
    return ours


def _names(rows: Sequence[DtypeRow | OpRow], of_nccl: dict[str, str]) -> str:
    """Lists a registry for --help, with the names of nccl-tests beside ours."""
    names = [f"{row.name} ({of_nccl[row.name]})" if row.name in of_nccl else row.name for row in rows]
    return f"{', '.join(names)}; in parentheses, the name in nccl-tests."


def _reduction(collective: str, dtype: str, op: str | None, ranks: int) -> Reduction:
    """Returns the dtype and the op of a collective.

    Raises:
        InvalidArgument: no such dtype or op, an op where nothing is folded, or one that is not defined there.
    """
    dtype = _choice("dtype", dtype, [row.name for row in dtypes()], bench_tables.NCCL_DTYPES)
    if not FOLDS[collective]:
        if op is not None:
            raise InvalidArgument(f"{collective} reduces nothing: leave out -o")
        return Reduction(dtype, None, ranks)
    op = _choice("op", op or "sum", [row.name for row in ops()], bench_tables.NCCL_OPS)
    if op in OF_COMPLETE_FOLDS and collective in OF_PREDECESSORS:
        has = ", ".join(row.name for row in ops() if row.name not in OF_COMPLETE_FOLDS)
        raise InvalidArgument(f"{op} is not defined for {collective}: choose from {has}")
    return Reduction(dtype, op, ranks)


def _counts(collective: str, all_bytes: Sequence[int], reduction: Reduction, is_nccl: bool) -> list[int]:
    """Returns the elements of a rank's longer buffer for every size; for nccl-tests all its parts are alike.

    Raises:
        InvalidArgument: a size holds no element.
    """
    itemsize, ranks = reduction.numpy_dtype.itemsize, reduction.world_size
    is_cut = is_nccl and not writes_its_arrays(collective)
    grain = max(ALIGNED_BYTES // itemsize, 1) * ranks if is_cut else 1
    if min(all_bytes) < grain * itemsize:
        least = f"{ALIGNED_BYTES} bytes for each of {ranks} ranks" if is_cut else f"one {reduction.dtype}"
        raise InvalidArgument(f"{min(all_bytes)} bytes are less than {least}: pass at least {grain * itemsize}")
    return list(dict.fromkeys(nbytes // itemsize // grain * grain for nbytes in all_bytes))


def _case(
    node: nvcoll.Node,
    collective: str,
    reduction: Reduction,
    root: int,
    chosen: dict[str, str | Algorithm],
    uses: Sequence[bool],
    is_nccl: bool,
    count: int,
) -> Case:
    """Returns the candidates of one size: every algorithm in every use, and baselines unless it is for nccl-tests."""
    new = Case(node, collective, reduction, count, root)
    for name, algorithm in chosen.items():
        for in_place in uses:
            new.add_algorithm(bench_tables.NCCL_KINDS[in_place] if is_nccl else name, algorithm, in_place)
    if not is_nccl:
        new.add_baselines()
    return new


@dataclass(frozen=True)
class Reduced:
    """The options of a reduction."""

    dtype: Annotated[
        str, typer.Option("-d", "--datatype", "--dtype", help=_names(dtypes(), bench_tables.NCCL_DTYPES))
    ] = "float32"
    op: Annotated[
        str | None, typer.Option("-o", "--op", help=f"{_names(ops(), bench_tables.NCCL_OPS)} Default: sum.")
    ] = None
    root: Annotated[
        int | None, typer.Option("-r", "--root", help="The root, if the collective has one; default: 0.")
    ] = None


@gathered
def bench(
    collective: Annotated[
        str,
        typer.Argument(
            help=f"The collective: {', '.join(TIMED)}.",
            callback=hints.collective_name,
            autocompletion=completion.collectives,
        ),
    ] = "all_reduce",
    ranks: Ranks = 8,
    begin: Annotated[list[str] | None, sizes.begin("64K, 1M, 16M")] = None,
    end: sizes.End = None,
    factor: sizes.Factor = None,
    algorithm: Annotated[
        list[str] | None,
        typer.Option(
            "-a",
            "--algorithm",
            help="A name, auto or FILE.py:FUNCTION. May be repeated. Default: all algorithms; with --nccl, auto.",
            autocompletion=completion.algorithms,
        ),
    ] = None,
    *,
    reduced: Reduced,
    rounds: Annotated[int, typer.Option(help="Number of timed rounds.", min=1)] = 20,
    nccl: Annotated[
        bool,
        typer.Option("--nccl", help="Print the columns of nccl-tests. One algorithm only."),
    ] = False,
    printed: formats.Printed,
    tune: Annotated[
        bool, typer.Option("--tune", help="Fit the cost model of auto to this machine; time nothing else.")
    ] = False,
    save: Annotated[Path | None, typer.Option("--save", help="File for the table of --tune.")] = None,
) -> None:
    """Times algorithms, with numpy or a memcpy in the same rounds. Checks every element.

    Example: nvcoll bench all_reduce -n 8 -b 64K -e 16M -f 16 -a ring -a nvswitch
    """
    if tune:
        return tuning.tune(ranks, save)
    if save is not None:
        raise InvalidArgument("--save is for the table of --tune: pass that too; --json prints times")
    _check_collective(collective)
    formats.check_one(nccl=nccl, json=printed.as_json, csv=printed.as_csv)
    root = root_of(collective, ranks, reduced.root)
    reduction = _reduction(collective, reduced.dtype, reduced.op, ranks)
    all_bytes = sizes.of(begin, end, factor, DEFAULT_SIZES)
    uses = (False, True)[: 1 + CAN_BE_IN_PLACE[collective]] if nccl else (writes_its_arrays(collective),)
    wanted = (algorithm or ["auto"]) if nccl else (algorithm or [])
    chosen = _algorithms(collective, wanted, ranks, root, uses)
    if nccl and len(chosen) > 1:
        raise InvalidArgument(f"--nccl prints one algorithm, {len(chosen)} are named: pass -a once")
    counts = _counts(collective, all_bytes, reduction, nccl)
    largest = layout_of(collective, ranks, max(counts), root)
    check_memory(largest, uses, len(chosen), reduction.numpy_dtype.itemsize)
    case = partial(_case, nvcoll.Node(ranks), collective, reduction, root, chosen, uses, nccl)
    cases = timed(case, counts, rounds)
    if printed.as_json:
        bench_tables.print_json(cases, chosen, rounds)
    elif printed.as_csv:
        bench_tables.print_csv(cases)
    elif nccl:
        bench_tables.print_nccl(cases, next(iter(chosen)), rounds)
    else:
        bench_tables.print_table(cases, chosen, rounds)
    if any(case.wrong for case in cases):
        raise typer.Exit(1)
