"""How far is what auto takes from the fastest algorithm of the same bits, over every collective, mode and size?

    python benches/auto.py [COLLECTIVE ...] [--modes tile staged ranks] [--ranks 2 8] [--sizes 256 ... 16M]

A line per collective, mode and number of ranks: the median over sizes of (time of auto's choice / time of the fastest),
the worst, and where that is. The bars: 1.10 on the median, 1.30 at worst; ends with 1 if one is missed.

Candidates are timed in the same rounds, in an order drawn at random, after rounds in which nodes settle. The least of
many noisy times is too low: of seven equal candidates, one always seems faster. So the fastest is found in every second
round, and its ratio, a median, is that of the rounds between; then the other way round; the mean of both counts. Rounds
are made in several trials, each with arrays and threads of its own, whose pages and processors fall differently.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import nvcoll
from nvcoll._nvcoll import auto_candidates, collectives
from nvcoll.cli import sizes
from nvcoll.cli.bench.explain import estimates
from nvcoll.cli.bench.rounds import MODES, Call, measure

Times = dict[str, "np.ndarray[Any, Any]"]

SIZES = ("256", "1K", "4K", "16K", "64K", "256K", "1M", "4M", "16M")
MEDIAN_BAR, WORST_BAR = 1.10, 1.30
WITH_A_CHOICE = [row.name for row in collectives() if len(auto_candidates(row.name)) > 1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("collectives", nargs="*", metavar="COLLECTIVE", help=f"of {', '.join(WITH_A_CHOICE)}")
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=list(MODES))
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 8])
    parser.add_argument("--sizes", nargs="+", default=SIZES, help="bytes of a rank's longer buffer")
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=14, help="of each trial")
    parser.add_argument("--table", help="a tuning table in the place of the one that is shipped")
    asked = parser.parse_args()
    if unknown := set(asked.collectives) - set(WITH_A_CHOICE):
        parser.error(f"auto has no choice in {', '.join(sorted(unknown))}: choose from {', '.join(WITH_A_CHOICE)}")
    print(f"{'collective':15} {'mode':7} {'ranks':>5}  {'median':>6}  {'worst':>6}  where")
    all_hold = True
    for collective in asked.collectives or WITH_A_CHOICE:
        for mode in asked.modes:
            for ranks in asked.ranks:
                text, holds = line(collective, mode, ranks, asked)
                print(text, flush=True)
                all_hold &= holds
    raise SystemExit(not all_hold)


def line(collective: str, mode: str, ranks: int, asked: argparse.Namespace) -> tuple[str, bool]:
    """Measures one collective in one mode; says too whether the bars hold."""
    node = nvcoll.Node(ranks, tuning=asked.table)
    losses = []
    for text in asked.sizes:
        call = Call(collective, sizes.parse(text) // 4, ranks)
        chosen, _, candidates = estimates(node, mode, call)
        names = [candidate.algorithm for candidate in candidates]
        trials = [measure(node, mode, call, names, asked.rounds) for _ in range(asked.trials)]
        times = {name: np.concatenate([trial[name] for trial in trials]) for name in names}
        ratio, fastest = loss(times, chosen)
        losses.append((ratio, f"{text}: {chosen}, not {fastest}" if ratio > 1 else ""))
    median, (worst, where) = float(np.median([ratio for ratio, _ in losses])), max(losses)
    holds = median <= MEDIAN_BAR and worst <= WORST_BAR
    verdict = "holds" if holds else "MISSED"
    return f"{collective:15} {mode:7} {ranks:5}  {median:6.2f}  {worst:6.2f}  {verdict:7} {where}", holds


def loss(times: Times, chosen: str) -> tuple[float, str]:
    """Returns how many times as long the chosen one takes as the fastest, and a name of that."""
    ratios, fastest = [], chosen
    for found_in, counted_in in ((0, 1), (1, 0)):
        ratio = {name: np.median(times[chosen][found_in::2] / x[found_in::2]) for name, x in times.items()}
        fastest = max(ratio, key=ratio.__getitem__)
        ratios.append(float(np.median(times[chosen][counted_in::2] / times[fastest][counted_in::2])))
    return float(np.mean(ratios)), fastest


if __name__ == "__main__":
    main()
