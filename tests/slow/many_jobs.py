"""Runs many jobs of processes, and says what is left of them.

    python tests/slow/many_jobs.py          500 jobs of 2 ranks one after the other, then 20 jobs of 3 ranks at once
    python tests/slow/many_jobs.py 20 5     fewer

Each rank is a process of its own, forked off a server that has imported nvcoll. Every second job ends without leaving.
Then the same two processes join as many jobs one after the other.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "lib"))
from processes import WAIT_S, children, open_things, wait_until

import nvcoll


class Left(NamedTuple):
    """What a job may leave: descriptors and mappings of this process, processes, files in /dev/shm, named sockets."""

    descriptors: int
    mappings: int
    processes: frozenset[int]
    files: tuple[str, ...]
    sockets: tuple[str, ...]


def left() -> Left:
    """Looks at this process and the machine. Names count if they say nvcoll; jobs of others may run beside this one."""
    descriptors, mappings = open_things()
    files = sorted(name for name in os.listdir("/dev/shm") if "nvcoll" in name)
    with open("/proc/net/unix") as lines:
        sockets = sorted(line.split()[-1] for line in lines if f"many-{os.getpid()}-" in line)
    return Left(descriptors, mappings, frozenset(children()), tuple(files), tuple(sockets))


def take_part(rank: int, world_size: int, name: str) -> None:
    """Joins a job, and makes calls on memory of every kind."""
    comm = nvcoll.init(rank, world_size, name, timeout=WAIT_S, join_timeout=WAIT_S)
    group = comm.split(0)
    for x in (comm.full(1000, rank + 1.0), np.full(1000, rank + 1.0)):
        assert (group.all_reduce(x) == world_size * (world_size + 1) / 2).all()
    comm.barrier()


def rank_of_one_job(rank: int, world_size: int, name: str, leaves: bool) -> None:
    take_part(rank, world_size, name)
    if leaves:
        nvcoll.finalize()


def rank_of_many_jobs(rank: int, world_size: int, name: str, count: int) -> None:
    for nth in range(count + 2):
        if nth == 2:  # the first ones load and cache
            before = open_things()
        take_part(rank, world_size, f"{name}-{nth}")
        nvcoll.finalize()
    assert open_things() == before, (open_things(), before)


def run(jobs: list[tuple]) -> None:
    """Runs jobs side by side to their ends; each is its program, number of ranks, name and an argument."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["numpy", "nvcoll", "processes"])
    ranks = [
        context.Process(target=program, args=(rank, world_size, name, argument))
        for program, world_size, name, argument in jobs
        for rank in range(world_size)
    ]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(WAIT_S)
        status = rank.exitcode
        rank.kill()
        rank.join()
        rank.close()
        assert status == 0, f"a rank ended with status {status}"


def check(in_a_row: int, at_once: int) -> str:
    """Runs the jobs; returns what was run and what was left, in words. Fails if anything was left."""
    name = f"many-{os.getpid()}-"
    run([(rank_of_one_job, 2, f"{name}first", True)])  # starts the server, which stays
    before, began = left(), time.monotonic()
    for nth in range(in_a_row):
        run([(rank_of_one_job, 2, f"{name}{nth}", nth % 2 == 0)])
    run([(rank_of_one_job, 3, f"{name}beside-{nth}", nth % 2 == 0) for nth in range(at_once)])
    run([(rank_of_many_jobs, 2, f"{name}again", in_a_row)])
    wait_until(lambda: left() == before)
    return (
        f"{in_a_row} jobs of 2 ranks in a row, {at_once} of 3 ranks at once, {in_a_row} of the same 2 processes: "
        f"{time.monotonic() - began:.0f} s, nothing left ({before})"
    )


if __name__ == "__main__":
    counts = [int(word) for word in sys.argv[1:]] or [500, 20]
    print(check(*counts))
