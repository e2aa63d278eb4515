"""Reads what NCCL's own tests of 2016, nccl-tests and rccl-tests print.

`columns` tells the words of a row apart. Lines of NCCL that stand inside a row are skipped, and the row goes on behind
them. A table ends where the next head or the next parameters stand, where the sizes begin again, and where busbw /
algbw is of another number of ranks. Rows of one size are one job if type, operation or root differ, and several jobs
otherwise. A table that lacks its rows may have their average.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf, prod
from typing import TYPE_CHECKING

from nvcoll._nvcoll import collective_spelled
from nvcoll.check import columns, facts, ranks
from nvcoll.check.columns import BYTES, Cells, Columns
from nvcoll.check.lines import cleaned
from nvcoll.check.log import Log
from nvcoll.check.ranks import Interval
from nvcoll.check.row import Row
from nvcoll.check.tool import UNREAL
from nvcoll.text.formatting import counted, sized

if TYPE_CHECKING:
    from nvcoll._nvcoll import _Launch

MOST_BYTES, LEAST_TIME = 1 << 50, 1e-3
"""The largest size, and any number, and the least time that are believed. Chosen."""

MOST_ROWS = 100_000
"""The most rows of a log that are read. Chosen: the largest public log has some thousands."""

OF_MANY = "the log has the average of many sizes alone: pass the lines of the table"

_CUT = re.compile(r"\d+(?:\s+\d+(?:\s+[^\s\d]\S*\s+(?:[^\s\d]\S*\s+)?-?(?:\d|N/A).*)?)?")
_DEVICE = re.compile(
    r"\bRank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?(?:Pid\s+\d+\s+)?(?:on\s+(.+?)\s+|uses\s+)?device\s+(\d+) \[[^]]+\] ?(.*)"
)
_COMM = re.compile(r"^(\S+?):\d+:\d+ \[\d+\] NCCL INFO .*?\brank (\d+) n[rR]anks (\d+) cudaDev (\d+)")
_PARAMETERS = re.compile(r"\bnThread (\d+) nGpus (\d+) ")
_OF_NCCL = re.compile(r"\bNCCL (?:INFO|WARN)|^#?$|\bOut of bounds|\bAvg bus|\bCollective test|asterisks|\(B\)")
"""Lines that say nothing about a table that begins."""

_PROGRAM = re.compile(r"\b(\w+?)_(?:perf|test\b)")
_COMMAND = re.compile(r"_perf\w*\s+-\w")
_OPTION = re.compile(r"(?:\s-|\b)(b|e|minBytes|maxBytes) ?(\d{1,16})([KMGkmg]?)B?\b")
_AVERAGE = re.compile(r"\bAvg bus bandwidth\s*:\s*(\d+(?:\.\d+)?(?:e[+-]?\d+)?)")
_VERSIONS = (re.compile(r"\b[NR]CCL version\s*:?\s*(\d+\.\d+\.\d+)"), re.compile(r"nccl-library=(\d+)"))
_NRANKS = re.compile(r"\bn[rR]anks (\d{1,7})\b")
_SETTING = re.compile(
    r"(?<!unset )\b(NCCL_[A-Z0-9_]+)(?:=| set by environment to )[\"']?"
    r"((?:AND|OR|MOD|DIV) \w+|(?:(?!;\s*\w+=|;\s*$|;\s)[^\s\"'`])+)"
)


@dataclass
class _Row:
    """A row, with its numbers."""

    line: int
    cells: Cells
    times: Sequence[float | None]
    """Out of place and in place, in microseconds."""
    busbw: float | None
    factor: Interval | None
    """busbw / algbw."""

    @property
    def case(self) -> tuple[int, Sequence[str]]:
        """What was run."""
        return self.cells.nbytes, tuple(self.cells.case)


@dataclass
class _Table:
    """A table that is being read."""

    program: str | None = None
    columns: Columns = field(default_factory=Columns)
    rows: list[_Row] = field(default_factory=list)
    cases: Counter[tuple[int, Sequence[str]]] = field(default_factory=Counter)
    factor: Interval | None = None
    devices: list[tuple[int, str, int, str]] = field(default_factory=list)
    comms: dict[tuple[int, int], tuple[str, int]] = field(default_factory=dict)
    """By the ranks of a communicator and the rank: host and device, from lines of ``NCCL_DEBUG=INFO``."""
    groups: set[int] = field(default_factory=set)
    launch: _Launch | None = None
    each_process: int = 1
    """The ranks of a process, by the header."""
    told_ranks: list[int] = field(default_factory=list)
    size: int | None = None
    """The only size that was run."""
    average: tuple[int, float] | None = None
    """The line of the average of a table, and GB/s."""
    version: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    facts: dict[str, list[str]] = field(default_factory=dict)
    starts: int = 0
    wrong_results: bool = False
    unlike: str | None = None
    malformed: list[tuple[int, str]] = field(default_factory=list)

    @property
    def is_used(self) -> bool:
        """Says whether there is something to judge."""
        return bool(self.rows) or self.average is not None

    @property
    def firsts(self) -> int:
        """The number of ranks 0 in the header."""
        return sum(rank == 0 for rank, *_ in self.devices)

    def ends_before(self, row: _Row, *, is_captioned: bool) -> bool:
        """Says whether a row belongs to another table."""
        if row.factor and self.factor and ranks.common((row.factor, self.factor)) is None:
            return True
        if row.case not in self.cases or self.firsts > 1 or len(self.cases) < len(self.rows):
            return False
        first, last = self.rows[0].cells.nbytes, self.rows[-1].cells.nbytes
        return is_captioned or row.cells.nbytes <= min(first, last - 1)

    def take(self, row: _Row) -> None:
        """Takes a row."""
        self.rows.append(row)
        self.cases[row.case] += 1
        self.factor = ranks.common((self.factor, row.factor)) if row.factor else self.factor

    def tell(self, told: Sequence[tuple[str, str]]) -> None:
        """Takes facts."""
        for name, value in told:
            if value not in (values := self.facts.setdefault(name, [])):
                values.append(value)


def _number(word: str | None) -> float | None:
    return None if word is None or word.lower() in ("n/a", "nan") else float(word)


def _row(line: int, cells: Cells) -> _Row | str:
    """Returns a row, or why its numbers are not believed."""
    times, factors, rates = [], [], []
    for half in cells.halves:
        numbers = {name: _number(word) for name, word in half.items()}
        time, algbw, busbw = map(numbers.get, ("time", "algbw", "busbw"))
        is_known = all(known is None or 0 <= known <= MOST_BYTES for known in numbers.values())
        if not is_known or not 0 <= cells.nbytes <= MOST_BYTES or (time and time < LEAST_TIME):
            return UNREAL
        is_in_ms = time and algbw and 0.5 < cells.nbytes / (time * 1e6) / algbw < 2  # the oldest versions
        unit = 1e3 if is_in_ms else 1.0
        times.append(time * unit if time else cells.nbytes / algbw / 1e3 if algbw else None)
        rates += [busbw] if busbw else []
        if busbw is not None and algbw and cells.nbytes:
            by_time = ranks.as_printed(half["time"], 1e3 * unit / cells.nbytes) if time else (0.0, 0.0)
            rate = (1 / by_time[1], 1 / by_time[0]) if by_time[0] else ranks.as_printed(half["algbw"])
            factors.append(ranks.factor_of(rate, ranks.as_printed(half["busbw"])))
    return _Row(line, cells, times, next(iter(rates), None), ranks.common(filter(ranks.is_any, factors)))


class _Reader:
    """Reads the lines of one log."""

    def __init__(self) -> None:
        self.tables = [_Table()]
        self._exported: dict[str, str] = {}
        self._begun: tuple[int, str] | None = None
        """The row that is not complete: number of the line, and text so far."""
        self._said: list[tuple[str, str]] = []
        """The facts of the lines behind the last row."""
        self._taken = 0
        """The number of rows so far."""
        self._is_captioned = False
        """Some of these lines are not of NCCL."""

    def read(self, text: str) -> None:
        """Reads all lines."""
        for number, line in cleaned(text):
            self._read_line(number, line)
            if self._taken >= MOST_ROWS:
                why = f"the log has {MOST_ROWS} rows up to here; what follows is left out"
                self.tables[-1].malformed.append((number, why))
                break
        if self._begun is not None:
            self._torn("the log ends inside of this row, which is left out")
        self.tables[-1].tell(self._said)

    def _torn(self, reason: str) -> None:
        assert self._begun is not None
        self.tables[-1].malformed.append((self._begun[0], reason))
        self._said += facts.told_by(self._begun[1])  # what tears a row may be the failure of the run
        self._begun = None

    def _next_table(self) -> None:
        """Begins a table if the last is used. The header stays until another one stands."""
        last = self.tables[-1]
        if last.is_used:
            kept = "program devices comms groups launch each_process told_ranks size version settings"
            self.tables.append(_Table(**{name: copy(getattr(last, name)) for name in kept.split()}))
            self.tables[-1].facts = {name: [*values] for name, values in last.facts.items()}

    def _read_line(self, number: int, line: str) -> None:
        table = self.tables[-1]
        if (row := table.columns.row(line)) is not None:
            if self._begun is not None:
                self._torn("the row is torn: the next one begins before its end")
            self._begin(number, line, row)
        elif self._begun is not None and all(map(columns.is_number, line.split())):
            text = f"{self._begun[1]} {line}"
            self._begin(self._begun[0], text, table.columns.row(text))
        elif (table.rows or table.columns.names) and _CUT.fullmatch(line):
            table.malformed.append((number, "the row is cut short, or its type is unknown; it is left out"))
        elif (names := columns.named(line)) is not None:
            self._next_table()
            self.tables[-1].columns = names
            if "cputime" in names.names:
                self.tables[-1].unlike = "the column is cputime (-C): the time of the CPU is no time of a call"
        else:
            self._read_other(number, line)

    def _begin(self, number: int, text: str, row: Cells | str | None) -> None:
        """Takes a row, if all of its columns are there."""
        self._begun = number, text
        read = _row(number, row) if isinstance(row, Cells) else row
        if isinstance(read, _Row):
            self._begun = None
            self._take(read)
        elif read:
            self._torn(read)

    def _take(self, row: _Row) -> None:
        """Puts a row into the table that it belongs to."""
        if not row.cells.nbytes:
            return
        table = self.tables[-1]
        if table.ends_before(row, is_captioned=self._is_captioned):
            self._next_table()
            names, table = table.columns, self.tables[-1]
            table.columns = names
            for name, _ in self._said:
                table.facts.pop(name, None)
        table.tell(self._said)
        table.take(row)
        self._taken += 1
        table.wrong_results |= any(_number(half.get("#wrong")) for half in row.cells.halves)
        self._said, self._is_captioned = [], False

    def _read_other(self, number: int, line: str) -> None:
        """Takes what stands around rows."""
        if (found := _PARAMETERS.search(line)) is not None:
            self._begin_header()
            table = self.tables[-1]
            table.each_process = int(found[1]) * int(found[2])
            table.launch = "process_per_gpu" if table.each_process == 1 else "single_process"
            table.size = _only_size(line)
            if (graph := re.search(r"graph: (\d+)", line)) and int(graph[1]):
                table.unlike = "calls are in CUDA graphs (-G), which nvcoll does not predict"
            return
        table = self.tables[-1]
        if (found := _DEVICE.search(line)) is not None:
            group = int(found[2] or 0)
            table.groups.add(group)
            if not group:
                table.devices.append((int(found[1]), (found[3] or "").strip(), int(found[4]), found[5].strip()))
            return
        found = _PROGRAM.search(line)
        if found is not None and "concluded" in line:
            table.program = table.program or found[1]
        elif found is not None:
            if table.devices and not table.is_used and _COMMAND.search(line):  # the run before has failed
                self.tables.append(_Table())
            if "starting" in line or self.tables[-1] is not table or table.is_used:  # the command of the next run
                self._begin_header()
            table = self.tables[-1]
            table.program = found[1]
            table.size = _only_size(line) or table.size
        self._read_facts(table, line)
        if (comm := _COMM.search(line)) is not None:
            table.comms[int(comm[3]), int(comm[2])] = comm[1], int(comm[4])
        table.told_ranks += map(int, _NRANKS.findall(line))
        if (ranks_started := ranks.commanded(line)) is not None:
            table.told_ranks.append(ranks_started)
        for version in _VERSIONS:
            if (found := version.search(line)) is not None:
                table.version = found[1] if "." in found[1] else _version(int(found[1]))
        if "Out of bounds values" in line and "FAILED" in line:
            table.wrong_results = True
        if (found := _AVERAGE.search(line)) is not None:
            table.average = number, float(found[1])
        self._is_captioned |= _OF_NCCL.search(line) is None

    def _read_facts(self, table: _Table, line: str) -> None:
        settings = {name: value.rstrip(".") for name, value in _SETTING.findall(line)}
        table.settings.update(settings)
        self._exported.update(settings if "export " in line else {})
        self._said += facts.told_by(line)

    def _begin_header(self) -> None:
        self.tables[-1].tell(self._said)
        self._said = []
        self._next_table()
        table = self.tables[-1]
        if not table.rows and len(self.tables) > 1 and table.starts == 0:
            for of_a_run in (table.devices, table.comms, table.groups, table.told_ranks, table.facts, table.settings):
                of_a_run.clear()
            table.settings.update(self._exported)
        table.starts += 1


def _only_size(line: str) -> int | None:
    """Returns the size that a header or a command names; None if it names none, or several."""
    told = {
        name[:3]: int(number) << 10 * " KMG".index(unit.upper() or " ") for name, number, unit in _OPTION.findall(line)
    }
    least, most = told.get("b", told.get("min")), told.get("e", told.get("max"))
    return least if least == most else None


def _version(code: int) -> str:
    """Returns the version that NCCL's number names: 22907 is 2.29.7; before 2.9, 2708 is 2.7.8."""
    minors = 100 if code >= 10000 else 10
    major, minor, patch = code // (100 * minors), code // 100 % minors, code % 100
    return f"{major}.{minor}.{patch}"


def _collective_of_rows(table: _Table) -> tuple[str | None, int | None]:
    """Returns the collective that the operation and the columns of the largest row show, and size / count."""
    row = max(table.rows, key=lambda row: (row.cells.nbytes, row.line))
    cells = row.cells
    if not cells.dtype:
        return ("all_reduce" if row.factor and row.factor[0] > 1 else None), None
    shares = cells.nbytes / (cells.count * BYTES[cells.dtype]) if cells.count else 1.0
    is_whole = abs(shares - 1) < 0.01
    last, first = (cells.halves[at].get("#wrong", cells.halves[at].get("error")) for at in (-1, 0))
    only_out_of_place = len(cells.halves) > 1 and _number(last) is None and _number(first) is not None
    if len(cells.case) > 1 and not columns.is_number(cells.case[1]) and cells.case[1] != "none":
        if not is_whole:
            return "reduce_scatter", round(min(shares, inf))
        is_plain = row.factor is not None and row.factor[0] <= 1 <= row.factor[1]
        return ("sendrecv" if only_out_of_place and is_plain else "all_reduce"), None
    if is_whole:
        return None, None
    return ("all_to_all" if only_out_of_place else "all_gather"), round(shares)


def _tasks(table: _Table) -> tuple[int, ...]:
    """Returns the nodes and the tasks on each that a log tells; 0 if it does not."""
    return tuple(max(map(int, table.facts.get(name, ())), default=0) for name in ("nodes", "per_node"))


def _ranks(table: _Table, collective: str | None, shares: int | None) -> tuple[int | None, tuple[int, int] | None]:
    """Returns the number of ranks, and the range in which it is if only busbw tells it."""
    if table.factor is not None and table.factor[1] < 0.4:  # two ranks have at least 0.5
        return 1, None
    if shares is not None and 1 < shares <= ranks.MOST_RANKS:
        return shares, None
    devices = table.devices[: len(table.devices) // max(table.firsts, 1)]
    last = max((rank for rank, *_ in devices), default=-1)
    nodes, each = _tasks(table)
    told = [len(devices) if len(table.groups) > 1 else last + 1, max(table.told_ranks, default=0)]
    told += [*table.told_ranks, nodes * each]
    permitted = ranks.permitted(collective, table.factor)
    found = next((one for one in told if one and (not permitted or permitted[0] <= one <= permitted[1])), None)
    if found is not None or permitted is None:
        return found, None
    return ranks.plainest(*permitted), permitted if permitted[0] < permitted[1] else None


def _contradicted(table: _Table, number: int | None) -> Iterator[str]:
    """Yields what a log says of its launch that its rows contradict."""
    last, (nodes, each) = max((rank for rank, *_ in table.devices), default=-1) + 1, _tasks(table)
    told = {"the lines of devices": last if last > (number or 0) else 0,
            "the command or NCCL": 0 if number in table.told_ranks else max(table.told_ranks, default=0),
            f"{nodes} nodes with {each} tasks each": nodes * each}  # fmt: skip
    for what, ranks_told in told.items():
        if number and ranks_told not in (0, number):
            yield f"{what}: {ranks_told} ranks; taken are {number}, which the rows show"
    if number and number % table.each_process:
        yield f"the header has {table.each_process} GPUs of a process (-t, -g); taken are {counted(number, 'rank')}"


def _log(name: str, table: _Table) -> Log:
    """Returns what a table says."""
    program = (table.program or "").lower()
    named = collective_spelled("alltoall" if program == "alltoallv" else program)
    of_rows, shares = _collective_of_rows(table) if table.rows else (None, None)
    collective = named or of_rows
    number, between = _ranks(table, collective, shares)
    devices = table.devices[: len(table.devices) // max(table.firsts, 1)]
    if not devices and table.comms:  # the ranks of the largest communicator
        most = max(table.comms)[0]
        devices = [(rank, *place, "") for (of, rank), place in sorted(table.comms.items()) if of == most]
    is_laid_out = prod(_tasks(table)) in (0, number)
    is_mixed = len({nbytes for nbytes, _ in table.cases}) < len(table.cases)
    rows, rates = [], []
    for row in table.rows:
        nbytes = row.cells.nbytes
        case = " ".join((sized(nbytes), *row.cells.case)) if is_mixed else ""
        if any(row.times):
            rows.append(Row(row.line, nbytes, row.times[0], row.times[1] if len(row.times) > 1 else None, case))
        elif row.busbw is None:
            table.malformed.append((row.line, "the row has no time and no rate"))
        elif row.busbw:
            rates.append((row.line, nbytes, row.busbw))
    average = None if rows or rates else table.average
    if average is not None and table.size:
        rates = [(average[0], table.size, average[1])]
    is_whole = number is None or len(devices) >= number  # some logs keep a few lines of devices
    return Log(
        name,
        collective,
        None,
        rows,
        factor=table.factor,
        rates=rates,
        ranks_between=between,
        hosts=[host for _, host, *_ in devices if host and is_whole],
        devices=[device for *_, device, _ in devices if is_whole],
        gpus=[gpu for *_, gpu in devices if gpu],
        jobs=max(table.firsts, *table.cases.values(), 1),
        launch=table.launch,
        version=table.version,
        settings=table.settings,
        facts=table.facts if is_laid_out else {**table.facts, "nodes": [], "per_node": []},
        notes=[*_contradicted(table, number)],
        wrong_results=table.wrong_results,
        unlike=table.unlike or (OF_MANY if average is not None and not rates else None),
        malformed=table.malformed,
    ).of_ranks(number)


def read(name: str, text: str) -> list[Log]:
    """Returns the tables of a log; one without rows is a log whose table is missing.

    Args:
        name: the file.
        text: its content.
    """
    reader = _Reader()
    reader.read(text)
    for before, table in pairwise(reader.tables):  # a page shows devices before the command
        if before.devices and not before.rows and table.rows and not table.devices:
            table.devices, table.version = before.devices, table.version or before.version
    return [_log(name, table) for table in reader.tables if table.is_used] or [_log(name, reader.tables[0])]
