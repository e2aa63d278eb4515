"""``nvcoll bench``: algorithms side by side with numpy and the roofline, interleaved in one run."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import Progress

import nvcoll
from nvcoll import Algorithm, InvalidArgument, Refuted
from nvcoll._nvcoll import algorithms as registry
from nvcoll._nvcoll import dtypes, ops
from nvcoll.cli import files, plot, sizes, tables
from nvcoll.cli import tune as tuning
from nvcoll.cli.schedules import Ranks
from nvcoll.cli.timing import Case, Reduction, check_memory

DEFAULT_SIZES = ("64K", "1M", "16M")
TIMED = ("all_reduce",)
"""The collectives that a node runs with data."""

REFRESH_SECONDS = 0.1
"""How often the progress bar is drawn, between rounds. Chosen."""


def _check_collective(name: str) -> None:
    if name not in TIMED:
        known = {collective for collective, *_ in registry()}
        what = "cannot be timed yet" if name in known else "is not a collective"
        raise InvalidArgument(f"`{name}` {what}: choose {', '.join(TIMED)}")


def _algorithms(collective: str, wanted: Sequence[str], ranks: int, uses: Sequence[bool]) -> dict[str, str | Algorithm]:
    """Returns algorithms by the name that a column has, proved for every use: in place (True), out of place (False)."""
    known = [name for owner, name, *_ in registry() if owner == collective]
    chosen: dict[str, str | Algorithm] = {}
    for name in wanted or known:
        if files.is_spec(name):
            mine = files.algorithm(name)
            if mine.collective != collective:
                raise InvalidArgument(f"`{name}` is an algorithm of {mine.collective}: {collective} is timed")
            _check_proofs(name, mine, ranks, uses)
            chosen[name if mine.name in (*known, *chosen) else mine.name] = mine
        elif name == "auto":
            chosen[known[0]] = known[0]
        elif name in known:
            chosen[name] = name
        else:
            raise InvalidArgument(
                f"no {collective} algorithm is called `{name}`: choose from {', '.join(known)}, "
                "or write FILE.py:FUNCTION"
            )
    return chosen


def _check_proofs(spec: str, algorithm: Algorithm, ranks: int, uses: Sequence[bool]) -> None:
    """Proves what the user wrote before the oracle and the node run it."""
    for in_place in uses:
        try:
            nvcoll.verify(files.schedule_of(spec, algorithm, ranks, in_place))
        except Refuted as violation:
            words = ["nvcoll", "verify", spec, "-n", str(ranks), *([] if in_place else ["--out-of-place"])]
            raise Refuted(f"{violation}\nnvcoll: see {shlex.join(words)}") from None


def _choice(what: str, name: str, known: list[str], of_nccl: dict[str, str]) -> str:
    ours = {theirs: mine for mine, theirs in of_nccl.items()}.get(name, name)
    if ours not in known:
        raise InvalidArgument(f"no {what} is called `{name}`: choose from {', '.join(known)}")
    return ours


def _names(rows: Sequence[tuple[Any, ...]], of_nccl: dict[str, str]) -> str:
    """Lists a registry for --help, with the names of nccl-tests beside ours."""
    names = [f"{name} ({of_nccl[name]})" if name in of_nccl else name for name, *_ in rows]
    return f"{', '.join(names)}; in parentheses as nccl-tests has it."


def _sizes(begin: Sequence[str], end: str | None, factor: float | None, step: str | None) -> list[int]:
    if end is None:
        if factor is not None or step is not None:
            raise InvalidArgument("-f and -i say how a sweep grows: pass -e, where it ends")
        return list(dict.fromkeys(sizes.parse(text) for text in begin or DEFAULT_SIZES))
    if len(begin) != 1:
        raise InvalidArgument("a sweep begins at one size: pass -b once with -e")
    by = None if step is None else sizes.parse(step)
    return list(sizes.sweep(sizes.parse(begin[0]), sizes.parse(end), factor, by))


def _timed(cases: Callable[[int], Case], all_bytes: Sequence[int], rounds: int) -> list[Case]:
    """Times every size; the bar is drawn between rounds only, by nobody's thread."""
    console, done, drawn = Console(stderr=True), [], 0.0
    with Progress(console=console, transient=True, auto_refresh=False, disable=not console.is_terminal) as progress:
        task = progress.add_task("timing", total=len(all_bytes) * (rounds + 1))
        for nbytes in all_bytes:
            progress.update(task, description=sizes.show(nbytes), refresh=True)
            case = cases(nbytes)
            for number in range(rounds + 1):
                case.round(is_counted=number > 0)
                progress.advance(task)
                if time.monotonic() > drawn + REFRESH_SECONDS:
                    progress.refresh()
                    drawn = time.monotonic()
            case.let_go()
            done.append(case)
    return done


def bench(
    collective: Annotated[str, typer.Argument(help="What to time: all_reduce.")] = "all_reduce",
    ranks: Ranks = 8,
    begin: Annotated[
        list[str] | None, typer.Option("-b", "--minbytes", help="Bytes per rank: 64K, 1M; may be repeated.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("-e", "--maxbytes", help="Sweep from -b to this size, doubling (or -f, -i).")
    ] = None,
    factor: Annotated[float | None, typer.Option("-f", "--stepfactor", help="Factor between sizes.")] = None,
    step: Annotated[str | None, typer.Option("-i", "--stepbytes", help="Bytes between sizes.")] = None,
    algorithm: Annotated[
        list[str] | None,
        typer.Option("-a", "--algorithm", help="A name or FILE.py:FUNCTION; may be repeated; default: all."),
    ] = None,
    dtype: Annotated[str, typer.Option("-d", "--datatype", help=_names(dtypes(), tables.NCCL_DTYPES))] = "float32",
    op: Annotated[str, typer.Option("-o", "--op", help=_names(ops(), tables.NCCL_OPS))] = "sum",
    rounds: Annotated[int, typer.Option(help="Interleaved rounds.", min=1)] = 20,
    nccl: Annotated[
        bool,
        typer.Option("--nccl", help="Print the columns of nccl-tests, for one algorithm."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    plot_file: Annotated[Path | None, typer.Option("--plot", help="Draw to this file: .svg, .png or .pdf.")] = None,
    tune: Annotated[bool, typer.Option("--tune", help="Fit what auto decides by to this machine instead.")] = False,
    freeze: Annotated[bool, typer.Option("--freeze", help="Save what auto decides for -n ranks, too.")] = False,
    save: Annotated[Path | None, typer.Option("--save", help="Where --tune and --freeze write a table.")] = None,
) -> None:
    """Times algorithms beside numpy and the roofline, in the same rounds; every element is checked."""
    if tune or freeze:
        return tuning.tune(ranks, tune, freeze, save)
    if save is not None:
        raise InvalidArgument("--save is where --tune or --freeze writes: pass one of them")
    _check_collective(collective)
    if nccl and as_json:
        raise InvalidArgument("--nccl and --json print different things: pass one of them")
    uses = (False, True) if nccl else (True,)
    chosen = _algorithms(collective, (algorithm or ["auto"]) if nccl else (algorithm or []), ranks, uses)
    if nccl and len(chosen) > 1:
        raise InvalidArgument(f"--nccl prints one algorithm, {len(chosen)} are named: pass -a once")
    dtype = _choice("dtype", dtype, [name for name, *_ in dtypes()], tables.NCCL_DTYPES)
    op = _choice("op", op, [name for name, _ in ops()], tables.NCCL_OPS)
    reduction, all_bytes = Reduction(dtype, op, ranks), _sizes(begin or [], end, factor, step)
    element = reduction.numpy_dtype.itemsize
    if min(all_bytes) < element:
        raise InvalidArgument(f"{min(all_bytes)} bytes are less than one {dtype}: pass at least {element}")
    check_memory(max(all_bytes), ranks, len(chosen))
    if plot_file is not None:
        plot.check(plot_file)
    node = nvcoll.Node(ranks)

    def case(nbytes: int) -> Case:
        new = Case(node, reduction, nbytes)
        for name, chosen_algorithm in chosen.items():
            if nccl:
                out = [np.empty_like(x) for x in new.arrays]
                new.add_algorithm("out of place", chosen_algorithm, out)
                new.add_algorithm("in place", chosen_algorithm)
            else:
                new.add_algorithm(name, chosen_algorithm)
        if not nccl:
            new.add_baselines()
        return new

    cases = _timed(case, all_bytes, rounds)
    if as_json:
        tables.print_json(cases, chosen, rounds)
    elif nccl:
        tables.print_nccl(cases, next(iter(chosen)), rounds)
    else:
        tables.print_table(cases, chosen, rounds)
    if plot_file is not None:
        plot.draw(cases, f"all_reduce, {dtype} {op}, {tables.ranks_and_cores(cases[0])}", plot_file)
        typer.echo(f"drawn to {plot_file}", err=True)
    if any(case.wrong for case in cases):
        raise typer.Exit(1)
