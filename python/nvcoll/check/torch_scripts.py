"""Reads what common benchmark scripts of torch print: a table of scripts, and how each writes a row.

=============================================  =======================================  ==============================
script                                         sizes                                    rates
=============================================  =======================================  ==============================
ml-engineering ``all_reduce_bench.py``         KiB, MiB, GiB; first version: 10^9 bytes  means of 10^9 bytes/s
DeepSpeed ``ds_bench``, EleutherAI cookbook    elements x bytes: the input of a rank    Gbit/s; ``Throughput`` of
                                                                                        all_reduce is twice size / time
PARAM ``comms.py``                             bytes, as nccl-tests counts them         10^9 bytes/s
IBM ``allreduce-loop.py`` and others           10^6 bytes, as nccl-tests counts them    10^9 bytes/s
=============================================  =======================================  ==============================

So the time of a row is taken where it is printed, and size / algbw else. The number of ranks comes from the head, or
from busbw and the time of the largest size. Each call waits for the one before, so small sizes tell little. Formats
are those of the scripts in stas00/ml-engineering, EleutherAI/cookbook, facebookresearch/param and
IBM/pytorch-communication-benchmarks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from nvcoll._nvcoll import collective_spelled
from nvcoll.check.lines import cleaned
from nvcoll.check.log import Log, Row
from nvcoll.check.nccl_tests import MOST_BYTES

_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "MB": 1e6, "GB": 1e9, "us": 1, "ms": 1e3, "s": 1e6}
_N = r"\d+(?:\.\d+)?"


@dataclass(frozen=True)
class _Script:
    """How a script writes its table."""

    head: re.Pattern[str]
    """Begins a table; may name collective, ranks, size and unit."""
    row: re.Pattern[str]
    begins: re.Pattern[str]
    """A line that is a row, whole or not."""
    unit: str = "B"
    """The unit of sizes, if the row has none."""


def _script(head: str, row: str, begins: str, unit: str = "B") -> _Script:
    return _Script(re.compile(head), re.compile(row), re.compile(begins), unit)


SCRIPTS = (
    _script(
        rf"average bandwidth of (?P<collective>\w+) with a (?P<size>{_N})(?P<unit>GB) payload "
        r".*\b(?P<ranks>\d{1,6}) ranks",
        rf"\balgbw: (?P<algbw>{_N}) GBps",
        r"\balgbw:",
    ),
    _script(
        r"average bandwidth of (?P<collective>\w+) over (?P<ranks>\d{1,6}) ranks|\| payload \| +busbw +\| +algbw +\|",
        rf"\| +(?P<size>\d+)(?P<unit>[KMG]?i?B) \| +(?P<busbw>{_N})GBps \| +(?P<algbw>{_N})GBps \|$",
        r"\| +\d+[KMG]?i?B \|",
    ),
    _script(
        r"---- Performance of (?P<collective>[\w ]+) on (?P<ranks>\d{1,6}) devices",
        rf"\b(?P<size>\d+)x(?P<width>\d+)\s+(?P<time>{_N})(?: (?P<time_unit>us|ms|s))?\s+{_N}\s+{_N}$",
        r"\b\d+x\d+\s",
    ),
    _script(
        r"COMMS-RES\s+(?:total-)?size \(B\)",
        rf"COMMS-RES-(?P<collective>[a-z_]+)-\S+\s+(?P<size>\d+)\s+\d+\s+(?P<time>{_N})(?:\s+{_N}){{2,4}}"
        rf"\s+(?P<algbw>{_N})\s+(?P<busbw>{_N})(?:\s+{_N})?$",
        r"COMMS-RES-[a-z]",
    ),
    _script(
        r"size\(MB\)\s+tavg\(usec\)\s+tmin\(usec\)\s+tmax\(usec\)\s+avgbw",
        rf"(?:^|\s)(?P<size>{_N})\s+(?P<time>{_N})\s+{_N}\s+{_N}\s+(?P<busbw>{_N})\s+{_N}\s+{_N}$",
        rf"^{_N}\s+{_N}",
        "MB",
    ),
)

_RANKS = re.compile(r"\b(?:groupSize|World size\s*:|world size =|group size =)\s*(\d{1,6})\b")
_VERSION = re.compile(r"\b(?:nccl=|NCCL version\s*[:=]\s*)\((\d+), (\d+), (\d+)\)")
_GPU = re.compile(r"_CudaDeviceProperties\(name='([^']+)'")
_PROGRAM = re.compile(r"\b(?:megatron-)?(allreduce|allgather|reduce-scatter)(?:-loop)?\.py\b")
_VARIANT = re.compile(r"_(?:base|single|into_tensor|tensor)$|(?<=all_to_all)v$")


def _named(found: re.Match[str]) -> dict[str, str]:
    return {name: word for name, word in found.groupdict().items() if word is not None}


@dataclass
class _Table:
    """A table that is being read."""

    script: _Script
    told: dict[str, str]
    rows: list[tuple[Row, float | None]] = field(default_factory=list)
    """Each with busbw, if it is printed."""
    malformed: list[tuple[int, str]] = field(default_factory=list)

    def read(self, number: int, line: str) -> None:
        """Takes a line, if it is a row."""
        if (found := self.script.row.search(line)) is None:
            if self.script.begins.search(line):
                self.malformed.append((number, "the row cannot be read and is left out"))
            return
        words = self.told | _named(found)
        self.told["collective"] = words.get("collective", "")
        nbytes = float(words["size"]) * float(words.get("width", "1")) * _UNITS[words.get("unit", self.script.unit)]
        if self.collective == "all_gather" and "width" in words:
            nbytes *= int(words["ranks"])
        algbw, busbw = (float(words[name]) if name in words else None for name in ("algbw", "busbw"))
        time = float(words["time"]) * _UNITS[words.get("time_unit", "us")] if "time" in words else None
        time = time or (nbytes / algbw / 1e3 if algbw else 0)
        if not (1 <= nbytes <= MOST_BYTES and 0 < time < MOST_BYTES):
            self.malformed.append((number, "a number is 0 or too large"))
        else:
            self.rows.append((Row(number, round(nbytes), time, None), busbw))

    @property
    def collective(self) -> str | None:
        """The collective that head or rows name."""
        return collective_spelled(_VARIANT.sub("", self.told.get("collective", "")).replace(" ", "_"))


def _ranks(collective: str | None, row: Row, busbw: float | None) -> int | None:
    """Returns the number of ranks that busbw / algbw tells."""
    part = (busbw or 0) * row.time_us * 1e3 / row.nbytes / (2 if collective == "all_reduce" else 1)
    return round(1 / (1 - part)) if 0 < part < 0.9995 and collective not in (None, "broadcast", "reduce") else None


def _tables(text: str) -> Iterator[_Table]:
    """Yields the tables with rows."""
    table: _Table | None = None
    for number, line in cleaned(text):
        begun = next(((one, found) for one in SCRIPTS if (found := one.head.search(line)) is not None), None)
        if begun is not None:
            told = _named(begun[1])
            if table is not None and not table.rows and not told:  # the second line of a head
                continue
            if table is not None and table.rows:
                yield table
            table = _Table(begun[0], told)
        elif table is not None:
            table.read(number, line)
    if table is not None and table.rows:
        yield table


def read(text: str, around: Log) -> Iterator[Log]:
    """Yields the tables of scripts of torch.

    Args:
        text: the content of a log.
        around: what its other lines tell: settings, facts, version.
    """
    program, version, gpu, told = (one.search(text) for one in (_PROGRAM, _VERSION, _GPU, _RANKS))
    for table in _tables(text):
        largest, busbw = max(table.rows, key=lambda row: row[0].nbytes)
        is_all_reduce = busbw is not None and busbw * largest.time_us * 1e3 > 1.01 * largest.nbytes
        collective = table.collective or collective_spelled(program[1] if program else "")
        collective = collective or ("all_reduce" if is_all_reduce else None)
        ranks = int(table.told["ranks"]) if "ranks" in table.told else int(told[1]) if told else None
        ranks = ranks or _ranks(collective, largest, busbw) or around.ranks
        yield replace(
            around,
            collective=collective,
            ranks=ranks,
            rows=[row for row, _ in table.rows],
            gpus=[gpu[1]] * (ranks or 0) if gpu else around.gpus,
            launch="framework",
            version=".".join(version.groups()) if version else around.version,
            malformed=table.malformed,
        )
