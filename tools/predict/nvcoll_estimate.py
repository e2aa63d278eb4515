"""``Fabric.predict`` as a predictor of measured calls, with the shipped constants or with others.

A fit tries constants on all rows many times. :class:`Calls` asks the fabric once for NCCL's choice, which depends on no
constant. ``data/nccl-tests/folds.toml`` has, for each family of systems, the constants of the fit without it.

Machines without preset and algorithms without closed form (CollNet) are not predicted. Nor are sends of versions before
the first known one: NCCL 2.7 cuts a message into parts of at least 2 MiB (src/group.cc), 2.8 into parts of 512 KiB.
"""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nvcoll import InvalidArgument
from nvcoll._nvcoll import Trial, nccl_versions

from intervals import with_intervals
from judging import Judged, Prediction, Row, System
from nccl_estimate import machine, settings, version

LAUNCHES = {"torch_bench": "framework", "unknown": "process_per_gpu"}
"""Launches of the table that predictions name otherwise. An unknown launch is predicted as the usual one."""

SENDS = ("all_to_all", "sendrecv")
"""Collectives of the table that NCCL builds of sends and receives."""

Constants = Mapping[str, float]
"""Values by name that replace the shipped ones."""


@dataclass(frozen=True)
class Calls:
    """Rows of one system, collective, algorithm and protocol."""

    system: System
    rows: list[Row]
    trial: Trial

    def times(self, constants: Constants) -> list[float]:
        """Microseconds of each row."""
        return self.trial.times(constants)


def known_version(text: str) -> str | None:
    """Returns the version of a cell; the first known one if it is older; None if the cell has none."""
    found = version(text)
    return None if found is None else max(found, _first_version(), key=_parts)


def is_older(text: str) -> bool:
    """Says whether the version of a cell is older than the first known one."""
    found = version(text)
    return found is not None and _parts(found) < _parts(_first_version())


def _first_version() -> str:
    return nccl_versions()[0].lstrip("v")


def _parts(text: str) -> list[int]:
    return [int(part) for part in text.split("-")[0].split(".")]


def calls(rows: Iterable[Row]) -> list[Calls]:
    """Groups the rows that can be predicted."""
    groups: dict[tuple[System, str, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.system, row.collective, row.algo, row.proto].append(row)
    machines = {system: machine(system) for system in {system for system, *_ in groups}}
    found = []
    for (system, collective, algorithm, protocol), members in groups.items():
        one = machines[system]
        if one is None or (collective in SENDS and is_older(system.facts["nccl_version"])):
            continue
        try:
            trial = Trial(
                one,
                collective,
                [row.nbytes for row in members],
                launch=LAUNCHES.get(system.launch, system.launch),
                algorithm=algorithm or None,
                protocol=protocol or None,
                version=known_version(system.facts["nccl_version"]),
                settings=settings(system),
            )
        except InvalidArgument:
            continue
        found.append(Calls(system, members, trial))
    return found


def judge(groups: Iterable[Calls], constants: Callable[[System], Constants]) -> list[Judged]:
    """Predicts rows with intervals; `constants` returns the constants for a system."""
    pairs = [
        Judged(row, Prediction(time))
        for group in groups
        for row, time in zip(group.rows, group.times(constants(group.system)), strict=True)
    ]
    return with_intervals(pairs)


def folds(path: Path) -> dict[str, dict[str, float]]:
    """Reads, for each family, the constants that were fitted without it."""
    with path.open("rb") as file:
        return {fold["family"]: fold["constants"] for fold in tomllib.load(file)["fold"]}
