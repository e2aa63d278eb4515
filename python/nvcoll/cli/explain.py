"""``nvcoll explain``: which algorithm ``auto`` takes for a call, and why: estimates beside measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

import nvcoll
from nvcoll import InvalidArgument
from nvcoll._nvcoll import algorithms as registry
from nvcoll._nvcoll import auto_candidates, collectives, cost_model, dtypes
from nvcoll.cli import sizes
from nvcoll.cli.operands import HAS_ROOT, root_of
from nvcoll.cli.rounds import MODES, Call, measure
from nvcoll.cli.schedules import OutOfPlace, Ranks
from nvcoll.cli.timing import Spread, check_memory, layout_of
from nvcoll.formatting import aligned, counted, sized

DEFAULT_SIZE = "64K"


@dataclass(frozen=True)
class Estimate:
    """What the cost model says of one candidate."""

    algorithm: str
    moved_bytes: float
    waits: int
    steps: int
    terms: list[float]
    seconds: float


def estimates(node: nvcoll.Node, mode: str, call: Call) -> tuple[str, str, list[Estimate]]:
    """Returns what auto takes, why, and what it expects of each candidate."""
    path, by_rank = MODES[mode]
    chosen, why, rows = node.estimates(
        call.collective,
        call.count,
        call.dtype,
        root=call.root if call.has_root else None,
        path=path,
        in_place=call.in_place,
        by_rank=by_rank,
    )
    return chosen, why, [Estimate(*row) for row in rows]


def _bytes(nbytes: float) -> str:
    return sized(round(nbytes)) if nbytes < 1024 else f"{nbytes / 1024:.0f} KiB"


def _micros(seconds: float) -> str:
    return f"{seconds * 1e6:.3g}" if seconds < 1e-3 else f"{seconds * 1e6:.0f}"


def _check(collective: str, dtype: str) -> int:
    """Returns the bytes of an element."""
    known = [name for name in HAS_ROOT if name != "barrier"]
    if collective not in known:
        raise InvalidArgument(f"no collective is called `{collective}`: choose from {', '.join(known)}")
    elements = {name: nbytes for name, nbytes, *_ in dtypes()}
    if dtype not in elements:
        raise InvalidArgument(f"no dtype is called `{dtype}`: choose from {', '.join(elements)}")
    return elements[dtype]


def explain(
    collective: Annotated[str | None, typer.Argument(help="A collective.")] = None,
    size: Annotated[
        str, typer.Option("-b", "--bytes", help="Bytes of a rank's longer buffer: 64K, 1M.")
    ] = DEFAULT_SIZE,
    ranks: Ranks = 8,
    path: Annotated[str, typer.Option(help="mapped or staged.")] = "mapped",
    by_rank: Annotated[bool, typer.Option("--by-rank", help="Every rank calls for itself, as in Node.run.")] = False,
    root: Annotated[int | None, typer.Option(help="The root, if there is one.")] = None,
    dtype: Annotated[str, typer.Option("-d", "--datatype", "--dtype", help="A dtype.")] = "float32",
    out_of_place: OutOfPlace = False,
    rounds: Annotated[int, typer.Option(help="Interleaved rounds; 0: only estimate.", min=0)] = 20,
) -> None:
    """Prints what auto takes for a call and why: what each candidate moves, its estimate and its time."""
    if collective is None:
        raise InvalidArgument(f"name a collective ({', '.join(name for name, *_ in collectives())})")
    if collective == "barrier":
        known = next(name for owner, name, *_ in registry() if owner == collective)
        print(f"{collective}, {counted(ranks, 'rank')}")
        print(f"auto takes {known}: it is the only algorithm, and no data is moved; see nvcoll show {collective}")
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
    seconds = {}
    if candidates and rounds:
        check_memory(layout_of(collective, ranks, call.count, call.root), (call.in_place,), 2, element)
        timed = measure(node, mode, call, [candidate.algorithm for candidate in candidates], rounds)
        seconds = {name: Spread.of(times) for name, times in timed.items()}
    place = "in place" if call.in_place else "out of place"
    how = "every rank calls for itself" if by_rank else "one caller"
    size = sized(call.count * element)
    print(f"{collective} {size} {dtype}, {place}, {path}, {how}, {counted(ranks, 'rank')}")
    print(f"auto takes {chosen}: {why}\n")
    if candidates:
        print_table(candidates, chosen, seconds)
    else:
        print(
            f"no estimates: there are more than {cost_model()[2]} ranks, and counting every candidate would take long"
        )
    others = [n for owner, n, *_ in registry() if owner == collective and n not in auto_candidates(collective)]
    print(f"\nby name only, since their bits are others: {', '.join(others) or 'none'}")
    print(f"table: {node.tuning['machine']}")


def print_table(rows: Sequence[Estimate], chosen: str, seconds: dict[str, Spread]) -> None:
    """Prints one line per candidate; the one that auto takes has an arrow."""
    table = [("candidate", "moved", "waits", "steps", "estimate us", "measured us", "estimate/measured", "")]
    for row in rows:
        spread = seconds.get(row.algorithm)
        measured = "-" if spread is None else _micros(spread.median)
        ratio = "-" if spread is None else f"{row.seconds / spread.median:.2f}"
        mark = "<- auto" if row.algorithm == chosen else ""
        counts = (_bytes(row.moved_bytes), str(row.waits), str(row.steps))
        table.append((row.algorithm, *counts, _micros(row.seconds), measured, ratio, mark))
    print("\n".join(aligned(table, left=(0,))))
