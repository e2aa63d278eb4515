"""Matrices of copies between GPUs: nvbandwidth, and ``p2pBandwidthLatencyTest`` of the CUDA samples.

A cell is a pair of GPUs, beside the rate of the same pair alone (`Fabric.alone`); twice, where a title counts both
directions. A row of the log is a GPU with its slowest partner, so that one bad GPU or link is seen. A copy between a
GPU and the host is beside the GPU's PCIe link. Matrices through the host (``P2P=Disabled``), of several copies at once,
of latencies and of memory of one GPU have no prediction and are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

from nvcoll._nvcoll import Fabric, InvalidArgument
from nvcoll.check.lines import cleaned
from nvcoll.check.log import Log
from nvcoll.check.row import Row
from nvcoll.check.tool import NUMBER, Tool

COPY_BYTES = 512 << 20
"""Bytes of a copy: the default of nvbandwidth. Cancels out."""

_TITLES = tuple((re.compile(title), what, ways) for title, what, ways in (
    (r"memcpy (CE|SM) GPU\(row\) (?:<-|->) GPU\(column\) bandwidth", "copy between GPUs", 1),
    (r"memcpy (CE|SM) GPU\(row\) <-> GPU\(column\) Total bandwidth", "copy between GPUs, both directions", 2),
    (r"memcpy (CE) CPU\(row\) (?:<-|->) GPU\(column\) bandwidth", "copy between host and GPU", 0),
    (r"Unidirectional (P2P)=Enabled Bandwidth", "copy between GPUs", 1),
    (r"Bidirectional (P2P)=Enabled Bandwidth", "copy between GPUs, both directions", 2),
))  # fmt: skip
"""What stands above a matrix, what it measures, and in how many directions; 0 is a copy of the host."""

READ = "copies between host and GPU by copy engines (memcpy CE), and copies between two GPUs"

_TITLE = re.compile(r"bandwidth|Bandwidth|atency|SUM|Running")
_CELLS = re.compile(rf"(?:D\\D\s+)?\d{{1,9}}(?:\s+(?:{NUMBER}|N/A))*")
_GPU = re.compile(r"Device:? ?(\d{1,9})[:,] ([^,(]+)")
_NAME = re.compile(r"(?:> )?(?:Running|SUM) (\w+)")
MARK = re.compile(r"(?m)memcpy (?:CE|SM|local)|P2P=Enabled|^SUM \w+_|nvbandwidth Version")


def pair_us(fabric: Fabric, row: Row, *, ways: int) -> float:
    """Returns the time of copies between two GPUs, which the row's case names."""
    source, target = map(int, row.case.split(" to "))
    return row.nbytes / (ways * fabric.alone(first=1 + max(source, target))[source][target]) / 1e3


def host_us(fabric: Fabric, row: Row) -> float:
    """Returns the time of a copy between a GPU and the host.

    Raises:
        InvalidArgument: the GPU has no link of PCIe.
    """
    gpus = [name for name, kind, *_ in fabric.devices if kind == "gpu"]
    gpu = gpus[int(row.case.split()[-1])]
    rates = [long for source, _, medium, _, _, long in fabric.links if source == gpu and medium.startswith("pcie")]
    if not rates:
        raise InvalidArgument(f"the GPUs of {fabric.name} reach the host by another link than PCIe")
    return row.nbytes / max(rates) / 1e3


def cell(line: int, source: int, target: int, gbs: float) -> Row:
    """Returns a cell as a row."""
    return Row(line, COPY_BYTES, COPY_BYTES / gbs / 1e3, None, f"{source} to {target}")


def log_of(what: str, ways: int, cells: Iterable[Row], ranks: int) -> Log:
    """Returns a log of the slowest cell of each GPU, of copies in one direction, in two, or, with 0, of the host."""
    slowest: dict[str, Row] = {}
    for row in cells:
        gpu = row.case.split()[0 if ways else -1]
        slowest[gpu] = max(row, slowest.get(gpu, row), key=lambda one: one.time_us)
    us = partial(pair_us, ways=ways) if ways else host_us
    return Log("", what, ranks, [*slowest.values()], tool=Tool(us, "line rate of a link", 1.25, is_of_some=True))


def read(text: str) -> Iterator[Log]:
    """Yields the matrices of a log."""
    gpus: dict[int, str] = {}
    names: dict[str, None] = {}
    titles: list[tuple[str, int, list[int], list[Row]]] = []
    for number, line in cleaned(text):
        if found := _NAME.match(line):
            names[found[1]] = None
        if found := _GPU.match(line):
            gpus[int(found[1])] = found[2].strip()
        elif _TITLE.search(line):
            titles += [(f"{what} ({named[1]})", ways, [], []) for title, what, ways in _TITLES
                       if (named := title.search(line))] or [("", 0, [], [])]  # fmt: skip
        elif titles and _CELLS.fullmatch(line):
            _, ways, columns, cells = titles[-1]
            first, *values = line.replace("D\\D", "").split()
            if not columns:
                columns += [int(word) for word in (first, *values) if word.isdecimal()]
                continue
            known = [(target, float(value)) for target, value in zip(columns, values, strict=False) if value != "N/A"]
            cells += [cell(number, int(first), target, gbs) for target, gbs in known
                      if gbs > 0 and (not ways or target != int(first) in columns)]  # fmt: skip
    filled = [(what, ways, 1 + max(columns), cells) for what, ways, columns, cells in titles if what and cells]
    for what, ways, ranks, cells in filled:
        log = log_of(what, ways, cells, ranks)
        yield replace(log, gpus=[*gpus.values()], hosts=[""] * len(gpus), devices=[*gpus])
    if names and not filled:
        yield Log("", None, None, [], unlike=f"`{next(iter(names))}` has no matrix that nvcoll reads: {READ}")
