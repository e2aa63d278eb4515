"""How wide the 90 % interval of a prediction must be, from how far others were off.

Each row was predicted by constants that were fitted without its family. The factor of a cell (class of machines,
all_reduce or others, band of sizes) is a quantile of its |log(measured / predicted)|, systems weighing equal. Which
quantile, a jackknife says: each family is left out in turn, and the least level is taken at which the quantile of the
others holds 90 % of the rows of a left-out system, on average over systems. With few systems that is a higher one
than 90 %, which is what their small number costs. Quantiles are interpolated.

A cell of fewer than nine systems is at least as wide as its scope (one node, a rack, several nodes), since even the
largest residual of eight holds another only 8 times of 9. A scope speaks for classes that nobody measured: its classes
weigh equal, and the jackknife leaves out a class with all of its systems. A cell of fewer than five systems is not
validated: it borrows the wider of its scope and of the other collectives of its class. Where a scope has one class
only, it borrows the widest of all. An interval says on how many systems of its own cell it stands; :func:`covered`
judges those that stand on their own apart from those that are borrowed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from nvcoll.text.formatting import counted

from judging import BANDS, Judged, Key, Prediction, Row, in_order

FEWEST_SYSTEMS = 5
"""Chosen: a cell of fewer systems is not validated."""

ENOUGH_SYSTEMS = 9
"""The fewest systems whose largest residual holds 90 % of what another would have: 9 of 10, if all are alike."""

PART = 0.9
"""What part of measurements an interval is to hold."""

KINDS = ("all_reduce", "others")

LEVELS = np.linspace(PART, 1.0, 41)
"""Of quantiles: those that a jackknife tries."""

Residual = tuple[str, str, float]
"""What weighs as one, what is left out with it, |log(measured / predicted)|: system and family; for a scope, the class
twice."""

Cell = tuple[str, str, str]
"""Class or scope, kind of collective, band."""


def kind(collective: str) -> str:
    """Returns under which name a collective is judged."""
    return KINDS[collective != KINDS[0]]


def quantile(residuals: Sequence[Residual]) -> float:
    """Returns what residuals of 90 % of other systems' rows should not exceed; all of them where no level suffices."""
    held: dict[str, list[np.ndarray]] = defaultdict(list)
    for family in {family for _, family, _ in residuals}:
        others = [residual for residual in residuals if residual[1] != family]
        if not others:
            continue
        most = _quantiles(others)
        for system, where, size in residuals:
            if where == family:
                held[system].append(size <= most)
    parts = np.mean([np.mean(rows, axis=0) for rows in held.values()], axis=0) if held else np.zeros(len(LEVELS))
    enough = np.flatnonzero(parts >= PART - 1e-9)
    return float(_quantiles(residuals)[enough[0] if len(enough) else -1])


def _quantiles(residuals: Sequence[Residual]) -> np.ndarray:
    """The quantiles of all levels, systems weighing equal; between two residuals they are drawn straight."""
    counts: dict[str, int] = defaultdict(int)
    for system, *_ in residuals:
        counts[system] += 1
    sizes, weights = np.array(sorted((size, 1 / counts[system]) for system, _, size in residuals)).T
    reached = np.cumsum(weights)
    most: np.ndarray = np.interp(LEVELS, (reached - weights / 2) / reached[-1], sizes)
    return most


@dataclass(frozen=True)
class Widths:
    """The factors that follow from some residuals: a class's ``own``, and what its scope says of other classes."""

    own: Mapping[Cell, float]
    scopes: Mapping[Cell, float]
    systems: Mapping[Cell, int]

    @classmethod
    def of(cls, judged: Iterable[Judged]) -> Widths:
        """Measures them."""
        classes: dict[Cell, list[Residual]] = defaultdict(list)
        scopes: dict[Cell, list[Residual]] = defaultdict(list)
        members: dict[Cell, set[str]] = defaultdict(set)
        for item in judged:
            row, system = item.row, item.row.system
            size = abs(math.log(row.time_us / item.prediction.time_us))
            place, owner = (kind(row.collective), row.band), system.fabric_class
            classes[owner, *place].append((system.system_id, system.family, size))
            scopes[system.scope, *place].append((owner, owner, size))
            members[owner, *place].add(system.system_id)
        own = {cell: found for cell, found in classes.items() if len(members[cell]) >= FEWEST_SYSTEMS}
        several = {cell: found for cell, found in scopes.items() if len({owner for owner, *_ in found}) > 1}
        return cls(_factors(own), _factors(several), {cell: len(found) for cell, found in members.items()})

    def stands_on(self, fabric_class: str, of: str, band: str) -> int:
        """Returns on how many systems the factor of a cell stands; 0 if it is borrowed."""
        cell = fabric_class, of, band
        return self.systems[cell] if cell in self.own else 0

    def factor(self, fabric_class: str, scope: str, of: str, band: str) -> float:
        """Returns the factor of a cell, its own or what it borrows."""
        systems = self.stands_on(fabric_class, of, band)
        own = max(self.own.get((fabric_class, like, band), 0.0) for like in ((of,) if systems else KINDS))
        if systems >= ENOUGH_SYSTEMS:
            return own
        near = max(own, self.scopes.get((scope, of, band), 0.0))
        return near or max((factor for (_, _, at), factor in self._all() if at == band), default=math.e)

    def _all(self) -> Iterable[tuple[Cell, float]]:
        """Every factor with its cell."""
        return [*self.own.items(), *self.scopes.items()]


def _factors(cells: Mapping[Cell, Sequence[Residual]]) -> dict[Cell, float]:
    """The factor of each cell."""
    return {cell: math.exp(quantile(found)) for cell, found in cells.items()}


def with_intervals(judged: Sequence[Judged]) -> list[Judged]:
    """Gives each prediction the interval that follows from the other families."""
    families = {item.row.system.family for item in judged}
    widths = {
        family: Widths.of(item for item in judged if item.row.system.family != family) for family in sorted(families)
    }
    bounded = []
    for item in judged:
        row, system = item.row, item.row.system
        known, of = widths[system.family], kind(row.collective)
        factor = known.factor(system.fabric_class, system.scope, of, row.band)
        time, systems = item.prediction.time_us, known.stands_on(system.fabric_class, of, row.band)
        bounded.append(Judged(row, Prediction(time, time / factor, time * factor, systems)))
    return bounded


class Covered(NamedTuple):
    """How well the intervals of a cell hold what was measured, systems weighing equal.

    ``systems`` were measured. For ``own`` of them the interval stood on five others of the cell or more, for
    ``borrowed`` it did not; such a part of their rows lies inside.
    """

    systems: int
    own: int
    own_part: float | None
    borrowed: int
    borrowed_part: float | None

    @property
    def is_validated(self) -> bool:
        """Whether predictions of the cell call themselves validated."""
        return self.systems >= FEWEST_SYSTEMS


def covered(judged: Iterable[Judged], by: Callable[[Row], Key]) -> dict[Key, Covered]:
    """Says of each cell how well its intervals hold; ``by`` names the cell of a row."""
    cells: dict[Key, dict[str, list[Judged]]] = defaultdict(lambda: defaultdict(list))
    for item in judged:
        if item.covered is not None:
            cells[by(item.row)][item.row.system.system_id].append(item)
    return {name: _covered(cells[name]) for name in sorted(cells, key=in_order)}


def _covered(found: Mapping[str, Sequence[Judged]]) -> Covered:
    """Averages over systems; one of which some rows have an interval of their own, and others not, is in both parts."""
    parts: dict[bool, list[float]] = {True: [], False: []}
    for rows in found.values():
        for is_own, inside in parts.items():
            held = [bool(item.covered) for item in rows if (item.prediction.systems > 0) == is_own]
            if held:
                inside.append(float(np.mean(held)))
    own, borrowed = (float(np.mean(parts[is_own])) if parts[is_own] else None for is_own in (True, False))
    return Covered(len(found), len(parts[True]), own, len(parts[False]), borrowed)


def cell_of(row: Row) -> Key:
    """The cell of a row: class, kind of collective, band."""
    return row.system.fabric_class, kind(row.collective), row.band


def validated(judged: Sequence[Judged]) -> list[Judged]:
    """Returns what lies in cells that call themselves validated and has an interval that stands on its own cell."""
    cells = covered(judged, cell_of)
    return [item for item in judged if cells[cell_of(item.row)].is_validated and item.prediction.systems > 0]


def report(judged: Sequence[Judged], console: Console) -> None:
    """Prints how many rows lie in their intervals: cells that are validated, then those that are not, then all."""
    for is_validated, title in ((True, "validated cells"), (False, "cells that are not validated: all borrow")):
        heads = "where", "collective", "band", "systems", "in own interval", "in borrowed interval"
        table = Table(*heads, title=f"90 % intervals, {title}")
        for name, cell in covered(judged, cell_of).items():
            if cell.is_validated == is_validated:
                shown = _shown(cell.own_part, cell.own), _shown(cell.borrowed_part, cell.borrowed)
                table.add_row(*name, str(cell.systems), *shown)
        console.print(table)
    found = validated(judged)
    for (owner,), cell in covered(found, lambda row: (row.system.fabric_class,)).items():
        console.print(f"validated, own intervals, {owner}: {_shown(cell.own_part, cell.own)}")
    for cell in covered(found, lambda row: ()).values():
        console.print(f"validated, own intervals, all: {_shown(cell.own_part, cell.own)}")


def _shown(part: float | None, systems: int) -> str:
    """Writes what part of the rows of some systems lies inside."""
    return "-" if part is None else f"{part * 100:.0f} % of {counted(systems, 'system')}"


def _places() -> Iterable[tuple[str, str]]:
    """Every kind of collective in every band."""
    return product(KINDS, bands())


def bands() -> list[str]:
    """Returns the names of the bands, from small to large."""
    return [name for name, _, _ in BANDS]
