"""How wide the 90 % interval of a prediction must be, from how far others were off.

Each row was predicted by constants that were fitted without its family. The factor of a cell (class of machines,
all_reduce or others, band of sizes) holds 90 % of |log(measured / predicted)|; systems weigh equal, and the quantile
is raised for their small number, as a jackknife must. A cell of fewer than five systems borrows the widest of its
scope (one node, a rack, several nodes), where all its classes of few systems together count as one more. Where the
scope has as few itself, the widest of all.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from nvcoll.validate import BANDS, Judged, Prediction

FEWEST_SYSTEMS = 5
"""Chosen: a cell of fewer systems is not validated."""

PART = 0.9
"""What part of measurements an interval is to hold."""

KINDS = ("all_reduce", "others")

Residual = tuple[str, float]
"""System, |log(measured / predicted)|."""

Cell = tuple[str, str, str]
"""Class or scope, kind of collective, band."""


def kind(collective: str) -> str:
    """Returns under which name a collective is judged."""
    return KINDS[collective != KINDS[0]]


def quantile(residuals: Sequence[Residual]) -> float:
    """Returns what 90 % of residuals do not exceed, systems weighing equal."""
    counts: dict[str, int] = defaultdict(int)
    for system, _ in residuals:
        counts[system] += 1
    ordered = sorted((residual, 1 / counts[system]) for system, residual in residuals)
    wanted = min(1.0, PART * (len(counts) + 1) / len(counts)) * len(counts)
    reached = 0.0
    for residual, weight in ordered:
        reached += weight
        if reached >= wanted - 1e-9:
            return residual
    return ordered[-1][0]


@dataclass(frozen=True)
class Widths:
    """The factors that follow from some residuals."""

    own: Mapping[Cell, float]
    systems: Mapping[tuple[str, str], int]
    scopes: Mapping[str, str]

    @classmethod
    def of(cls, judged: Iterable[Judged]) -> Widths:
        """Measures them."""
        cells: dict[Cell, list[Residual]] = defaultdict(list)
        members: dict[tuple[str, str], set[str]] = defaultdict(set)
        scopes: dict[str, str] = {}
        for item in judged:
            row, system = item.row, item.row.system
            residual = system.system_id, abs(math.log(row.time_us / item.prediction.time_us))
            scopes[system.fabric_class] = system.scope
            members[system.fabric_class, kind(row.collective)].add(system.system_id)
            for where in (system.fabric_class, system.scope):
                cells[where, kind(row.collective), row.band].append(residual)
        few = [name for name in scopes if all(len(members[name, of]) < FEWEST_SYSTEMS for of in KINDS)]
        for (where, of, band), found in list(cells.items()):
            if where in few:
                cells[f"few of {scopes[where]}", of, band] += found
        known = {
            cell: math.exp(quantile(found))
            for cell, found in cells.items()
            if len({system for system, _ in found}) >= FEWEST_SYSTEMS
        }
        scopes |= {f"few of {scope}": scope for scope in set(scopes.values())}
        return cls(known, {name: len(found) for name, found in members.items()}, scopes)

    def factor(self, fabric_class: str, scope: str, of: str, band: str) -> float:
        """Returns the factor of a cell, its own or what it borrows."""
        own = self.own.get((fabric_class, of, band))
        return own if own is not None else self._widest(scope, of, band)

    def _widest(self, scope: str, of: str, band: str) -> float:
        """The widest of a scope in a band; of all scopes and collectives, if the scope has too few systems."""
        places = {scope} | {name for name, where in self.scopes.items() if where == scope}
        here = {where: factor for (where, what, at), factor in self.own.items() if (what, at) == (of, band)}
        there = [factor for where, factor in here.items() if where in places]
        anywhere = [factor for (_, _, at), factor in self.own.items() if at == band]
        return max(there or anywhere or [math.e])


def with_intervals(judged: Sequence[Judged]) -> list[Judged]:
    """Gives each prediction the interval that follows from the other families."""
    families = {item.row.system.family for item in judged}
    widths = {
        family: Widths.of(item for item in judged if item.row.system.family != family) for family in sorted(families)
    }
    bounded = []
    for item in judged:
        row, system = item.row, item.row.system
        factor = widths[system.family].factor(system.fabric_class, system.scope, kind(row.collective), row.band)
        time = item.prediction.time_us
        bounded.append(Judged(row, Prediction(time, time / factor, time * factor)))
    return bounded


def bands() -> list[str]:
    """Returns the names of the bands, from small to large."""
    return [name for name, _, _ in BANDS]
