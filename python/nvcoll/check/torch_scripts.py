"""Reads what common benchmark scripts of torch print: a table of scripts, and how each writes a row.

=============================================  =======================================  ==============================
script                                         sizes                                    rates
=============================================  =======================================  ==============================
ml-engineering ``all_reduce_bench.py``         KiB, MiB, GiB; its first version: GB     means of 10^9 bytes/s
DeepSpeed ``ds_bench``, EleutherAI cookbook    elements x bytes: the input of a rank    Gbit/s; ``Throughput`` of
                                                                                        all_reduce is twice size / time
PARAM ``comms.py``                             bytes, as nccl-tests counts them         10^9 bytes/s
IBM ``allreduce-loop.py`` and others           10^6 bytes, as nccl-tests counts them    10^9 bytes/s
=============================================  =======================================  ==============================

So the time of a row is taken where it is printed, and size / algbw else. The number of ranks comes from the head, or
from busbw and the time of the largest size. Each call waits for the one before, so small sizes mean little. Formats
are from the scripts in stas00/ml-engineering, EleutherAI/cookbook, facebookresearch/param and
IBM/pytorch-communication-benchmarks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from nvcoll._nvcoll import collective_spelled
from nvcoll.check.lines import cleaned
from nvcoll.check.log import Log
from nvcoll.check.nccl_tests import MOST_BYTES
from nvcoll.check.ranks import Interval, as_printed, factor_of, permitted, plainest
from nvcoll.check.row import Row

_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "MB": 1e6, "GB": 1e9, "us": 1, "ms": 1e3, "s": 1e6}
_N = r"\d+(?:\.\d+)?"


class _Script(NamedTuple):
    """How a script writes its table: patterns."""

    head: str
    """Begins a table; may name collective, ranks, size and unit."""
    row: str
    begins: str
    """A line that is a row, whole or not."""
    unit: str = "B"
    """The unit of sizes, if the row has none."""


SCRIPTS = (
    _Script(
        rf"average bandwidth of (?P<collective>\w+) with a (?P<size>{_N})(?P<unit>GB) payload "
        r".*\b(?P<ranks>\d{1,6}) ranks",
        rf"\balgbw: (?P<algbw>{_N}) GBps",
        r"\balgbw:",
    ),
    _Script(
        r"average bandwidth of (?P<collective>\w+) over (?P<ranks>\d{1,6}) ranks|\| payload \| +busbw +\| +algbw +\|",
        rf"\| +(?P<size>\d+)(?P<unit>[KMG]iB|B) \| +(?P<busbw>{_N})GBps \| +(?P<algbw>{_N})GBps \|$",
        r"\| +\d+(?:[KMG]iB|B) \|",
    ),
    _Script(
        r"---- Performance of (?P<collective>[\w ]+) on (?P<ranks>\d{1,6}) devices",
        rf"\b(?P<size>\d+)x(?P<width>\d+)\s+(?P<time>{_N})(?: (?P<time_unit>us|ms|s))?\s+{_N}\s+{_N}$",
        r"\b\d+x\d+\s",
    ),
    _Script(
        r"COMMS-RES\s+(?:total-)?size \(B\)",
        rf"COMMS-RES-(?P<collective>[a-z_]+)-\S+\s+(?P<size>\d+)\s+\d+\s+(?P<time>{_N})(?:\s+{_N}){{2,4}}"
        rf"\s+(?P<algbw>{_N})\s+(?P<busbw>{_N})(?:\s+{_N})?$",
        r"COMMS-RES-[a-z]",
    ),
    _Script(
        r"size\(MB\)\s+tavg\(usec\)\s+tmin\(usec\)\s+tmax\(usec\)\s+avgbw",
        rf"(?:^|\s)(?P<size>{_N})\s+(?P<time>{_N})\s+{_N}\s+{_N}\s+(?P<busbw>{_N})\s+{_N}\s+{_N}$",
        rf"^{_N}\s+{_N}",
        "MB",
    ),
)

MARK = re.compile(r"average bandwidth of|\| payload|---- Performance of|COMMS-RES|size\(MB\)")
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
    header: dict[str, str]
    collective: str | None = None
    rows: list[tuple[Row, Interval | None]] = field(default_factory=list)
    """Each with busbw / algbw, if busbw is printed."""
    malformed: list[tuple[int, str]] = field(default_factory=list)

    def read(self, number: int, line: str) -> None:
        """Takes a line, if it is a row."""
        if (found := re.search(self.script.row, line)) is None:
            if re.search(self.script.begins, line):
                self.malformed.append((number, "the row cannot be read and is left out"))
            return
        words = self.header | _named(found)
        self.collective = collective_spelled(_VARIANT.sub("", words.get("collective", "")).replace(" ", "_"))
        nbytes = float(words["size"]) * float(words.get("width", 1)) * _UNITS[words.get("unit", self.script.unit)]
        if self.collective == "all_gather" and "width" in words:
            nbytes *= int(words["ranks"])
        time, algbw = (float(words.get(name, 0)) for name in ("time", "algbw"))
        time = time * _UNITS[words.get("time_unit", "us")] or (algbw and nbytes / algbw / 1e3)
        if not (1 <= nbytes <= MOST_BYTES and 0 < time < MOST_BYTES):
            self.malformed.append((number, "a number is 0 or too large"))
            return
        factor = None
        if "busbw" in words:
            rate = as_printed(words["algbw"]) if "algbw" in words else (nbytes / time / 1e3,) * 2
            factor = factor_of(rate, as_printed(words["busbw"]))
        self.rows.append((Row(number, round(nbytes), time, None), factor))


def _tables(text: str) -> list[_Table]:
    """Returns the tables with rows."""
    tables: list[_Table] = []
    for number, line in cleaned(text):
        found = next(((one, _named(head)) for one in SCRIPTS if (head := re.search(one.head, line))), None)
        if found is not None:
            if found[1] or not tables or tables[-1].rows:  # not the second line of a head
                tables.append(_Table(*found))
        elif tables:
            tables[-1].read(number, line)
    return [table for table in tables if table.rows]


def read(text: str, around: Log) -> Iterator[Log]:
    """Yields the tables of scripts of torch.

    Args:
        text: the content of a log.
        around: from its other lines: settings, facts, version.
    """
    program, version, gpu, counted = (one.search(text) for one in (_PROGRAM, _VERSION, _GPU, _RANKS))
    for table in _tables(text):
        _, factor = max(table.rows, key=lambda row: row[0].nbytes)
        named = table.collective or collective_spelled(program[1] if program else "")
        collective = named or ("all_reduce" if factor and factor[0] > 1 else None)
        told, between = int(table.header.get("ranks") or (counted[1] if counted else 0)), permitted(collective, factor)
        ranks = told or (plainest(*between) if between else around.ranks)
        yield replace(
            around,
            collective=collective,
            ranks=ranks,
            ranks_between=None if told else between,
            factor=factor,
            rows=[row for row, _ in table.rows],
            gpus=[gpu[1]] * (ranks or 0) if gpu else around.gpus,
            launch="framework",
            version=".".join(version.groups()) if version else around.version,
            malformed=table.malformed,
        )
