"""Benchmarks of transfers of caches: NIXL's nixlbench, and ``transfer_engine_bench`` of Mooncake.

nixlbench has a row per size of a block; a transfer is several blocks, and each costs `BLOCK_US` besides its bytes.
Mooncake prints one rate. Each process has one GPU: its transfers are beside the route to the GPU of the same number in
the next node, or to the next GPU if the machine is one node. Transfers of Mooncake are beside the cards that it opened.
Transfers below 1 MiB depend on the software and are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nvcoll._nvcoll import Fabric
from nvcoll.check.lines import cleaned
from nvcoll.check.log import Log
from nvcoll.check.row import Row
from nvcoll.check.tool import NUMBER, Tool, at_rate, card
from nvcoll.text.formatting import sized

LEAST = 1 << 20
"""Bytes from which a transfer is judged. Chosen, as for nccl-tests."""

BLOCK_US = 3.1
"""Microseconds of the software for a block: nixl#115, where the time does not depend on the size up to 256 KiB."""

SHORTEST_S = 1.0
"""Seconds below which a run of Mooncake is no measurement. Chosen: its default is 10."""

TRUST, SPREAD = "not validated", 1.5

_ROW = re.compile(rf"\d{{1,15}}\s+\d{{1,9}}(?:\s+{NUMBER}){{2,}}")
_DONE = re.compile(rf"duration ({NUMBER}), batch count \d+, throughput ({NUMBER})")
_CARD = re.compile(r"RDMA device: (\w+)")
MARK = re.compile(r"Block Size \(B\)|batch count \d+, throughput")


def _pair(fabric: Fabric) -> float:
    """Returns the GB/s between a GPU and its peer in the next node, or in its own if there is one."""
    peer = fabric.world_size // fabric.nodes if fabric.nodes > 1 else 1
    return fabric.alone(first=peer + 1)[0][peer]


def _nixlbench_us(fabric: Fabric, row: Row) -> float:
    """Returns the time of a transfer, of which a row's case has the number of blocks."""
    return int(row.case.split()[0]) * BLOCK_US + row.nbytes / _pair(fabric) / 1e3


def _mooncake(line: int, seconds: float, rate: float, cards: int) -> Log:
    """Returns the log of a run of Mooncake: its duration, its GB/s, and the number of cards that it opened."""
    tool = Tool(at_rate(lambda fabric: cards * card(fabric) if cards else _pair(fabric)), TRUST, SPREAD)
    rows = [Row(line, round(seconds * rate * 1e9), seconds * 1e6, None)] if seconds * rate else []
    short = f"the run took {seconds:g} s: too short to measure a rate (--duration=10)"
    return Log("", "Mooncake transfer", None, rows, tool=tool, unlike=short if seconds < SHORTEST_S else None)


def read(text: str) -> Iterator[Log]:
    """Yields nixlbench's table, and Mooncake's results."""
    columns: list[str] = []
    rows: list[Row] = []
    cards: set[str] = set()
    for number, line in cleaned(text):
        if line.startswith("Block Size (B)"):
            columns = re.split(r"(?<=\)) +|\s{2,}", line)
        elif "B/W (GB/Sec)" in columns and _ROW.fullmatch(line):
            values = dict(zip(columns, map(float, line.split()), strict=False))
            rate, block, batch = values.get("B/W (GB/Sec)", 0.0), *map(int, [*values.values()][:2])
            if block * batch >= LEAST:
                us = block * batch / rate / 1e3 if rate > 0 else 0.0
                rows.append(Row(number, block * batch, us, None, f"{batch} x {sized(block)}"))
        cards.update(_CARD.findall(line))
        if done := _DONE.search(line):
            yield _mooncake(number, float(done[1]), float(done[2]), len(cards))
    if rows:
        yield Log("", "nixlbench transfer", None, rows, tool=Tool(_nixlbench_us, TRUST, SPREAD))
