"""perftest: ``ib_write_bw``, ``ib_send_lat`` and the others, beside one card of the machine's network.

A rate is that of a port, or of the PCIe link of its card if this is slower; twice, if the test is bidirectional. The
latency of a short message is `ONE_WAY_US`; of a read, twice that. MB are 2^20 bytes, Gb 10^9 bits. A log of a loopback
test may have the rows of client and server in one table. Source: linux-rdma/perftest, ``perftest_resources.h``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from nvcoll._nvcoll import Fabric
from nvcoll.check.lines import cleaned
from nvcoll.check.log import Log
from nvcoll.check.row import Row
from nvcoll.check.tool import NUMBER, Tool, at_rate, card, cross_node

ONE_WAY_US = 2.5
"""Microseconds through some switches. Chosen: public logs have 1.0 on ConnectX-3, 1.5 on ConnectX-7, 2.8 in a block."""

SHORT, FULL = 256, 64 << 10
"""Bytes up to which a message has the latency of an empty one, and from which it fills a card. Chosen."""

LEAST_OF_PEAK = 0.5
"""The share of the peak below which an average tells nothing: the run is short, or has pauses. Chosen."""

_TEST = re.compile(r"\b(?:RDMA_)?(Write|Read|Send)(?: (Bidirectional))? (?:BW|Latency) Test\b|^Outstand (read)s\b")
_COMMAND = re.compile(r"\bib_(write|read|send)_(?:bw|lat)\b()()")
_HEAD = re.compile(r"#\w+|[\w.%]+(?: \w+)?\[[^]]+\]")
_ROW = re.compile(rf"\d{{1,15}}(?:\s+{NUMBER}){{2,}}")
_RATES = {"BW average[Gb/sec]": 1e9 / 8, "BW average[MB/sec]": 1 << 20}
_TIMES = ("t_typical[usec]", "t_avg[usec]")
MARK = re.compile(r"#bytes")
_LINK = re.compile(r"\bLink type\s*: (IB|Ethernet)\b")
_FAILED = re.compile(r"\b(Completion with error|Failed (?:to|status) [\w ]+|Couldn't [\w ]+)")


def _latency_us(fabric: Fabric, row: Row, *, ways: int) -> float:
    """Returns the time of a short message, for which the machine has a network."""
    cross_node(fabric)
    return ONE_WAY_US * ways


def bandwidth(ways: int = 1) -> Tool:
    """Returns how the rate of a card is predicted, in one direction or both."""
    return Tool(at_rate(lambda fabric: ways * card(fabric)), "line rate of a card", 1.2, is_of_card=True)


@dataclass
class _Table:
    """A table that is being read."""

    what: str = "perftest"
    ways: int = 1
    rows: dict[int, Row] = field(default_factory=dict)
    parts: dict[int, float] = field(default_factory=dict)
    """Of each size the average as a part of the peak."""
    facts: dict[str, list[str]] = field(default_factory=dict)

    def logs(self, is_rate: bool) -> Iterator[Log]:
        """Yields the log of the table: sizes that fill a card, or short ones if it has latencies."""
        rows, unlike = [row for row in self.rows.values() if row.nbytes <= SHORT], None
        tool = Tool(partial(_latency_us, ways=2 if self.what == "read" else 1), "not validated", 3.0, is_latency=True)
        if is_rate:
            tool, rows = bandwidth(self.ways), [row for row in self.rows.values() if row.nbytes >= FULL]
            rows = rows or [*self.rows.values()][-1:]
            part = min((self.parts[row.nbytes] for row in rows), default=1.0)
            if part < LEAST_OF_PEAK:
                unlike = f"the average is {100 * part:.0f} % of the peak: the run is short, or has pauses: pass -D 10"
        if rows:
            name = f"{self.what} {'bandwidth' if is_rate else 'latency'}"
            yield Log("", name, None, rows, tool=tool, unlike=unlike, facts=self.facts)


def read(text: str) -> Iterator[Log]:
    """Yields the tables of tests."""
    table, columns = _Table(), list[str]()
    for number, line in cleaned(text):
        if found := _TEST.search(line) or _COMMAND.search(line):
            yield from table.logs(any(one in columns for one in _RATES))
            table = _Table((found[1] or found[3]).lower(), 2 if found[2] else 1)
        elif found := _LINK.search(line):
            table.facts["medium"] = ["IB" if found[1] == "IB" else "RoCE"]
        elif found := _FAILED.search(line):
            table.facts.setdefault("failure", []).append(found[1])
        elif line.startswith("#bytes"):
            columns = [" ".join(one.split()) for one in _HEAD.findall(line)]
        elif _ROW.fullmatch(line) and (of := next((one for one in (*_RATES, *_TIMES) if one in columns), None)):
            size, *others = map(float, line.split())
            known = dict(zip(columns[1:], others, strict=False))
            value, peak = known.get(of, 0.0), known.get(of.replace("average", "peak"), 0.0)
            us = value if of in _TIMES else size / (value * _RATES[of]) * 1e6 if value > 0 else 0.0
            table.rows[int(size)] = Row(number, int(size), us, None)
            table.parts[int(size)] = value / peak if peak > 0 else 1.0
    yield from table.logs(any(one in columns for one in _RATES))
