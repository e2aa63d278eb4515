"""``nvcoll algorithms``: the registry with what each algorithm costs; ``--markdown`` writes ``docs/ALGORITHMS.md``.

Nothing here knows an algorithm or a collective by name: rows come from the registry, costs from the schedules.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

import nvcoll
from nvcoll import InvalidArgument
from nvcoll._nvcoll import algorithms as registry
from nvcoll._nvcoll import collectives
from nvcoll.cli import hints
from nvcoll.cli.schedules import Ranks
from nvcoll.text.formatting import counted
from nvcoll.text.tables import print_labelled, print_table

PAGE_RANKS = 8
"""The world size of the page. Chosen: a node."""

JSON_SCHEMA = "nvcoll.algorithms/1"

PATHS = ("mapped", "staged")

PAGE = """\
# Algorithms

Written by `nvcoll algorithms --markdown > docs/ALGORITHMS.md` from the registry; do not edit. The first algorithm of
each collective is its default.

| column | meaning |
|---|---|
| order | [order of the reduction](reproducibility.md#three-orders) |
| bytes | bytes that the busiest rank reads and writes, divided by the bytes of its longer buffer |
| waits | waits for other ranks in the longest chain of steps |

Bytes and waits are counted for 8 ranks, out of place, on mapped memory. `nvcoll algorithms COLLECTIVE -n RANKS` prints
them for other calls.

{sections}
"""


@dataclass(frozen=True)
class Cost:
    """What a schedule costs; ``moved`` and ``busiest`` in units of the longer buffer of a rank, None without data."""

    moved: float | None
    busiest: float | None
    waits: int
    steps: int

    @classmethod
    def of(cls, schedule: nvcoll.Schedule) -> Cost:
        """Counts."""
        moved, waits = schedule.cost()
        if schedule.chunks == 0:
            return cls(None, None, waits, schedule.step_count)
        return cls(moved, schedule.moved_by_busiest(), waits, schedule.step_count)

    @property
    def words(self) -> str:
        """What a rank moves: ``2.00``; ``4.38 (5.50)`` where the busiest moves more; ``-`` without data."""
        if self.moved is None or self.busiest is None:
            return "-"
        mean, most = f"{self.moved:.2f}", f"{self.busiest:.2f}"
        return mean if mean == most else f"{mean} ({most})"


@dataclass(frozen=True)
class Entry:
    """A line of the registry."""

    collective: str
    algorithm: str
    order: str
    summary: str
    source: str

    def costs(self, ranks: int) -> dict[tuple[str, bool], Cost]:
        """Returns the cost by path and by whether it is in place; with rank 0 as the root, where there is one."""

        def cost(path: str, in_place: bool) -> Cost:
            schedule = nvcoll.schedule(self.collective, self.algorithm, world_size=ranks, path=path, in_place=in_place)
            return Cost.of(schedule)

        can_be_in_place = next(row.can_be_in_place for row in collectives() if row.name == self.collective)
        aliasings = (True, False) if can_be_in_place else (False,)
        return {(path, in_place): cost(path, in_place) for path in PATHS for in_place in aliasings}


def entries(collective: str | None = None) -> list[Entry]:
    """Returns the registry, or its lines for one collective.

    Raises:
        InvalidArgument: there is no such collective.
    """
    known = [row.name for row in collectives()]
    if collective is not None and collective not in known:
        raise InvalidArgument(hints.of_collective(collective, known))
    all_entries = [Entry(*row) for row in registry()]
    wanted = known if collective is None else [collective]
    return [entry for name in wanted for entry in all_entries if entry.collective == name]


def calls(costs: Sequence[dict[tuple[str, bool], Cost]]) -> Iterator[tuple[str, list[Cost]]]:
    """Yields each way of calling with its costs at some world sizes; in and out of place are one where they agree."""
    for path in PATHS:
        inside, outside = (
            [each[path, in_place] for each in costs if (path, in_place) in each] for in_place in (True, False)
        )
        if inside in (outside, []):
            yield path, outside
        else:
            yield f"{path}, in place", inside
            yield f"{path}, out of place", outside


def _print_table(chosen: Sequence[Entry], ranks: int) -> None:
    moved = "what a rank reads and writes, in units of its longer buffer: mean (busiest)"
    print_labelled("", f"{counted(ranks, 'rank')}; moved: {moved}", label=0)
    headings = ("collective", "algorithm", "order", "call", "moved", "waits", "steps", "idea; source")
    rows = []
    for entry in chosen:
        name = (entry.collective, entry.algorithm, entry.order)
        idea = f"{entry.summary}; {entry.source}"
        for number, (call, (cost,)) in enumerate(calls([entry.costs(ranks)])):
            numbers = (cost.words, str(cost.waits), str(cost.steps))
            rows.append((*name, call, *numbers, idea if number == 0 else ""))
    left = ("collective", "algorithm", "order", "call", "moved", "idea; source")
    print_table(headings, rows, left=left, optional=("idea; source", "steps", "order"))


def _document(chosen: Sequence[Entry], ranks: int) -> dict[str, Any]:
    summaries = {row.name: row.summary for row in collectives()}
    return {
        "schema": JSON_SCHEMA,
        "ranks": ranks,
        "algorithms": [
            {
                **asdict(entry),
                "contract": summaries[entry.collective],
                "costs": [
                    {"path": path, "in_place": in_place, **asdict(cost)}
                    for (path, in_place), cost in entry.costs(ranks).items()
                ],
            }
            for entry in chosen
        ],
    }


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _section(collective: str, summary: str, chosen: Sequence[Entry]) -> str:
    reduces = any(entry.order != "none" for entry in chosen)
    rows = []
    for entry in chosen:
        cost = entry.costs(PAGE_RANKS)["mapped", False]
        moved = "-" if cost.busiest is None else f"{cost.busiest:.2f}"
        order = (entry.order,) if reduces else ()
        rows.append(_row(f"`{entry.algorithm}`", *order, moved, str(cost.waits), f"{entry.summary} ({entry.source})"))
    heads = ("algorithm", *(("order",) if reduces else ()), "bytes", "waits", "idea (source)")
    ruled = _row(*heads) + "\n" + "|---" * len(heads) + "|"
    return "\n".join([f"## {collective}\n", f"{summary[0].upper()}{summary[1:]}.\n", ruled, *rows])


def page() -> str:
    """Writes ``docs/ALGORITHMS.md``."""
    sections = [_section(row.name, row.summary, entries(row.name)) for row in collectives()]
    return PAGE.format(sections="\n\n".join(sections))


def algorithms(
    collective: Annotated[
        str | None, typer.Argument(help="Only this collective.", callback=hints.collective_name)
    ] = None,
    ranks: Ranks = 8,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print the page docs/ALGORITHMS.md.")] = False,
) -> None:
    """Prints every algorithm with its order, the bytes that it moves, its waits, its idea and its source.

    Example: nvcoll algorithms all_reduce -n 8
    """
    if as_markdown:
        if as_json or collective is not None:
            raise InvalidArgument("--markdown prints the whole page: leave out the collective and --json")
        print(page(), end="")
        return
    chosen = entries(collective)
    if as_json:
        print(json.dumps(_document(chosen, ranks)))
    else:
        _print_table(chosen, ranks)
