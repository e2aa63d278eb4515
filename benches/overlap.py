"""How long do computing and a call that returns at once take together, and what does the waiting cost?

    python benches/overlap.py                             as many ranks as leave each a free core
    python benches/overlap.py --ranks 2 --size 64M --rounds 30

A rank is a process. In every round it times, in an order drawn at random:

    compute   a loop in its own cache, about as long as the call
    call      all_reduce that blocks, into another array
    both      all_reduce with `async_op`, the loop, `wait`

The slowest rank counts. Printed are medians over rounds, and the median of the rounds' ratios: `both` by the longer of
the two, which may be 1.15 where each rank has a core for its calls; and `both` by their sum, which says on fewer cores
whether anything is wasted. One rank alone copies.

Then rank 0 issues a barrier which its peers enter a second later: the CPU time of the thread that waits, per second.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import nvcoll
from nvcoll._nvcoll import parse_size

BAR = 1.15
WAIT_S = 1.0
Round = dict[str, float]


def computing(seconds: float) -> Callable[[], None]:
    """Returns a loop that takes about so long."""
    x = np.full(1024, 2.0)

    def loop(times: int) -> None:
        for _ in range(times):
            np.sqrt(x, out=x)

    times, took = 1000, 0.0
    while took < 0.05:
        times *= 2
        begun = time.perf_counter()
        loop(times)
        took = time.perf_counter() - begun
    wanted = max(1, round(times * seconds / took))
    return lambda: loop(wanted)


def slowest(comm: nvcoll.Communicator, own: float) -> float:
    return float(comm.all_reduce(np.array([own]), "max")[0])


def timed(comm: nvcoll.Communicator, work: Callable[[], object]) -> float:
    comm.barrier()
    begun = time.perf_counter()
    work()
    return slowest(comm, time.perf_counter() - begun)


def rounds(comm: nvcoll.Communicator, nbytes: int, number: int) -> list[Round]:
    """Is one rank; returns the times of each round."""
    x = np.ones(nbytes // 4, "f4")
    y = np.zeros_like(x)
    call = lambda: comm.all_reduce(x, out=y)  # noqa: E731
    compute = computing(statistics.median(timed(comm, call) for _ in range(5)))

    def both() -> None:
        work = comm.all_reduce(x, out=y, async_op=True)
        compute()
        work.wait()

    sides = {"compute": compute, "call": call, "both": both}
    order, found = random.Random(0), []
    for _ in range(number):
        names = order.sample(list(sides), len(sides))
        found.append({name: timed(comm, sides[name]) for name in names})
        assert y[0] == y[-1] == comm.world_size
    return found


def waiting(comm: nvcoll.Communicator) -> float | None:
    """Returns the CPU seconds per second of the thread that waits on rank 0; None where the system does not say."""
    if comm.rank != 0:
        time.sleep(WAIT_S)
        comm.barrier()
        return None
    begun = time.perf_counter()
    before = cpu_s_of_progress()
    comm.barrier(async_op=True).wait()
    return None if before is None else ((cpu_s_of_progress() or 0.0) - before) / (time.perf_counter() - begun)


def cpu_s_of_progress() -> float | None:
    """Returns the CPU time of the progress thread, on which calls run that returned at once."""
    named = (task for task in Path("/proc/self/task").iterdir() if (task / "comm").read_text() == "nvcoll-progress\n")
    try:
        return sum(int((task / "schedstat").read_text().split()[0]) for task in named) / 1e9
    except FileNotFoundError:
        return None


def one_rank(comm: nvcoll.Communicator, nbytes: int, number: int) -> tuple[list[Round], float | None]:
    return rounds(comm, nbytes, number), waiting(comm)


def main() -> None:
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=max(1, cores // 2), help="processes; default: half of the cores")
    parser.add_argument("--size", default="64M", help="bytes of the array of a rank")
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    found, cpu = nvcoll.spawn(one_rank, arguments.ranks, (parse_size(arguments.size), arguments.rounds))[0]
    ranks = f"{arguments.ranks} rank{'s' * (arguments.ranks > 1)} on {cores} cores"
    print(f"all_reduce of {arguments.size}, {ranks}, {arguments.rounds} rounds")
    for name in ("compute", "call", "both"):
        print(f"  {name:8} {1e3 * statistics.median(one[name] for one in found):8.2f} ms")
    ratios = statistics.median(one["both"] / max(one["compute"], one["call"]) for one in found)
    of_sum = statistics.median(one["both"] / (one["compute"] + one["call"]) for one in found)
    print(f"  both by the longer {ratios:.2f} (bar {BAR}), by the sum {of_sum:.2f}")
    if cpu is not None and arguments.ranks > 1:
        print(f"  a call that waits takes {1e6 * cpu:.0f} us of CPU time per second")
    if cores < 2 * arguments.ranks:
        print(
            f"  too few cores for the bar, which gives each rank a core for its calls: {2 * arguments.ranks} are needed"
        )


if __name__ == "__main__":
    main()
