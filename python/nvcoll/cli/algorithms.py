"""``nvcoll algorithms``: the registry with what each algorithm costs.

Nothing here knows an algorithm or a collective by name: rows come from the registry, costs from the schedules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

import nvcoll
from nvcoll import InvalidArgument
from nvcoll._nvcoll import AlgorithmRow, collectives
from nvcoll._nvcoll import algorithms as registry
from nvcoll.cli import completion, formats, hints
from nvcoll.cli.gathered import gathered
from nvcoll.cli.operands import CAN_BE_IN_PLACE
from nvcoll.cli.schedules import Ranks
from nvcoll.text.formatting import counted
from nvcoll.text.tables import print_labelled, print_table

PATHS = ("mapped", "staged")


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


def costs_of(row: AlgorithmRow, ranks: int) -> dict[tuple[str, bool], Cost]:
    """Returns the cost by path and by whether it is in place; with rank 0 as the root, where there is one."""

    def cost(path: str, in_place: bool) -> Cost:
        return Cost.of(nvcoll.schedule(row.collective, row.name, world_size=ranks, path=path, in_place=in_place))

    aliasings = (True, False) if CAN_BE_IN_PLACE[row.collective] else (False,)
    return {(path, in_place): cost(path, in_place) for path in PATHS for in_place in aliasings}


def rows_of(collective: str | None) -> list[AlgorithmRow]:
    """Returns the registry, or its rows for one collective.

    Raises:
        InvalidArgument: there is no such collective.
    """
    known = [row.name for row in collectives()]
    if collective is not None and collective not in known:
        raise InvalidArgument(hints.of_collective(collective, known))
    wanted = known if collective is None else [collective]
    return [row for name in wanted for row in registry() if row.collective == name]


def _print_table(chosen: Sequence[AlgorithmRow], ranks: int) -> None:
    moved = "what a rank reads and writes, in units of its longer buffer: mean (busiest)"
    print_labelled("", f"{counted(ranks, 'rank')}; moved: {moved}", label=0)
    headings = ("collective", "algorithm", "order", "call", "moved", "waits", "steps", "idea; source")
    rows = []
    for row in chosen:
        name = row.collective, row.name, row.order
        idea = f"{row.summary}; {row.source}"
        for (path, in_place), cost in costs_of(row, ranks).items():
            numbers = (cost.words, str(cost.waits), str(cost.steps))
            rows.append((*name, f"{path}, {'in' if in_place else 'out of'} place", *numbers, idea))
            idea = ""
    left = ("collective", "algorithm", "order", "call", "moved", "idea; source")
    print_table(headings, rows, left=left, optional=("idea; source", "steps", "order"))


def _document(chosen: Sequence[AlgorithmRow], ranks: int) -> dict[str, Any]:
    summaries = {row.name: row.summary for row in collectives()}
    return {
        "world_size": ranks,
        "algorithms": [
            {
                "collective": row.collective,
                "algorithm": row.name,
                "order": row.order,
                "summary": row.summary,
                "source": row.source,
                "contract": summaries[row.collective],
                "costs": [
                    {"path": path, "in_place": in_place, **asdict(cost)}
                    for (path, in_place), cost in costs_of(row, ranks).items()
                ],
            }
            for row in chosen
        ],
    }


@gathered
def algorithms(
    collective: Annotated[
        str | None,
        typer.Argument(
            help="Only this collective.", callback=hints.collective_name, autocompletion=completion.collectives
        ),
    ] = None,
    ranks: Ranks = 8,
    *,
    printed: formats.Printed,
) -> None:
    """Prints every algorithm with its order, the bytes that it moves, its waits, its idea and its source.

    Example: nvcoll algorithms all_reduce -n 8
    """
    chosen = rows_of(collective)
    if printed.as_json:
        formats.print_json("algorithms", _document(chosen, ranks))
    elif printed.as_csv:
        rows = _document(chosen, ranks)["algorithms"]
        heads = [{key: row[key] for key in row if key not in ("costs", "contract")} for row in rows]
        formats.print_csv(
            [
                {"world_size": ranks} | head | cost
                for head, row in zip(heads, rows, strict=True)
                for cost in row["costs"]
            ]
        )
    else:
        _print_table(chosen, ranks)
