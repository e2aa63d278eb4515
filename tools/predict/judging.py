"""The errors of predictions on public measurements of real machines.

``data/nccl-tests`` has times that ``nccl-tests`` and similar programs printed. A predictor returns a time and an
interval for a row. Four rules:

1. **A system counts once.** |error| is averaged over the rows of a system. Median and 90th percentile are over these
   averages. A log of sixty rows weighs as much as a page with three.
2. **Families are held out** (``tools/predict/fit.py``): machines of one site or product share hardware and software.
3. **Only healthy rows count** by default: the table marks runs whose owners complain.
4. **Every error is compared with the difference between public measurements of the same hardware**
   (:func:`disagreements`). On average no model errs less than half of it.

``error = predicted / measured - 1``. Rows have all sizes, in place and out of place. Cost: linear in rows and
predictors, quadratic in systems of the same hardware.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from rich.console import Console
from rich.table import Table

from nvcoll import InvalidArgument

T = TypeVar("T")

KIB, MIB = 1 << 10, 1 << 20

BANDS = (
    ("<= 64 KiB", 0, 64 * KIB),
    ("64 KiB - 1 MiB", 64 * KIB + 1, MIB - 1),
    ("1 - 128 MiB", MIB, 128 * MIB - 1),
    (">= 128 MiB", 128 * MIB, 1 << 62),
)
"""Name, smallest and largest number of bytes of the bands of sizes."""

LAUNCHES = ("process_per_gpu", "single_process", "torch_bench", "unknown")
"""How the calls of a measurement were launched."""

HEALTHS = ("yes", "no", "unknown")
"""What the table says of a run."""


@dataclass(frozen=True, eq=False)
class System:
    """A machine, or several, on which somebody measured. ``facts`` holds every column as it was read."""

    system_id: str
    family: str
    fabric: str
    network: str
    n_gpus: int
    n_nodes: int
    fabric_class: str
    launch: str
    facts: Mapping[str, str]

    @property
    def hardware(self) -> tuple[str, str, int, int]:
        """What two systems share if they are the same hardware: fabric, network, GPUs and nodes."""
        return self.fabric, self.network, self.n_gpus, self.n_nodes

    @property
    def scope(self) -> str:
        """How far it reaches: one node, one rack of NVLink, or several nodes."""
        if self.n_nodes == 1:
            return "one node"
        return "NVLink rack" if self.fabric_class == "mnnvl_nvl72" else "several nodes"


@dataclass(frozen=True)
class Row:
    """A measurement. ``nbytes`` as nccl-tests counts: the total of all ranks for gathers and the like."""

    system: System
    collective: str
    algo: str
    proto: str
    dtype: str
    nbytes: int
    time_us: float
    in_place: bool
    healthy: str

    @property
    def band(self) -> str:
        """The name of its band of sizes."""
        return next(name for name, low, high in BANDS if low <= self.nbytes <= high)


class Prediction(NamedTuple):
    """The predicted time of a call and the ends of its interval, None without one.

    ``systems``: the systems of the class and band behind the interval; 0 if the interval is borrowed.
    """

    time_us: float
    low_us: float | None = None
    high_us: float | None = None
    systems: int = 0


Predictor = Callable[[Row], Prediction | None]
"""Predicts a row; returns None for a row that it cannot predict."""


@dataclass(frozen=True)
class Judged:
    """A row and its prediction."""

    row: Row
    prediction: Prediction

    @property
    def error(self) -> float:
        """The relative error, positive if the prediction is too long."""
        return self.prediction.time_us / self.row.time_us - 1

    @property
    def covered(self) -> bool | None:
        """Whether the interval contains the measured time."""
        low, high = self.prediction.low_us, self.prediction.high_us
        return None if low is None or high is None else low <= self.row.time_us <= high


@dataclass(frozen=True)
class Cell:
    """Errors of the predictions of some rows, as fractions. Coverage is over the rows of a system."""

    systems: int
    rows: int
    median: float
    p90: float
    bias: float
    coverage: float | None
    worst_coverage: float | None


def read(folder: str | Path) -> list[Row]:
    """Reads ``systems.csv`` and ``measurements.csv`` of a folder.

    Raises:
        InvalidArgument: a column is missing, a value cannot be, or a measurement names a system that is not there.
        OSError: a file cannot be read.
    """
    return read_tables(Path(folder) / "systems.csv", Path(folder) / "measurements.csv")


def read_tables(systems: Path, measurements: Path) -> list[Row]:
    """Reads a table of systems and one of measurements; raises as :func:`read` does."""
    known = {system.system_id: system for system in _records(systems, _system)}
    return _records(measurements, lambda record: _row(record, known))


def _records(path: Path, parse: Callable[[dict[str, str]], T]) -> list[T]:
    """Parses every line of a table; errors name the line."""
    with path.open(newline="", encoding="utf-8") as file:
        parsed = []
        for line, record in enumerate(csv.DictReader(file), start=2):
            try:
                parsed.append(parse(record))
            except KeyError as error:
                raise InvalidArgument(f"{path.name}, line {line}: there is no column {error}") from None
            except (ValueError, TypeError) as error:
                raise InvalidArgument(f"{path.name}, line {line}: {error}") from None
    return parsed


def _one_of(known: Sequence[str], value: str) -> str:
    """Returns a value that must be one of some words."""
    if value not in known:
        raise ValueError(f"found {value!r}, expected one of {', '.join(known)}")
    return value


def _system(record: dict[str, str]) -> System:
    """Reads a line of ``systems.csv``."""
    return System(
        system_id=record["system_id"],
        family=record["family"],
        fabric=record["fabric"],
        network=record["network"],
        n_gpus=int(record["n_gpus"]),
        n_nodes=int(record["n_nodes"]),
        fabric_class=record["fabric_class"],
        launch=_one_of(LAUNCHES, record["launch"]),
        facts=record,
    )


def _row(record: dict[str, str], systems: Mapping[str, System]) -> Row:
    """Reads a line of ``measurements.csv``."""
    if record["system_id"] not in systems:
        raise ValueError(f"system {record['system_id']!r} is not in systems.csv")
    time_us, nbytes = float(record["time_us"]), int(record["nbytes"])
    if not (0 < time_us < float("inf")) or nbytes <= 0:
        raise ValueError(f"found {nbytes} bytes in {time_us} us, expected both above zero")
    return Row(
        system=systems[record["system_id"]],
        collective=record["collective"],
        algo=record["algo"],
        proto=record["proto"],
        dtype=record["dtype"],
        nbytes=nbytes,
        time_us=time_us,
        in_place=_one_of(("0", "1"), record["in_place"]) == "1",
        healthy=_one_of(HEALTHS, record["healthy"]),
    )


def healthy(rows: Iterable[Row], also_unknown: bool = False) -> list[Row]:
    """Returns the healthy rows; with ``also_unknown`` those of unknown health too."""
    return [row for row in rows if row.healthy == "yes" or (also_unknown and row.healthy == "unknown")]


def judge(rows: Iterable[Row], predictor: Predictor) -> list[Judged]:
    """Predicts every row that the predictor can predict."""
    return [Judged(row, prediction) for row in rows if (prediction := predictor(row)) is not None]


def by_system(judged: Iterable[Judged]) -> dict[str, list[Judged]]:
    """Groups judged rows by system."""
    groups: dict[str, list[Judged]] = defaultdict(list)
    for item in judged:
        groups[item.row.system.system_id].append(item)
    return dict(groups)


def cell(judged: Iterable[Judged]) -> Cell | None:
    """Averages per system, then takes median and 90th percentile over systems; None without rows."""
    groups = list(by_system(judged).values())
    if not groups:
        return None
    errors = [np.mean([abs(item.error) for item in group]) for group in groups]
    biases = [np.mean([item.error for item in group]) for group in groups]
    covered = [[item.covered for item in group if item.covered is not None] for group in groups]
    coverages = [float(np.mean(known)) for known in covered if known]
    return Cell(
        systems=len(groups),
        rows=sum(map(len, groups)),
        median=float(np.median(errors)),
        p90=float(np.percentile(errors, 90)),
        bias=float(np.median(biases)),
        coverage=float(np.mean(coverages)) if coverages else None,
        worst_coverage=min(coverages) if coverages else None,
    )


Key = tuple[str, ...]


def by_class(row: Row) -> Key:
    """The cell of a row in the long table."""
    return row.system.fabric_class, row.collective, row.band


def by_scope(row: Row) -> Key:
    """The cell of a row in the short table: all_reduce or others; of small calls, whether their launch is known."""
    unknown = row.band == BANDS[0][0] and row.system.launch == "unknown"
    collective = "all_reduce" if row.collective == "all_reduce" else "others"
    return row.system.scope + (", launch unknown" if unknown else ""), collective, row.band


def cells(judged: Iterable[Judged], key: Callable[[Row], Key] = by_class) -> dict[Key, Cell]:
    """Judges cell by cell: classes and collectives in the order of the alphabet, bands from small to large."""
    groups: dict[Key, list[Judged]] = defaultdict(list)
    for item in judged:
        groups[key(item.row)].append(item)
    found = {name: cell(group) for name, group in sorted(groups.items(), key=lambda entry: in_order(entry[0]))}
    return {name: value for name, value in found.items() if value is not None}


def in_order(key: Key) -> tuple[Key, int]:
    """Sorts bands, where a key ends in one, by size."""
    bands = [name for name, _, _ in BANDS]
    return (key[:-1], bands.index(key[-1])) if key and key[-1] in bands else (key, 0)


def disagreements(rows: Iterable[Row], key: Callable[[Row], Key] = by_class) -> dict[Key, float]:
    """Returns the difference between public measurements of the same hardware: the median over pairs of systems.

    A pair is two systems of one fabric, network and number of GPUs and nodes. For each call that both measured
    (collective, bytes; in place or not as both did; the same algorithm, where both say which) the longer time divided
    by the shorter, less one, is averaged over the calls of the pair.
    """
    calls: dict[System, dict[Call, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        calls[row.system][row.collective, row.nbytes, row.in_place].append(row)
    pairs: dict[Key, list[float]] = defaultdict(list)
    for one, other in combinations(calls.values(), 2):
        for name, ratios in _ratios(one, other, key).items():
            pairs[name].append(float(np.mean(ratios)))
    return {name: float(np.median(pairs[name])) for name in sorted(pairs, key=in_order)}


Call = tuple[str, int, bool]
"""Collective, bytes, in place or not."""


def _ratios(
    one: Mapping[Call, Sequence[Row]], other: Mapping[Call, Sequence[Row]], key: Callable[[Row], Key]
) -> dict[Key, list[float]]:
    """Compares the calls that two systems have in common, cell by cell; none if they are not the same hardware."""
    ratios: dict[Key, list[float]] = defaultdict(list)
    for call in one.keys() & other.keys():
        alone = len(one[call]) == len(other[call]) == 1
        for a, b in product(one[call], other[call]):
            if a.system.hardware == b.system.hardware and (a.algo == b.algo or (alone and not (a.algo and b.algo))):
                ratios[key(a)].append(max(a.time_us, b.time_us) / min(a.time_us, b.time_us) - 1)
    return ratios


def beside(
    ours: Iterable[Judged], theirs: Iterable[Judged], key: Callable[[Row], Key] = by_scope
) -> dict[Key, tuple[Cell, Cell]]:
    """Compares two predictors cell by cell, on the rows that both predict."""
    found = {name: {id(item.row): item for item in judged} for name, judged in (("ours", ours), ("theirs", theirs))}
    both = found["ours"].keys() & found["theirs"].keys()
    mine, other = (cells([item for row, item in items.items() if row in both], key) for items in found.values())
    return {name: (mine[name], other[name]) for name in mine}


def report(rows: Sequence[Row], predictors: Mapping[str, Sequence[Judged]], console: Console, worst: int = 10) -> None:
    """Prints errors by scope and by class, and the worst rows of each predictor.

    Args:
        rows: the measurements.
        predictors: for each predictor by name, its judged rows: see :func:`judge`.
        console: the output.
        worst: the number of rows with the largest errors that are printed for each predictor.
    """
    for title, key in (("one line per scope", by_scope), ("one line per class", by_class)):
        console.print(_table(title, rows, predictors, key))
    console.print(_beside(predictors))
    for name, judged in predictors.items():
        console.print(_worst(name, judged, worst))
    console.print("a cell: median / 90th percentile over systems of the mean |error| of a system; bias; coverage")
    console.print("apart: the difference between public measurements of the same hardware")


def _table(
    title: str, rows: Sequence[Row], predictors: Mapping[str, Sequence[Judged]], key: Callable[[Row], Key]
) -> Table:
    """Makes a table with a line per cell and a column per predictor."""
    table = Table("where", "collective", "band", "systems", "rows", "apart", *predictors, title=title)
    found = {name: cells(judged, key) for name, judged in predictors.items()}
    apart = disagreements(rows, key)
    counts: dict[Key, list[Row]] = defaultdict(list)
    for row in rows:
        counts[key(row)].append(row)
    for name in sorted(counts, key=in_order):
        members = counts[name]
        shown = [_shown(found[predictor].get(name)) for predictor in predictors]
        systems = len({row.system for row in members})
        table.add_row(*name, str(systems), str(len(members)), _percent(apart.get(name)), *shown)
    return table


def _beside(predictors: Mapping[str, Sequence[Judged]]) -> Table:
    """Makes a table of the first predictor beside each other model, on the same rows: median of each, and systems."""
    (first, ours), *rest = predictors.items()
    model = first.partition(",")[0]
    found = [(name, beside(ours, theirs)) for name, theirs in rest if name.partition(",")[0] != model]
    heads = "where", "collective", "band", *(f"beside {name}" for name, _ in found)
    table = Table(*heads, title=f"{first}, beside others on the same rows")
    for key in sorted({key for _, cells in found for key in cells}, key=in_order):
        pairs = [cells.get(key) for _, cells in found]
        table.add_row(*key, *(_pair(*pair) if pair else "-" for pair in pairs))
    return table


def _pair(ours: Cell, theirs: Cell) -> str:
    """Writes the medians of both, on how many systems, and which is the smaller."""
    part = ours.median / theirs.median if theirs.median else math.inf
    words = "half or less" if part <= 0.5 else "less" if part < 1 else "NOT LESS"
    return f"{_percent(ours.median)} : {_percent(theirs.median)}  of {ours.systems}  {words}"


def _shown(found: Cell | None) -> str:
    """Writes a cell in one line."""
    if found is None:
        return "-"
    text = f"{_percent(found.median)} / {_percent(found.p90)}  {found.bias * 100:+.0f}"
    return text if found.coverage is None else f"{text}  {_percent(found.coverage)} in"


def _percent(fraction: float | None) -> str:
    """Writes a fraction as a percentage, with a decimal below ten."""
    if fraction is None:
        return "-"
    return f"{fraction * 100:.1f} %" if fraction < 0.0995 else f"{fraction * 100:.0f} %"


def _worst(name: str, judged: Sequence[Judged], count: int) -> Table:
    """Makes a table of the rows with the largest errors, those of a system that are much alike as one."""
    columns = "system", "collective", "nbytes", "measured us", "predicted us", "error"
    table = Table(*columns, title=f"worst rows of {name}")
    seen: set[tuple[str, str, str]] = set()
    for item in sorted(judged, key=lambda item: -abs(np.log(item.prediction.time_us / item.row.time_us))):
        row = item.row
        place = row.system.system_id, row.collective, row.band
        if place not in seen and len(seen) < count:
            seen.add(place)
            numbers = f"{row.time_us:.1f}", f"{item.prediction.time_us:.1f}", f"{item.error * 100:+.0f} %"
            table.add_row(row.system.system_id, row.collective, str(row.nbytes), *numbers)
    return table
