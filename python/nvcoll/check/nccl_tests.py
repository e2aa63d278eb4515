"""Reads what nccl-tests and rccl-tests print, of any version from 2018 on.

The head of a table names its columns. A row is read from the right, because columns in the middle may be blank. Lines
of NCCL that stand inside a row are skipped, and the row goes on behind them. A table ends where the next head or the
next parameters stand. Facts that the header lacks come from the rows: the number of ranks from busbw / algbw and
from size / count, the collective from the operation and the columns.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import takewhile
from math import inf
from typing import TYPE_CHECKING

from nvcoll._nvcoll import collective_spelled
from nvcoll.check import facts
from nvcoll.check.lines import cleaned
from nvcoll.check.log import Log, Row

if TYPE_CHECKING:
    from nvcoll._nvcoll import _Launch

_BYTES = {
    **dict.fromkeys(("int8", "uint8", "char", "f8e4m3", "f8e5m2", "fp8_e4m3", "fp8_e5m2"), 1),
    **dict.fromkeys(("half", "bfloat16", "float16"), 2),
    **dict.fromkeys(("int32", "uint32", "int", "float"), 4),
    **dict.fromkeys(("int64", "uint64", "double"), 8),
}

MOST_BYTES, MOST_RANKS, LEAST_TIME = 1 << 50, 1 << 20, 1e-3
"""The largest size, the most ranks and the least time that are believed. Chosen."""

_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?|N/A|nan", re.IGNORECASE)
_ROW = re.compile(rf"#?\s*(?:\d{{1,4}}\s+)?(\d+)\s+(\d+)\s+({'|'.join(_BYTES)})\s+(.*)")
_NUMBERS = re.compile(rf"(?:{_NUMBER.pattern})(?:\s+(?:{_NUMBER.pattern}))*", re.IGNORECASE)
_CUT = re.compile(r"\d+(?:\s+\d+(?:\s+[^\s\d]\S*\s+(?:[^\s\d]\S*\s+)?-?(?:\d|N/A).*)?)?")
_STAMP = re.compile(r"\s+\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$")
_HEAD = re.compile(r"#?\s*(?:\w+\s+)?size\s+count.*\stype\s(?:.*\s)?algbw(?:\s.*)?")
_DEVICE = re.compile(
    r"#?\s*Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?(?:Pid\s+\d+\s+)?on\s+(.+?)\s+device\s+(\d+) \[[^]]+\] (.*)"
)
_PARAMETERS = re.compile(r"#?\s*nThread (\d+) nGpus (\d+) ")
_PROGRAM = re.compile(r"\b(\w+?)_perf")
_COMMAND = re.compile(r"_perf\w*\s+-\w")
_VERSIONS = (re.compile(r"\b[NR]CCL version\s*:?\s*(\d+\.\d+\.\d+)"), re.compile(r"nccl-library=(\d+)"))
_NRANKS = re.compile(r"\bn[rR]anks (\d+)\b")
_SETTING = re.compile(
    r"(?<!unset )\b(NCCL_[A-Z0-9_]+)(?:=| set by environment to )[\"']?((?:(?!;\s*\w+=|;\s*$|;\s)[^\s\"'])+)"
)


@dataclass
class _Table:
    """A table that is being read."""

    program: str | None = None
    columns: int | None = None
    halves: int = 2
    counts_wrong: bool = False
    """The last column of a half is the number of wrong elements; of older versions, a largest error."""
    rows: list[tuple[int, int, int, str, Sequence[str], Sequence[float | None]]] = field(default_factory=list)
    devices: list[tuple[int, str, int, str]] = field(default_factory=list)
    launch: _Launch | None = None
    told_ranks: set[int] = field(default_factory=set)
    version: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    facts: dict[str, list[str]] = field(default_factory=dict)
    starts: int = 0
    wrong_results: bool = False
    unlike: str | None = None
    malformed: list[tuple[int, str]] = field(default_factory=list)


def _number(word: str) -> float | None:
    return None if word.lower() in ("n/a", "nan") else float(word)


class _Reader:
    """Reads the lines of one log."""

    def __init__(self) -> None:
        self.tables = [_Table()]
        self._exported: dict[str, str] = {}
        self._begun: tuple[int, str] | None = None
        """The row that is not complete: number of the line, and text so far."""

    def read(self, text: str) -> None:
        """Reads all lines."""
        for number, line in cleaned(text):
            self._read_line(number, line)
        if self._begun is not None:
            self._torn("the log ends inside of this row, which is left out")

    def _torn(self, reason: str) -> None:
        assert self._begun is not None
        self.tables[-1].malformed.append((self._begun[0], reason))
        self._begun = None

    def _next_table(self) -> None:
        """Begins a table if the last has rows. The header stays until another one stands."""
        last = self.tables[-1]
        if last.rows:
            kept = ("program", "devices", "launch", "told_ranks", "version", "settings", "facts")
            self.tables.append(_Table(**{name: deepcopy(getattr(last, name)) for name in kept}))

    def _read_line(self, number: int, line: str) -> None:
        table = self.tables[-1]
        if (row := _ROW.fullmatch(_STAMP.sub("", line))) is not None:
            if self._begun is not None:
                self._torn("the row is torn: the next one begins before its end")
            self._begun = number, row[0]
            self._complete()
        elif self._begun is not None and _NUMBERS.fullmatch(line):
            self._begun = self._begun[0], f"{self._begun[1]} {line}"
            self._complete()
        elif (table.rows or table.columns) and _CUT.fullmatch(line):
            table.malformed.append((number, "the row is cut short, or its type is unknown; it is left out"))
        elif _HEAD.fullmatch(line):
            self._read_head(line)
        else:
            self._read_other(line)

    def _read_head(self, line: str) -> None:
        self._next_table()
        table, words = self.tables[-1], line.split()
        first = next(at for at, word in enumerate(words) if word in ("time", "cputime", "algbw"))
        table.halves = max(words.count("algbw"), 1)
        columns = len([word for word in words[first:] if word != "timestamp"])
        table.columns = columns if columns >= 3 * table.halves and columns % table.halves == 0 else None
        table.counts_wrong = "#wrong" in words and columns == 4 * table.halves
        if "cputime" in words:
            table.unlike = "the column is cputime (-C): the time of the CPU is no time of a call"

    def _read_other(self, line: str) -> None:
        """Takes what stands around rows."""
        if (found := _PARAMETERS.search(line)) is not None:
            self._begin_header()
            table = self.tables[-1]
            table.launch = "process_per_gpu" if int(found[1]) * int(found[2]) == 1 else "single_process"
            if (graph := re.search(r"graph: (\d+)", line)) and int(graph[1]):
                table.unlike = "calls are in CUDA graphs (-G), which nvcoll does not predict"
            return
        table = self.tables[-1]
        if (found := _DEVICE.fullmatch(line)) is not None:
            if not int(found[2] or 0):
                table.devices.append((int(found[1]), found[3].strip(), int(found[4]), found[5].strip()))
            return
        found = _PROGRAM.search(line)
        if found is not None and "concluded" in line:
            table.program = table.program or found[1]
        elif found is not None:
            if table.devices and not table.rows and _COMMAND.search(line):  # the run before has failed
                self.tables.append(_Table())
            if "starting" in line or self.tables[-1] is not table or table.rows:  # the command of the next run
                self._begin_header()
            self.tables[-1].program = found[1]
        table = self.tables[-1]
        settings = {name: value.rstrip(".") for name, value in _SETTING.findall(line)}
        table.settings.update(settings)
        self._exported.update(settings if "export " in line else {})
        for name, value in facts.told_by(line):
            if value not in (values := table.facts.setdefault(name, [])):
                values.append(value)
        table.told_ranks.update(map(int, _NRANKS.findall(line)))
        for version in _VERSIONS:
            if (found := version.search(line)) is not None:
                table.version = found[1] if "." in found[1] else _version(int(found[1]))
        if "Out of bounds values" in line and "FAILED" in line:
            table.wrong_results = True

    def _begin_header(self) -> None:
        self._next_table()
        table = self.tables[-1]
        if not table.rows and len(self.tables) > 1 and table.starts == 0:
            for of_a_run in (table.devices, table.told_ranks, table.facts, table.settings):
                of_a_run.clear()
            table.settings.update(self._exported)
        table.starts += 1

    def _complete(self) -> None:
        """Takes the row that is begun, if all of its columns are there."""
        assert self._begun is not None
        number, text = self._begun
        table, row = self.tables[-1], _ROW.fullmatch(text)
        assert row is not None
        words = row[4].split()
        named = [*takewhile(lambda word: not _NUMBER.fullmatch(word), words)]
        words = words[len(named) :]
        if wrong := next((word for word in words if not _NUMBER.fullmatch(word)), None):
            self._torn(f"`{wrong}` stands where a number is expected")
            return
        columns = table.columns or (8 if len(words) >= 8 else 4)
        if len(words) in (columns, columns + 1):
            values = words[-columns:]
        elif table.columns == len(words) * 2:  # a trace that is replayed leaves the first half blank
            values = [*["N/A"] * len(words), *words]
        elif table.columns and table.halves == 2 and len(words) in (4, 5):
            values = words[-4:]
        elif len(words) > columns + 1:
            self._torn(f"{len(words)} numbers stand where {columns} are expected")
            return
        else:
            return
        nbytes, count, numbers = int(row[1]), int(row[2]), [*map(_number, values)]
        times = [known for known in numbers[:: columns // table.halves] if known]
        if (
            nbytes > MOST_BYTES
            or not all(known is None or 0 <= known < inf for known in numbers)
            or min(times, default=inf) < LEAST_TIME
        ):
            self._torn("a number is negative, too large or too small")
            return
        self._begun = None
        table.wrong_results |= table.counts_wrong and any(numbers[3::4])
        if nbytes:
            table.rows.append((number, nbytes, count, row[3], named, numbers))


def _version(code: int) -> str:
    """Returns the version that NCCL's number names: 22907 is 2.29.7; before 2.9, 2708 is 2.7.8."""
    minors = 100 if code >= 10000 else 10
    major, minor, patch = code // (100 * minors), code // 100 % minors, code % 100
    return f"{major}.{minor}.{patch}"


def _times(table: _Table, values: Sequence[float | None], nbytes: int) -> tuple[float | None, float | None]:
    """Returns the times of the two halves in microseconds. The oldest versions print milliseconds."""
    half = len(values) // 2 if len(values) >= 8 else len(values)
    times = []
    for at in range(0, len(values) - 2, half):
        time, algbw = values[at], values[at + 1]
        if time and algbw and 0.5 < nbytes / (time * 1e6) / algbw < 2:
            time *= 1000
        times.append(time or None)
    return times[0], times[1] if len(times) > 1 else None


def _of_rows(table: _Table) -> tuple[str | None, int | None]:
    """Returns the collective and the number of ranks that follow from the rows."""
    _, nbytes, count, dtype, named, values = max(table.rows, key=lambda row: (row[1], row[0]))
    algbw, busbw, last = values[1], values[2], values[-1]
    shares = nbytes / (count * _BYTES[dtype]) if count else 0
    if not algbw or busbw is None:
        return None, None
    if busbw == 0:
        return None, 1
    scale = busbw / algbw
    op = named[0] if named and not _NUMBER.fullmatch(named[0]) else None
    is_whole = abs(shares - 1) < 0.01
    only_out_of_place = len(values) >= 8 and last is None and values[len(values) // 2 - 1] is not None
    if op not in (None, "none"):
        if is_whole:
            kind = "sendrecv" if only_out_of_place and abs(scale - 1) < 0.01 else "all_reduce"
            return kind, round(2 / (2 - scale)) if scale < 1.999 else None
        return "reduce_scatter", round(shares) if shares < MOST_RANKS else None
    if is_whole:
        return None, None
    return "all_to_all" if only_out_of_place else "all_gather", round(shares) if shares < MOST_RANKS else None


def _by_ranks(table: _Table) -> list[_Table]:
    """Splits a table that somebody put together from runs with different numbers of ranks."""
    if len({row[1] for row in table.rows}) == len(table.rows):
        return [table]
    parts: dict[float, _Table] = {}
    for row in table.rows:
        algbw, busbw = row[5][1], row[5][2]
        scale = round(busbw / algbw, 2) if algbw and busbw and algbw >= 1 else 0.0
        parts.setdefault(scale, replace(table, rows=[])).rows.append(row)
    return [*parts.values()] if 0.0 not in parts else [table]


def _log(name: str, table: _Table) -> Log:
    """Returns what a table says."""
    program = (table.program or "").lower()
    named = collective_spelled("alltoall" if program == "alltoallv" else program)
    of_rows, ranks = _of_rows(table) if table.rows else (None, None)
    collective = named or of_rows
    firsts = sum(rank == 0 for rank, *_ in table.devices)
    jobs = max(firsts, *Counter(row[1] for row in table.rows).values(), 1)
    devices = table.devices[: len(table.devices) // firsts] if firsts > 1 else table.devices
    last = max((rank for rank, *_ in devices), default=-1)
    if ranks is None or (ranks > 20 and abs(last + 1 - ranks) <= ranks // 8):  # printed decimals leave n open
        ranks = last + 1 or max(table.told_ranks, default=0) or ranks
    rows = [Row(number, nbytes, *_times(table, values, nbytes)) for number, nbytes, *_, values in table.rows]
    return Log(
        name,
        collective,
        ranks,
        [row for row in rows if row.out_of_place_us or row.in_place_us],
        hosts=[host for _, host, *_ in devices],
        devices=[device for *_, device, _ in devices],
        gpus=[gpu for *_, gpu in devices],
        jobs=jobs,
        launch=table.launch,
        version=table.version,
        settings=table.settings,
        facts=table.facts,
        wrong_results=table.wrong_results,
        unlike=table.unlike,
        malformed=table.malformed,
    )


def read(name: str, text: str) -> list[Log]:
    """Returns the tables of a log; one without rows is a log whose table is missing.

    Args:
        name: the file.
        text: its content.
    """
    reader = _Reader()
    reader.read(text)
    tables = [table for table in reader.tables if table.rows] or reader.tables[:1]
    tables = [part for table in tables for part in _by_ranks(table)]
    return [_log(name, table) for table in tables]
