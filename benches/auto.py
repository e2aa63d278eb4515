"""How far is what auto takes from the fastest algorithm of the same bits, over every collective, mode and size?

    python benches/auto.py [--ranks 2 8] [--rounds 15] [--modes tile staged ranks] [--table FILE]

A line per collective, mode and number of ranks: the median over sizes of (time of auto's choice / time of the fastest,
a median of the rounds' ratios), the worst, and where that is. Candidates are timed in the same rounds, in an order
drawn at random, on data rewritten before every call. The bars: 1.10 on the median, 1.30 at worst.
"""

from __future__ import annotations

import argparse

import numpy as np

import nvcoll
from nvcoll._nvcoll import auto_candidates, collectives
from nvcoll.cli import sizes
from nvcoll.cli.explain import estimates
from nvcoll.cli.rounds import MODES, Call, measure

SIZES = ("256", "1K", "4K", "16K", "64K", "256K", "1M", "4M", "16M")
MEDIAN_BAR, WORST_BAR = 1.10, 1.30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 8])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--table")
    parser.add_argument("--modes", nargs="+", default=list(MODES))
    asked = parser.parse_args()
    print(f"{'collective':15} {'mode':7} {'ranks':>5}  {'median':>6}  {'worst':>6}  where")
    for collective in [name for name, *_ in collectives() if len(auto_candidates(name)) > 1]:
        for mode in asked.modes:
            for ranks in asked.ranks:
                print(line(collective, mode, ranks, asked), flush=True)


def line(collective: str, mode: str, ranks: int, asked: argparse.Namespace) -> str:
    """Measures one collective in one mode."""
    node = nvcoll.Node(ranks, tuning=asked.table)
    losses = []
    for text in SIZES:
        call = Call(collective, sizes.parse(text) // 4, ranks)
        chosen, _, candidates = estimates(node, mode, call)
        timed = measure(node, mode, call, [candidate.algorithm for candidate in candidates], asked.rounds)
        ratio = {name: float(np.median(np.divide(timed[chosen], seconds))) for name, seconds in timed.items()}
        fastest = max(ratio, key=ratio.__getitem__)
        losses.append((ratio[fastest], f"{text}: {chosen}, not {fastest}"))
    median, (worst, where) = np.median([loss for loss, _ in losses]), max(losses)
    verdict = "holds" if median <= MEDIAN_BAR and worst <= WORST_BAR else "MISSED"
    return f"{collective:15} {mode:7} {ranks:5}  {median:6.2f}  {worst:6.2f}  {verdict:7} {where if worst > 1 else ''}"


if __name__ == "__main__":
    main()
