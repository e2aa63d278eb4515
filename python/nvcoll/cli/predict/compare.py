"""``nvcoll compare``: algorithms in virtual time on machines that you do not have, and the fastest one at each size.

`nvcoll.cost.comparison` finds the best protocol and number of tiles for each algorithm and size. The table also
shows the algorithm that NCCL would choose, its predicted time, and the lower bound.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated

import typer

from nvcoll import Algorithm, Error, Fabric, InvalidArgument, Refuted, Schedule, verify
from nvcoll._nvcoll import schedule as schedule_of
from nvcoll.cli import completion, files, formats, hints, progress, sizes
from nvcoll.cli.gathered import gathered
from nvcoll.cli.machines import Conditions, Gpu, Launch, On, machines
from nvcoll.cli.operands import HAS_ROOT
from nvcoll.cost.comparison import LAUNCH, SIZES, Comparison, compare_schedules, too_many_of
from nvcoll.text.tables import print_labelled, print_lines

DEFAULT_COLLECTIVE = "all_reduce"


def _words(names: Sequence[str]) -> list[str]:
    """Returns the names of lists with commas; those in parentheses belong to a name."""
    return [name.strip() for part in names for name in re.split(r",(?![^(]*\))", part) if name.strip()]


def _schedule(spec: str, algorithm: str | Algorithm, collective: str, ranks: int) -> Schedule | str:
    """Builds the schedule of an algorithm, and proves what the user wrote; or says why there is none to compare."""
    try:
        if isinstance(algorithm, str):
            why = too_many_of(collective, algorithm, ranks)
            return why or schedule_of(collective, algorithm, world_size=ranks)
        built = files.schedule_of(spec, algorithm, ranks, None)
        verify(built)
        return built
    except Refuted as violation:
        return f"refuted: {violation}; see {shlex.join(['nvcoll', 'verify', spec, '-n', str(ranks)])}"
    except Error as error:
        return str(error)


def _collective(names: Sequence[str], given: str | None) -> str:
    """Returns the collective; default: of the first file.

    Raises:
        InvalidArgument: no collective is called so.
    """
    meant = given or next((files.algorithm(one).collective for one in names if files.is_spec(one)), DEFAULT_COLLECTIVE)
    if meant not in HAS_ROOT:
        raise InvalidArgument(hints.of_collective(meant, [*HAS_ROOT]))
    return meant


def _flat(one: Comparison) -> Iterator[dict[str, object]]:
    """Yields a row of CSV for each size and algorithm of one machine, with the same keys as JSON has."""
    head = {"collective": one.collective, "machine": one.fabric.name, "world_size": one.fabric.world_size}
    for row in one.rows:
        of_size = {key: value for key, value in row.to_dict().items() if key != "times"}
        for name, time in row.times.items():
            yield {**head, "nbytes": row.nbytes, "algorithm": name, **vars(time), **of_size}


def _simulated(
    one: Fabric,
    collective: str,
    chosen: Mapping[str, tuple[str, str | Algorithm]],
    nbytes: Sequence[int],
    launch: Launch,
    tell: Callable[[str], None],
    conditions: Conditions,
) -> Comparison:
    """Compares the algorithms on one machine, and reports which is built or simulated."""
    schedules = {}
    for at, (column, named) in enumerate(chosen.items(), 1):
        tell(f"{one.name}: {column} is built ({at} of {len(chosen)})")
        schedules[column] = _schedule(*named, collective, one.world_size)
    return compare_schedules(
        one,
        collective,
        schedules,
        nbytes,
        launch,
        lambda name: tell(f"{one.name}: {name} is simulated"),
        conditions.nccl_version,
        conditions.settings,
    )


@gathered
def compare(
    conditions: Conditions,
    algorithms: Annotated[
        list[str] | None,
        typer.Argument(
            help="Names and FILE.py:FUNCTION, separated by commas. Default: all of the collective.",
            autocompletion=completion.algorithms,
        ),
    ] = None,
    on: On = None,
    begin: Annotated[list[str] | None, sizes.begin("1K to 1G")] = None,
    end: sizes.End = None,
    factor: sizes.Factor = None,
    collective: Annotated[
        str | None,
        typer.Option(
            help=f"The collective. Default: from FILE.py:FUNCTION, else {DEFAULT_COLLECTIVE}.",
            callback=hints.collective_name,
            autocompletion=completion.collectives,
        ),
    ] = None,
    gpu: Gpu = None,
    launch: Launch = LAUNCH,
    *,
    printed: formats.Printed,
) -> None:
    """Simulates algorithms on machines. Prints their times, the fastest at each size, and a lower bound.

    Example: nvcoll compare ring,tree,mine.py:star --on hgx-h100 -b 1K -e 1G
    """
    conditions.check()
    names = _words(algorithms or [])
    collective = _collective(names, collective)
    chosen = files.chosen(collective, names)
    nbytes, on_these = sorted(sizes.of(begin, end, factor, SIZES)), machines(on, gpu)
    with progress.line() as tell:
        done = [_simulated(one, collective, chosen, nbytes, launch, tell, conditions) for one in on_these]
    if printed.as_json:
        formats.print_json("compare", {"collective": collective, "machines": [one.to_dict() for one in done]})
    elif printed.as_csv:
        formats.print_csv([row for one in done for row in _flat(one)])
    else:
        for one in done:
            print_lines([*one.lines(), ""])
        words = "* = fastest; ahead = time of the second fastest / time of the fastest; NCCL us = as nvcoll predict"
        print_labelled("columns", words)
        words = "each algorithm runs with its best protocol and number of tiles; all have the same constants"
        print_labelled("", words)
