"""perftest: ``ib_write_bw``, ``ib_send_lat`` and the others, beside one card of the machine's network.

A rate is that of a port, or of the PCIe link of its card if this is slower; twice, if the test is bidirectional. The
latency of a short message is `ONE_WAY_US`; of a read, twice that. MB are 2^20 bytes, Gb 10^9 bits. A log of a loopback
test may have the rows of client and server in one table. Source: linux-rdma/perftest, ``perftest_resources.h``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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

_TEST = re.compile(r"\b(?:RDMA_)?(Write|Read|Send)(?: (Bidirectional))? (?:BW|Latency) Test\b|^Outstand (read)s\b")
_COMMAND = re.compile(r"\bib_(write|read|send)_(?:bw|lat)\b()()")
_HEAD = re.compile(r"#\w+|[\w.%]+(?: \w+)?\[[^]]+\]")
_ROW = re.compile(rf"\d{{1,15}}(?:\s+{NUMBER}){{2,}}")
_RATES = {"BW average[Gb/sec]": 1e9 / 8, "BW average[MB/sec]": 1 << 20}
_TIMES = ("t_typical[usec]", "t_avg[usec]")
MARK = re.compile(r"#bytes")


def _latency_us(fabric: Fabric, row: Row, *, ways: int) -> float:
    """Returns the time of a short message, for which the machine has a network."""
    cross_node(fabric)
    return ONE_WAY_US * ways


def bandwidth(ways: int = 1) -> Tool:
    """Returns how the rate of a card is predicted, in one direction or both."""
    return Tool(at_rate(lambda fabric: ways * card(fabric)), "line rate of a card", 1.2)


def _logs(what: str, ways: int, columns: list[str], values: dict[int, tuple[int, float]]) -> Iterator[Log]:
    """Yields the log of a table: of each size its line, and its value in the column that counts."""
    large = [size for size in values if size >= FULL] or [*values][-1:]
    for column, unit in _RATES.items():
        if column in columns and large:
            rows = [Row(values[size][0], size, size / (values[size][1] * unit) * 1e6, None) for size in large]
            yield Log("", f"{what} bandwidth", None, rows, tool=bandwidth(ways))
    short = [Row(line, size, us, None) for size, (line, us) in values.items() if size <= SHORT]
    if short and any(column in columns for column in _TIMES):
        us = partial(_latency_us, ways=2 if what == "read" else 1)
        yield Log("", f"{what} latency", None, short, tool=Tool(us, "not validated", 3.0, is_latency=True))


def read(text: str) -> Iterator[Log]:
    """Yields the tables of tests."""
    what, ways, columns = "perftest", 1, list[str]()
    values: dict[int, tuple[int, float]] = {}
    for number, line in cleaned(text):
        if found := _TEST.search(line) or _COMMAND.search(line):
            yield from _logs(what, ways, columns, values)
            values = {}
            what, ways = (found[1] or found[3]).lower(), 2 if found[2] else 1
        elif line.startswith("#bytes"):
            columns = [" ".join(one.split()) for one in _HEAD.findall(line)]
        elif _ROW.fullmatch(line) and (of := [one for one in (*_RATES, *_TIMES) if one in columns]):
            size, *others = map(float, line.split())
            value = dict(zip(columns[1:], others, strict=False)).get(of[0], 0.0)
            if value > 0:
                values[int(size)] = number, max(value, values.get(int(size), (0, 0.0))[1])
    yield from _logs(what, ways, columns, values)
