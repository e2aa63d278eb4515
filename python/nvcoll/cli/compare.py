"""``nvcoll compare``: algorithms in virtual time on machines that you do not have, and the fastest one at each size.

`nvcoll.comparison` finds the best protocol and number of tiles for each algorithm and size. The table also shows the
algorithm that NCCL would choose, its predicted time, and the lower bound.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from nvcoll import Algorithm, Error, Fabric, InvalidArgument, Refuted, Schedule, verify
from nvcoll._nvcoll import algorithms as registry
from nvcoll._nvcoll import schedule as schedule_of
from nvcoll.cli import files, plot, sizes
from nvcoll.cli.fabric import print_table
from nvcoll.cli.operands import HAS_ROOT
from nvcoll.cli.predict import Gpu, Launch, On, machines
from nvcoll.comparison import LAUNCH, Comparison, compare_schedules
from nvcoll.formatting import sized

DEFAULT_SIZES = "1K..1G"
DEFAULT_COLLECTIVE = "all_reduce"
JSON_SCHEMA = "nvcoll.compare/1"

NCCL = ("NCCL would pick", "time", "vs fastest")


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
                return schedule_of(collective, self.name, world_size=ranks)
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
        raise InvalidArgument(f"no collective is called `{wanted}`: choose from {', '.join(HAS_ROOT)}")
    known = [name for owner, name, *_ in registry() if owner == wanted]
    chosen: dict[str, Contender] = {}
    for name in names or known:
        one = mine.get(name)
        if one is not None and one.collective != wanted:
            raise InvalidArgument(f"`{name}` is an algorithm of {one.collective}: {wanted} is compared")
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


def micros(microseconds: float) -> str:
    """Writes a time in microseconds: four digits, and all those before the point."""
    return f"{microseconds:.4g}" if microseconds < 1e4 else f"{microseconds:.0f}"


def summary(one: Comparison) -> str:
    """Says who is the fastest where: ``one_shot up to 32 KiB, two_shot to 1 MiB, ring above``."""
    ranges = one.ranges()
    if len(ranges) == 1:
        return f"{ranges[0].algorithm} at every size"
    first, *middle, last = ranges
    words = [f"{first.algorithm} up to {sized(first.last)}"]
    words += [f"{each.algorithm} to {sized(each.last)}" for each in middle]
    return ", ".join([*words, f"{last.algorithm} above"])


def _rows(one: Comparison) -> Iterator[Sequence[str]]:
    for at, nbytes in enumerate(one.sizes):
        best = one.fastest(at)
        times = {name: of_all[at] for name, of_all in one.times.items()}
        least = times[best].microseconds
        cells = [f"{micros(time.microseconds)}{'*' if name == best else ' '}" for name, time in times.items()]
        others = [time.microseconds for name, time in times.items() if name != best]
        ahead = f"{min(others) / least:.2f}x" if others and least else "-"
        picked: tuple[str, ...] = ("-", "-", "-")
        if not isinstance(one.nccl, str):
            found = one.nccl[at]
            ratio = f"{found.microseconds / least:.2f}x"
            picked = (f"{found.algorithm}/{found.protocol}", micros(found.microseconds), ratio)
        floor = one.floor[at]
        over = f"{least / floor:.2f}" if floor else "-"
        yield sized(nbytes), *cells, f"{best} {times[best].protocol}", ahead, *picked, micros(floor), over


def _trust(one: Comparison) -> str:
    """How the constants are known: on how many such systems what they predict of NCCL was judged."""
    return "not validated" if isinstance(one.nccl, str) else sizes.trusted(one.nccl)


def is_mesh(fabric: Fabric) -> bool:
    """Says whether a GPU is joined to several others directly."""
    gpus = {name for name, kind, *_ in fabric.devices if kind == "gpu"}
    pairs = {(source, target) for source, target, *_ in fabric.links if source in gpus and target in gpus}
    return max(Counter(source for source, _ in pairs).values(), default=0) > 1


def _show(one: Comparison) -> None:
    fabric = one.fabric
    print(f"{fabric.name}   {fabric.title}   {one.collective}, microseconds   constants: {_trust(one)}")
    headings = ("size", *(f"{name} " for name in one.times), "fastest", "ahead", *NCCL, "floor", "x floor")
    print_table(headings, _rows(one), left=("fastest", NCCL[0]))
    for name, why in one.absent.items():
        print(f"not here  {name}: {why}")
    if isinstance(one.nccl, str):
        print(f"NCCL      {one.nccl}")
    if fabric.nodes > 1 or is_mesh(fabric):
        print("note      NCCL lays several rings here and uses every link and card; a schedule of one ring does not")
    print(f"fastest   {summary(one)}\n")


def _of(one: Comparison) -> dict[str, Any]:
    """Returns what JSON has of one machine."""
    rows = []
    for at, nbytes in enumerate(one.sizes):
        picked = None if isinstance(one.nccl, str) else one.nccl[at]
        rows.append(
            {
                "bytes": nbytes,
                "fastest": one.fastest(at),
                "times": {
                    name: {
                        "us": of_all[at].microseconds,
                        "protocol": of_all[at].protocol,
                        "tiles": of_all[at].tiles,
                        "slice_bytes": of_all[at].slice_bytes,
                        "bottleneck": of_all[at].bottleneck,
                    }
                    for name, of_all in one.times.items()
                },
                "nccl_algorithm": picked and picked.algorithm,
                "nccl_protocol": picked and picked.protocol,
                "nccl_us": picked and picked.microseconds,
                "floor_us": one.floor[at],
            }
        )
    ranges = [{"algorithm": each.algorithm, "first": each.first, "last": each.last} for each in one.ranges()]
    fabric = one.fabric
    return {
        "fabric": fabric.name,
        "trust": _trust(one),
        "world_size": fabric.world_size,
        "rows": rows,
        "ranges": ranges,
        "absent": dict(one.absent),
        "why_no_nccl": one.nccl if isinstance(one.nccl, str) else None,
    }


def _panel(one: Comparison) -> plot.Panel:
    curves = [
        plot.Curve(name, [time.microseconds for time in of_all], style={"marker": "."})
        for name, of_all in one.times.items()
    ]
    if not isinstance(one.nccl, str):
        curves.append(plot.Curve("NCCL", [found.microseconds for found in one.nccl], style=plot.STYLES["numpy"]))
    curves.append(plot.Curve("floor", one.floor, style=plot.FLOOR))
    return plot.Panel(f"{one.collective} on {one.fabric.name}", one.sizes, curves)


def compare(
    algorithms: Annotated[
        list[str] | None,
        typer.Argument(help="Names and FILE.py:FUNCTION with commas between; all that are known if none is named."),
    ] = None,
    on: On = "hgx-h100",
    listed: Annotated[
        str | None, typer.Option("--sizes", help=f"As 1K..8G or 64K,1M; default: {DEFAULT_SIZES}.")
    ] = None,
    begin: Annotated[
        str | None, typer.Option("-b", "--minbytes", help="The first size, instead of --sizes: 64K.")
    ] = None,
    end: Annotated[str | None, typer.Option("-e", "--maxbytes", help="The last size of a sweep.")] = None,
    factor: Annotated[
        float | None, typer.Option("-f", "--stepfactor", help="Each size is so many times the last; default: 2.")
    ] = None,
    collective: Annotated[
        str | None, typer.Option(help=f"What they do; default: what a file is of, else {DEFAULT_COLLECTIVE}.")
    ] = None,
    gpu: Gpu = None,
    launch: Launch = LAUNCH,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    plot_file: Annotated[Path | None, typer.Option("--plot", help="Draw to this file: .svg, .png or .pdf.")] = None,
) -> None:
    """Prints how long algorithms take on a machine in virtual time, who is the fastest where, and the floor."""
    names = _words(algorithms or [])
    collective, chosen = contenders(names, collective)
    nbytes, on_these = sizes_of(begin, end, factor, listed), machines(on, gpu)
    if plot_file is not None:
        plot.check(plot_file)
    done = [
        compare_schedules(
            one, collective, {c.column: c.schedule(collective, one.world_size) for c in chosen}, nbytes, launch
        )
        for one in on_these
    ]
    if as_json:
        print(json.dumps({"schema": JSON_SCHEMA, "collective": collective, "machines": [*map(_of, done)]}, indent=2))
    else:
        for one in done:
            _show(one)
        print("* is the fastest at that size, so many times ahead of the next; each algorithm has the protocol and the")
        print("tiles that suit it best there, and all have the same constants; NCCL is that of nvcoll predict")
    if plot_file is not None:
        plot.draw_panels([_panel(one) for one in done], "us", plot_file, is_log=True)
        typer.echo(f"drawn to {plot_file}", err=True)
