"""``nvcoll compare``: algorithms in virtual time on machines that you do not have, and the fastest one at each size.

`nvcoll.cost.comparison` finds the best protocol and number of tiles for each algorithm and size. The table also
shows the algorithm that NCCL would choose, its predicted time, and the lower bound.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from nvcoll import Algorithm, Error, Fabric, InvalidArgument, Refuted, Schedule, verify
from nvcoll._nvcoll import algorithms as registry
from nvcoll._nvcoll import schedule as schedule_of
from nvcoll.cli import files, hints, progress, sizes
from nvcoll.cli.machines import Gpu, Launch, On, machines
from nvcoll.cli.operands import HAS_ROOT
from nvcoll.cost.comparison import LAUNCH, Comparison, compare_schedules, too_many_of
from nvcoll.text.tables import print_labelled

DEFAULT_SIZES = "1K..1G"
DEFAULT_COLLECTIVE = "all_reduce"
JSON_SCHEMA = "nvcoll.compare/1"


def _words(names: Sequence[str]) -> list[str]:
    """Returns the names of lists with commas; those in parentheses belong to a name."""
    return [name.strip() for part in names for name in re.split(r",(?![^(]*\))", part) if name.strip()]


@dataclass(frozen=True)
class Contender:
    """An algorithm as it was named, and by the name that its column has."""

    column: str
    name: str
    mine: Algorithm | None = None

    def schedule(self, collective: str, ranks: int) -> Schedule | str:
        """Builds its schedule, and proves what the user wrote; or says why there is none that can be compared."""
        try:
            if self.mine is None:
                why = too_many_of(collective, self.name, ranks)
                return why or schedule_of(collective, self.name, world_size=ranks)
            built = files.schedule_of(self.name, self.mine, ranks, None)
            verify(built)
            return built
        except Refuted as violation:
            return f"refuted: {violation}; see {shlex.join(['nvcoll', 'verify', self.name, '-n', str(ranks)])}"
        except Error as error:
            return str(error)


def contenders(names: Sequence[str], collective: str | None) -> tuple[str, list[Contender]]:
    """Returns the collective, and its algorithms: all that are known if none is named.

    Raises:
        InvalidArgument: no such collective or algorithm, or one of another collective.
    """
    mine = {name: files.algorithm(name) for name in names if files.is_spec(name)}
    wanted = collective or next((one.collective for one in mine.values()), DEFAULT_COLLECTIVE)
    if wanted not in HAS_ROOT:
        raise InvalidArgument(hints.of_collective(wanted, [*HAS_ROOT]))
    known = [row.name for row in registry() if row.collective == wanted]
    chosen: dict[str, Contender] = {}
    for name in names or known:
        one = mine.get(name)
        if one is not None and one.collective != wanted:
            raise InvalidArgument(f"`{name}` is an algorithm of {one.collective}: pass one of {wanted}")
        if one is None and name not in known:
            choice = f"choose from {', '.join(known)}, or write FILE.py:FUNCTION"
            raise InvalidArgument(f"no {wanted} algorithm is called `{name}`: {choice}")
        column = name if one is None or one.name in (*known, *chosen) else one.name
        chosen[column] = Contender(column, name, one)
    return wanted, [*chosen.values()]


def sizes_of(begin: str | None, end: str | None, factor: float | None, listed: str | None) -> list[int]:
    """Returns the sizes of ``--sizes 1K..8G`` or ``64K,1M``, or of ``-b``, ``-e`` and ``-f``, in order.

    Raises:
        InvalidArgument: both are given, or one that is no size.
    """
    if listed is not None and (begin is not None or end is not None):
        raise InvalidArgument("--sizes says what -b and -e say: pass one of them")
    if begin is not None:
        listed = f"{begin}..{end or begin}"
    elif end is not None:
        raise InvalidArgument("-e ends a sweep: pass -b, where it begins")
    found: set[int] = set()
    for part in (listed or DEFAULT_SIZES).split(","):
        first, dots, last = part.partition("..")
        nbytes = sizes.parse(first)
        found.update(sizes.sweep(nbytes, sizes.parse(last) if dots else nbytes, factor, None))
    return sorted(found)


def is_mesh(fabric: Fabric) -> bool:
    """Says whether a GPU is joined to several others directly."""
    gpus = {name for name, kind, *_ in fabric.devices if kind == "gpu"}
    pairs = {(source, target) for source, target, *_ in fabric.links if source in gpus and target in gpus}
    return max(Counter(source for source, _ in pairs).values(), default=0) > 1


def _accuracy(one: Comparison, launch: Launch) -> str:
    """Returns the accuracy of the predictions for NCCL, whose constants the simulation uses."""
    found = [row.nccl for row in one.rows if row.nccl is not None]
    if not found:
        return "not validated"
    return sizes.accuracy(found, lambda nbytes: one.fabric.predict(one.collective, nbytes, launch=launch))


def _show(one: Comparison, launch: Launch) -> None:
    print(one)
    for name, why in one.absent.items():
        print_labelled("not here", f"{name}: {why}")
    if one.why_no_nccl is not None:
        print_labelled("NCCL", one.why_no_nccl)
    if one.fabric.nodes > 1 or is_mesh(one.fabric):
        words = "NCCL lays several rings here and uses every link and card; a schedule of one ring does not"
        print_labelled("note", words)
    print_labelled("accuracy", f"of NCCL's times: {_accuracy(one, launch)}; algorithms are simulated, not validated")
    print_labelled("fastest", one.summary())
    print()


def _of(one: Comparison, launch: Launch) -> dict[str, Any]:
    """Returns the JSON object of one machine."""
    rows = [
        {
            "bytes": row.nbytes,
            "fastest": row.fastest,
            "times": {
                name: {
                    "us": time.time_us,
                    "protocol": time.protocol,
                    "tiles": time.tiles,
                    "slice_bytes": time.slice_bytes,
                    "bottleneck": time.bottleneck,
                }
                for name, time in row.times.items()
            },
            "nccl_algorithm": row.nccl and row.nccl.algorithm,
            "nccl_protocol": row.nccl and row.nccl.protocol,
            "nccl_us": row.nccl_us,
            "floor_us": row.floor_us,
        }
        for row in one.rows
    ]
    ranges = [{"algorithm": each.algorithm, "first": each.first, "last": each.last} for each in one.ranges()]
    return {
        "fabric": one.fabric.name,
        "trust": _accuracy(one, launch),
        "world_size": one.fabric.world_size,
        "rows": rows,
        "ranges": ranges,
        "absent": dict(one.absent),
        "why_no_nccl": one.why_no_nccl,
    }


def _simulated(
    one: Fabric,
    collective: str,
    chosen: Sequence[Contender],
    nbytes: Sequence[int],
    launch: Launch,
    tell: Callable[[str], None],
) -> Comparison:
    """Compares the algorithms on one machine, and tells which is built or simulated."""
    schedules = {}
    for at, contender in enumerate(chosen, 1):
        tell(f"{one.name}: {contender.column} is built ({at} of {len(chosen)})")
        schedules[contender.column] = contender.schedule(collective, one.world_size)
    return compare_schedules(
        one, collective, schedules, nbytes, launch, lambda name: tell(f"{one.name}: {name} is simulated")
    )


def compare(
    algorithms: Annotated[
        list[str] | None,
        typer.Argument(help="Names and FILE.py:FUNCTION, separated by commas. Default: all of the collective."),
    ] = None,
    on: On = None,
    listed: Annotated[
        str | None, typer.Option("--sizes", help=f"Sizes: 1K..8G or 64K,1M; default: {DEFAULT_SIZES}.")
    ] = None,
    begin: Annotated[
        str | None, typer.Option("-b", "--minbytes", help="The first size, instead of --sizes: 64K.")
    ] = None,
    end: Annotated[str | None, typer.Option("-e", "--maxbytes", help="The last size of a sweep.")] = None,
    factor: Annotated[
        float | None, typer.Option("-f", "--stepfactor", help="The factor between sizes; default: 2.")
    ] = None,
    collective: Annotated[
        str | None,
        typer.Option(
            help=f"The collective. Default: that of FILE.py:FUNCTION, else {DEFAULT_COLLECTIVE}.",
            callback=hints.collective_name,
        ),
    ] = None,
    gpu: Gpu = None,
    launch: Launch = LAUNCH,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Simulates algorithms on machines. Prints their times, the fastest at each size, and a lower bound.

    Example: nvcoll compare ring,tree,mine.py:star --on hgx-h100 --sizes 1K..1G
    """
    names = _words(algorithms or [])
    collective, chosen = contenders(names, collective)
    nbytes, on_these = sizes_of(begin, end, factor, listed), machines(on, gpu)
    with progress.line() as tell:
        done = [_simulated(one, collective, chosen, nbytes, launch, tell) for one in on_these]
    if as_json:
        found = [_of(one, launch) for one in done]
        print(json.dumps({"schema": JSON_SCHEMA, "collective": collective, "machines": found}, indent=2))
    else:
        for one in done:
            _show(one, launch)
        words = "* and fastest = the shortest time; ahead = time of the second over it; NCCL us = as nvcoll predict"
        print_labelled("columns", words)
        words = "each algorithm runs with its best protocol and number of tiles; all have the same constants"
        print_labelled("", words)
