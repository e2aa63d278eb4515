"""How far predictions of `nvcoll check` are from what healthy machines print in DeepEP's tests.

    python tools/check/deepep.py            # a line per row, and medians
    python tools/check/deepep.py --write   # writes the medians in the page

`data/deepep/healthy.csv` has tables of DeepEP's README, and figures of threads whose authors or maintainers found them
right. UCCL-EP and MORI print the same figures, and are other software.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from nvcoll._nvcoll import InvalidArgument, fabric
from nvcoll.check import deepep
from nvcoll.check.row import Row

TABLE = Path(__file__).parents[2] / "data" / "deepep" / "healthy.csv"
PAGE = Path(__file__).parents[2] / "docs" / "predict" / "check.md"
BEGIN, END = "<!-- deepep -->\n", "<!-- end of deepep -->\n"
HIDDEN = 7168


def rates(row: Mapping[str, str], gpus: int, nodes: int) -> tuple[float, float]:
    """Returns the rates over cards and over NVLink; a README prints only one of them."""
    card, nvlink = (float(row[name] or 0) for name in ("card_gbs", "nvlink_gbs"))
    if row["kind"] == "intranode":
        return 0.0, nvlink
    groups = min(int(row["topk_groups"] or nodes), nodes)
    return card, nvlink or card * deepep.distinct(groups * gpus) / deepep.distinct(groups)


def error(row: Mapping[str, str]) -> tuple[float, float]:
    """Returns what was measured and predicted: GB/s, or microseconds of a low latency call."""
    machine = fabric(row["on"])
    if row["kind"] == "low_latency":
        per_token = HIDDEN * 2 if row["dtype"] == "bf16" else HIDDEN + HIDDEN // 128 * 4 + 16
        both, time = "+" in row["dtype"], float(row["time_us"])
        nbytes = 128 * deepep.TOP_K * (per_token + HIDDEN * 2 * both)
        found = deepep.low_latency(1 + both)
        us = found.older_us if row["release"] == "V1 before 2025-06" and found.older_us else found.time_us
        return time, us(machine, Row(1, nbytes, time, None))
    sms, release = float(row["sms"] or 0), row["release"]
    card, nvlink = rates(row, machine.world_size // machine.nodes, machine.nodes)
    nbytes = 10**9
    return card or nvlink, nbytes / deepep.throughput(card, nvlink, sms, release, row["dtype"].upper()).time_us(
        machine, Row(1, nbytes, None, None)
    ) / 1e3


def main() -> None:
    """Prints a line for each row, and medians."""
    errors: dict[str, list[float]] = {}
    for row in csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines()):
        is_late = row["kind"] == "low_latency"
        words = f"{row['name']:28} {row['on']:26} {row['kind']:12} {row['what'][:8]:8} {row['dtype']:9}"
        try:
            measured, predicted = error(row)
        except InvalidArgument as refused:
            print(f"{words} {refused}")
            continue
        off = (measured / predicted if is_late else predicted / measured) - 1
        unit = "us" if is_late else "GB/s"
        print(f"{words} {measured:7.1f} {predicted:7.1f} {unit:4} {100 * off:+5.0f} %")
        known = {"readme": "README", "held": "held out"}
        source = known.get(row["name"].partition("-")[0], "threads")
        group = row["release"] if row["release"] in ("UCCL-EP", "MORI") else f"DeepEP {row['release']}, {source}"
        errors.setdefault(group, []).append(abs(off))
    lines = ["| tables and threads | rows | median error | largest error |", "|---|---|---|---|"]
    for group, known in errors.items():
        lines.append(f"| {group} | {len(known)} | {100 * median(known):.0f} % | {100 * max(known):.0f} % |")
    medians = "\n".join(lines) + "\n"
    print(f"\n{medians}", end="")
    if "--write" in sys.argv:
        before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}{medians}{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
