"""How fast are ranks on several hosts, against flat MPI and flat gloo in the same processes?

    python benches/hosts.py [--rate 1gbit] [--sizes 8 4M ...] [--calls all_reduce ...] [--mpirun PATH] [--python PATH]

Two hosts of two ranks are network namespaces of this machine (root, or user namespaces), whose interfaces send at most
`--rate`. mpirun starts all ranks in one job; the Python has nvcoll, mpi4py and torch. Without mpi4py and mpirun,
torchrun starts them, and MPI is left out. Each round makes every call of every engine once, in an order drawn at random
that all ranks share; the slowest rank counts. Arrays are rewritten before a call and its result is compared after it.

Printed are the median and the quartiles of the rounds, the ratio of medians to flat MPI and to flat gloo, and the bytes
that the busiest host sent, by those of the array. A machine with fewer cores than ranks measures its scheduler below a
millisecond.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from nvcoll import _nvcoll
from nvcoll._nvcoll import parse_size
from nvcoll.hosts.gloo import Gloo
from nvcoll.hosts.mpi import Mpi, end
from nvcoll.hosts.opening import open_world
from nvcoll.ranks.job import settings

CALLS = ("all_reduce", "reduce_scatter", "all_gather", "broadcast")
TWO_LEVEL = ("all_reduce", "reduce_scatter")
SENT = Path("/sys/class/net/e0/statistics/tx_bytes")
ROUND_S = 25.0
"""How long the rounds of a call and a size take together. Chosen."""

Call = Callable[[np.ndarray, np.ndarray], object]
"""A collective call: the longer array of a rank, and its shard of it."""


def flat_mpi(comm: Any, rank: int) -> dict[str, Call]:
    """Returns MPI's own calls."""
    from mpi4py import MPI

    return {
        "all_reduce": lambda x, shard: comm.Allreduce(MPI.IN_PLACE, x),
        "reduce_scatter": lambda x, shard: comm.Reduce_scatter_block(x, shard),
        "all_gather": lambda x, shard: comm.Allgather(shard, x),
        "broadcast": lambda x, shard: comm.Bcast(x, 0),
    }


def flat_gloo(group: Any, rank: int) -> dict[str, Call]:
    """Returns gloo's own calls, by torch."""
    import torch
    import torch.distributed as dist

    of = torch.from_numpy
    return {
        "all_reduce": lambda x, shard: dist.all_reduce(of(x), group=group),
        "reduce_scatter": lambda x, shard: dist.reduce_scatter_tensor(of(shard), of(x), group=group),
        "all_gather": lambda x, shard: dist.all_gather_into_tensor(of(x), of(shard), group=group),
        "broadcast": lambda x, shard: dist.broadcast(of(x), 0, group=group),
    }


def ours(comm: Any, algorithm: str | None) -> dict[str, Call]:
    """Returns nvcoll's calls."""
    how = {} if algorithm is None else {"algorithm": algorithm}
    calls: dict[str, Call] = {
        "all_reduce": lambda x, shard: comm.all_reduce(x, **how),
        "reduce_scatter": lambda x, shard: comm.reduce_scatter(x, out=shard, **how),
        "all_gather": lambda x, shard: comm.all_gather(shard, out=x),
        "broadcast": lambda x, shard: comm.broadcast(x),
    }
    return calls if algorithm is None else {name: calls[name] for name in TWO_LEVEL}


def start(call: str, x: np.ndarray, shard: np.ndarray, rank: int) -> None:
    """Writes the arrays before a call."""
    x[:] = rank + 1 if call != "all_gather" else 0
    shard[:] = rank + 1


def check(call: str, x: np.ndarray, shard: np.ndarray, size: int, variant: str) -> None:
    """Compares the result of a call."""
    total = size * (size + 1) // 2
    right = {
        "all_reduce": lambda: (x == total).all(),
        "reduce_scatter": lambda: (shard == total).all(),
        "all_gather": lambda: (x.reshape(size, -1) == np.arange(1, size + 1)[:, None]).all(),
        "broadcast": lambda: (x == 1).all(),
    }[call]()
    if not right:
        raise SystemExit(f"{variant} has a wrong result of {call}")


class Ranks:
    """The engines of this process, and the calls of each by the name of the variant."""

    def __init__(self) -> None:
        place = settings()
        self.rank, self.size = place.rank, place.world_size
        self.jobs: list[Any] = []
        self.variants: dict[str, dict[str, Call]] = {}
        if place.has_mpi:
            mpi = Mpi(self.rank, self.size, 60)
            self.variants["MPI"] = flat_mpi(mpi._mpi.COMM_WORLD, self.rank)
            self.add("nvcoll on MPI", mpi)
        if os.environ.get("MASTER_ADDR") and find_spec("torch"):
            import torch.distributed as dist

            gloo = Gloo.at_master(self.rank, self.size, 60)
            dist.init_process_group("gloo", store=gloo._store, rank=self.rank, world_size=self.size)
            self.variants["gloo"] = flat_gloo(None, self.rank)
            self.add("nvcoll on gloo", gloo)

    def add(self, name: str, engine: Any) -> None:
        """Adds a communicator of all ranks over an engine."""
        from nvcoll.hosts.communicator import across

        def join(rank: int, size: int, job: str, token: bytes) -> Any:
            self.jobs.append(_nvcoll.Job(rank, size, job, token, 60, 60))
            return self.jobs[-1].communicator(60)

        comm = self.comm = open_world(engine, join, 60.0, across)
        self.variants[name] = ours(comm, None)
        self.variants[f"{name}, two_level"] = ours(comm, "two_level")

    def slowest(self, values: list[float]) -> list[float]:
        """Returns the largest of each value over all ranks."""
        return list(self.comm.all_gather(np.array(values)).reshape(self.size, -1).max(axis=0))

    def measure(self, call: str, nbytes: int) -> dict[str, tuple[list[float], list[float]]]:
        """Returns seconds and sent bytes of each variant, by round."""
        count = max(nbytes // 4, 1)
        if call in ("reduce_scatter", "all_gather"):
            count += -count % self.size
        x, shard = np.empty(count, np.float32), np.empty(count // self.size, np.float32)
        names = [name for name, calls in self.variants.items() if call in calls]
        repeats = max(1, min(50, 50_000 // nbytes))
        found: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in names}
        draw, begin, rounds = random.Random(nbytes), time.monotonic(), 0
        while True:
            for name in draw.sample(names, len(names)):
                run, seconds = self.variants[name][call], 0.0
                self.comm.barrier()
                before = int(SENT.read_text())
                for _ in range(repeats):
                    start(call, x, shard, self.rank)
                    self.comm.barrier()
                    at = time.perf_counter()
                    run(x, shard)
                    seconds += time.perf_counter() - at
                    check(call, x, shard, self.size, name)
                worst = self.slowest([seconds / repeats, (int(SENT.read_text()) - before) / repeats])
                if rounds > 0:  # the first round warms up
                    found[name][0].append(worst[0])
                    found[name][1].append(worst[1])
            rounds += 1
            if self.slowest([float(rounds > 5 and time.monotonic() - begin > ROUND_S)])[0]:
                return found

    def leave(self) -> None:
        """Ends all engines, in order."""
        self.comm.barrier()
        time.sleep(0.2)
        os._exit(0) if "mpi4py.MPI" not in sys.modules else end(False)


def rank_program(sizes: list[int], calls: list[str], rate: str) -> None:
    """Measures on this rank; rank 0 prints."""
    ranks = Ranks()
    for call in calls:
        for nbytes in sizes:
            found = ranks.measure(call, nbytes)
            if ranks.rank == 0:
                show(call, nbytes, rate, found)
    ranks.leave()


def show(call: str, nbytes: int, rate: str, found: dict[str, tuple[list[float], list[float]]]) -> None:
    """Prints a row for each variant."""
    medians = {name: statistics.median(times) for name, (times, _) in found.items()}
    for name, (times, sent) in found.items():
        low, _, high = (value * 1e3 for value in statistics.quantiles(times, n=4))
        ratios = [f"{medians[name] / medians[flat]:5.2f}" if flat in medians else "    -" for flat in ("MPI", "gloo")]
        cells = [f"{call:14}", f"{nbytes:>9} B", f"{rate:>8}", f"{name:25}", f"{medians[name] * 1e3:9.3f} ms"]
        cells += [f"({low:.3f} to {high:.3f})".ljust(20), *ratios, f"{statistics.median(sent) / nbytes:5.2f}"]
        print(" ".join(cells), f"{len(times):4}", flush=True)


def main() -> None:
    """Starts the ranks, or is one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rate", nargs="+", default=["1gbit"], help="of each interface, as 1gbit; none: unlimited")
    parser.add_argument("--sizes", nargs="+", default=["8", "4M", "16M"])
    parser.add_argument("--calls", nargs="+", default=list(CALLS), choices=CALLS)
    parser.add_argument("--mpirun", default=shutil.which("mpirun"))
    parser.add_argument("--python", default=sys.executable)
    options = parser.parse_args()
    if "NVCOLL_BENCH_RATE" in os.environ:
        sizes = [int(parse_size(size)) for size in options.sizes]
        rank_program(sizes, options.calls, os.environ["NVCOLL_BENCH_RATE"])
        return
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "lib"))
    from namespaces import Namespaces

    arguments = [__file__, "--sizes", *options.sizes, "--calls", *options.calls]
    print("call, size, rate, engine, median, quartiles, ratio to MPI and to gloo, sent by size, rounds")
    for rate in options.rate:
        with Namespaces(2, None if rate == "none" else rate) as hosts:
            job: dict[str, Any] = {"limit": 1800, "NVCOLL_BENCH_RATE": rate}
            if options.mpirun:
                found = hosts.mpirun(options.mpirun, options.python, *arguments, **job)
            else:
                found = hosts.torchrun(*arguments, **job)[0]
            print(found[1], end="" if found[0] == 0 else f"ended with status {found[0]}\n")


if __name__ == "__main__":
    main()
