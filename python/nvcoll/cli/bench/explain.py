"""``nvcoll explain``: the choice of ``auto`` for a call, and its reason: the estimate of each candidate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

import nvcoll
from nvcoll import InvalidArgument
from nvcoll._nvcoll import AutoChoice, CandidateRow, auto_candidates, collectives, cost_model, dtypes, machine
from nvcoll._nvcoll import algorithms as registry
from nvcoll.cli import completion, formats, hints, sizes
from nvcoll.cli.bench.rounds import MODES, Call
from nvcoll.cli.gathered import gathered
from nvcoll.cli.operands import HAS_ROOT, root_of
from nvcoll.cli.schedules import OutOfPlace, Ranks
from nvcoll.text.formatting import counted, number, sized
from nvcoll.text.tables import print_labelled, print_table

DEFAULT_SIZE = "64K"


def estimates(node: nvcoll.Node, mode: str, call: Call) -> AutoChoice:
    """Returns the choice of auto, its reason, and the estimate of each candidate."""
    path, by_rank = MODES[mode]
    return node.estimates(
        call.collective,
        call.count,
        call.dtype,
        root=call.root if HAS_ROOT[call.collective] else None,
        path=path,
        in_place=call.in_place,
        by_rank=by_rank,
    )


def _bytes(nbytes: float) -> str:
    return sized(round(nbytes)) if nbytes < 1024 else f"{nbytes / 1024:.0f} KiB"


def _micros(seconds: float) -> str:
    return number(seconds * 1e6)


def _check(collective: str, dtype: str) -> int:
    """Returns the bytes of an element."""
    known = [name for name in HAS_ROOT if name != "barrier"]
    if collective not in known:
        raise InvalidArgument(hints.of_collective(collective, known))
    elements = {row.name: row.nbytes for row in dtypes()}
    if dtype not in elements:
        raise InvalidArgument(f"no dtype is called `{dtype}`: choose from {', '.join(elements)}")
    return elements[dtype]


@gathered
def explain(
    collective: Annotated[
        str | None,
        typer.Argument(help="A collective.", callback=hints.collective_name, autocompletion=completion.collectives),
    ] = None,
    size: Annotated[str, typer.Option("-b", "--bytes", help="Size of a rank's longer buffer: 64K, 1M.")] = DEFAULT_SIZE,
    ranks: Ranks = 8,
    path: Annotated[str, typer.Option(help="The path: mapped or staged.")] = "mapped",
    by_rank: Annotated[bool, typer.Option("--by-rank", help="Each rank makes the call, as in Node.run.")] = False,
    root: Annotated[int | None, typer.Option(help="The root, if there is one; default: 0.")] = None,
    dtype: Annotated[str, typer.Option("-d", "--datatype", "--dtype", help="The dtype of the elements.")] = "float32",
    out_of_place: OutOfPlace = False,
    *,
    printed: formats.Printed,
) -> None:
    """Prints the algorithm that auto chooses for a call, and why: bytes, waits and estimate of each candidate.

    Example: nvcoll explain all_gather -b 64K -n 8
    """
    if collective is None:
        raise InvalidArgument(f"name a collective ({', '.join(row.name for row in collectives())})")
    if collective == "barrier":
        known = next(row.name for row in registry() if row.collective == collective)
        if printed.as_json or printed.as_csv:
            raise InvalidArgument("barrier has one algorithm, and no data is moved: leave out --json and --csv")
        print(f"{collective}, {counted(ranks, 'rank')}")
        print(f"auto chooses {known}: it is the only algorithm, and no data is moved; see nvcoll show {collective}")
        return
    element, root_rank = _check(collective, dtype), root_of(collective, ranks, root)
    if path not in ("mapped", "staged"):
        raise InvalidArgument(f"no path is called `{path}`: choose from mapped, staged")
    if by_rank and path == "staged":
        raise InvalidArgument("--by-rank is for mapped ranks: staged calls are by rank whoever makes them")
    mode = "staged" if path == "staged" else "ranks" if by_rank else "tile"
    call = Call(collective, sizes.parse(size) // element, ranks, dtype, not out_of_place, root_rank)
    node = nvcoll.Node(ranks)
    chosen, why, candidates = estimates(node, mode, call)
    if printed.as_csv:
        return formats.print_csv([_row(one) for one in candidates])
    others = [
        row.name for row in registry() if row.collective == collective and row.name not in auto_candidates(collective)
    ]
    if printed.as_json:
        asked = {"collective": collective, "world_size": ranks, "nbytes": call.count * element, "dtype": dtype}
        asked |= {"root": call.root if HAS_ROOT[collective] else None, "in_place": call.in_place, "path": path}
        found = {"by_rank": by_rank, "algorithm": chosen, "why": why, "candidates": [_row(one) for one in candidates]}
        tuned = str(node.tuning["machine"])
        found |= {"by_name_only": others, "tuned_on": tuned, "is_of_this_cpu": is_of_this_cpu(tuned)}
        return formats.print_json("explain", asked | found)
    how = "every rank calls for itself" if by_rank else "one caller"
    place = "in place" if call.in_place else "out of place"
    size = sized(call.count * element)
    print_labelled("", f"{collective} {size} {dtype}, {place}, {path}, {how}, {counted(ranks, 'rank')}", label=0)
    print_labelled("", f"auto chooses {chosen}: {why}", label=0)
    print()
    if candidates:
        print_candidates(candidates, chosen)
    else:
        most = cost_model().most_ranks
        words = f"no estimates: with more than {most} ranks it would take long to count every candidate"
        print_labelled("", words, label=0)
    print()
    print_labelled("", f"by name only, since their bits differ: {', '.join(others) or 'none'}", label=0)
    _show_tuning(str(node.tuning["machine"]))


def _row(one: CandidateRow) -> dict[str, Any]:
    """Returns a candidate for JSON and CSV."""
    counts = {"moved_bytes": one.moved_bytes, "waits": one.waits, "steps": one.steps}
    return {"algorithm": one.algorithm, **counts, "estimate_us": one.seconds * 1e6}


def _show_tuning(tuned: str) -> None:
    """Prints on which processor the estimates were fitted, and what to do if it is another one."""
    print_labelled("", f"table: {tuned}", label=0)
    if not is_of_this_cpu(tuned):
        here = machine()["cpu"] or "unknown CPU"
        words = f"the tuning table is of another CPU than this one ({here}), so estimates may be off: "
        words += "nvcoll bench --tune --save tuning.toml measures this one, NVCOLL_TUNING=tuning.toml uses the result"
        print_labelled("note", words)


def is_of_this_cpu(tuned: str) -> bool:
    """Says whether a tuning table was fitted on this model of processor."""
    cpu = machine()["cpu"]
    return cpu is not None and tuned.startswith(f"{cpu},")


def print_candidates(rows: Sequence[CandidateRow], chosen: str) -> None:
    """Prints one line per candidate; the choice of auto has an arrow."""
    headings = ("candidate", "moved", "waits", "steps", "estimate us", "")
    table = []
    for row in rows:
        mark = "<- auto" if row.algorithm == chosen else ""
        counts = (_bytes(row.moved_bytes), str(row.waits), str(row.steps))
        table.append((row.algorithm, *counts, _micros(row.seconds), mark))
    print_table(headings, table, left=("candidate",), optional=("steps",))
