"""How long does `Fabric.simulate` take for many sizes, of all algorithms of a collective?

    python benches/virtual_time.py [--to 512M] [--on hgx-h100] [--each]

The 30 sizes are the powers of two from 8 B to 4 GiB, a call of `simulate` has them all, and each algorithm is one call:
what a plot of algorithms over sizes asks for. Medians of five, one core. Bar: 50 ms for all algorithms of all_reduce
together. `--each` adds a table of every algorithm at every size, each in a call of its own with what a call costs once.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence

import nvcoll
from nvcoll._nvcoll import algorithms
from nvcoll.cli import sizes

ROUNDS, BAR_MS = 5, 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--on", default="hgx-h100")
    parser.add_argument("--collective", default="all_reduce")
    parser.add_argument("--to", default="4G", help="the largest size")
    parser.add_argument("--each", action="store_true", help="every size too")
    asked = parser.parse_args()
    swept = [1 << power for power in range(3, sizes.parse(asked.to).bit_length())]
    names = [row.name for row in algorithms() if row.collective == asked.collective]
    fabric, total = nvcoll.fabric(asked.on), 0.0
    for name in names:
        spent = milliseconds(fabric, name, swept, asked)
        total += spent
        print(f"{name:20} {len(swept)} sizes {spent:8.2f} ms", flush=True)
        for nbytes in swept if asked.each else ():
            print(f"{name:20} {nbytes:10d} B {milliseconds(fabric, name, [nbytes], asked):8.2f} ms", flush=True)
    print(f"{'all':20} {len(swept)} sizes {total:8.2f} ms, bar {BAR_MS}: {'holds' if total < BAR_MS else 'MISSED'}")
    raise SystemExit(total >= BAR_MS)


def milliseconds(fabric: nvcoll.Fabric, name: str, swept: Sequence[int], asked: argparse.Namespace) -> float:
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        fabric.simulate(name, swept, collective=asked.collective)
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e3


if __name__ == "__main__":
    main()
