"""Stress: random programs of ranks, and random calls of several nodes at once with failures in between.

Rounds are numbered, and a round is a function of its number, so that one that failed can be run again alone:
``NVCOLL_STRESS_FIRST=4711 NVCOLL_STRESS_ROUNDS=1 pytest tests/test_stress.py``.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time

import ml_dtypes
import numpy as np
import pytest

import nvcoll
from nvcoll import oracle
from nvcoll._nvcoll import algorithms, ops

ROUNDS = int(os.environ.get("NVCOLL_STRESS_ROUNDS", "100"))
FIRST = int(os.environ.get("NVCOLL_STRESS_FIRST", "0"))
ALGORITHMS = [name for collective, name, *_ in algorithms() if collective == "all_reduce"]
PAIRS = [(op, dtype) for op, defined in ops() for dtype in defined]
COUNTS = [0, 1, 2, 7, 31, 64, 509, 4099, 40_000]
WORLD_SIZES = [1, 2, 2, 3, 3, 4, 5, 6, 8, 13]

# A watchdog inside the calls, so that a hang is a Timeout that says who is missing.
WATCHDOG_S = 100.0

pytestmark = pytest.mark.timeout(max(300, ROUNDS))

nodes: dict[tuple[int, int], nvcoll.Node] = {}


def numpy_dtype(name: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


class Reduction:
    """One all_reduce: what is called, with which inputs, and the bits that must come out."""

    def __init__(self, rng: random.Random, world_size: int) -> None:
        self.op, dtype = rng.choice(PAIRS)
        self.algorithm, self.path = rng.choice(ALGORITHMS), rng.choice(["mapped", "staged"])
        self.in_place = rng.random() < 0.6
        count = rng.choice(COUNTS)
        values = np.random.default_rng(rng.getrandbits(32))
        self.inputs = [values.integers(-100, 100, count).astype(numpy_dtype(dtype)) for _ in range(world_size)]
        self.scalars = [float(rng.randint(-4, 4)) for _ in range(world_size)]
        schedule = nvcoll.schedule("all_reduce", self.algorithm, world_size=world_size, in_place=self.in_place)
        with np.errstate(all="ignore"):
            self.expected = oracle.all_reduce(schedule, self.inputs, self.op, self.scalars)

    def run(self, comm: nvcoll.Communicator) -> None:
        x = self.inputs[comm.rank].copy()
        out = None if self.in_place else np.empty_like(x)
        op = nvcoll.premul_sum(self.scalars[comm.rank]) if self.op == "premul_sum" else self.op
        result = comm.all_reduce(x, op, algorithm=self.algorithm, path=self.path, out=out)
        self.check(comm.rank, result)

    def drive(self, node: nvcoll.Node, **options) -> None:
        arrays = [x.copy() for x in self.inputs]
        out = None if self.in_place else [np.empty_like(x) for x in arrays]
        op = nvcoll.premul_sum(self.scalars) if self.op == "premul_sum" else self.op
        results = node.all_reduce(arrays, op, algorithm=self.algorithm, path=self.path, out=out, **options)
        for rank, result in enumerate(results):
            self.check(rank, result)

    def check(self, rank: int, result: np.ndarray) -> None:
        where = f"rank {rank}: {self.algorithm} {self.path} {self.op} {result.dtype} {result.size}"
        assert oracle.same_bits(result, self.expected[rank]), where


def barrier(comm: nvcoll.Communicator) -> None:
    comm.barrier()


def dawdle(rng: random.Random) -> None:
    """Takes no time, gives way, computes or sleeps."""
    kind = rng.random()
    if kind < 0.1:
        time.sleep(rng.random() * 0.002)
    elif kind < 0.3:
        time.sleep(0)
    elif kind < 0.4:
        sum(range(rng.randrange(20_000)))


def random_calls(rng: random.Random, world_size: int) -> list:
    makes = rng.randint(1, 8)
    return [Reduction(rng, world_size).run if rng.random() < 0.75 else barrier for _ in range(makes)]


def spmd_round(number: int) -> None:
    rng = random.Random(number)
    world_size, workers = rng.choice(WORLD_SIZES), rng.choice([1, 2])
    node = nodes.setdefault((world_size, workers), nvcoll.Node(world_size, workers=workers))
    calls = random_calls(rng, world_size)
    failing = rng.randrange(world_size) if rng.random() < 0.1 else None
    fails_at = rng.randrange(len(calls))
    arrived = [0] * len(calls)

    def program(comm):
        own = random.Random(number * 1000 + comm.rank)
        for at, call in enumerate(calls):
            dawdle(own)
            if comm.rank == failing and at == fails_at:
                raise ValueError("injected")
            arrived[at] += 1  # under the interpreter's lock
            call(comm)
            assert call is not barrier or arrived[at] == world_size, "a barrier let a rank go before all had come"
        return comm.rank

    if failing is None:
        assert node.run(program, timeout=WATCHDOG_S) == list(range(world_size))
    else:
        with pytest.raises(ValueError, match="injected"):
            node.run(program, timeout=WATCHDOG_S)


def numbered(round_of, number: int, *args) -> None:
    try:
        round_of(number, *args)
    except BaseException as error:
        error.add_note(f"in round {number}: NVCOLL_STRESS_FIRST={number} NVCOLL_STRESS_ROUNDS=1")
        raise


def test_random_programs_of_ranks_give_the_oracle_s_bits():
    for number in range(FIRST, FIRST + ROUNDS):
        numbered(spmd_round, number)


def driven_round(number: int, thread: int, node: nvcoll.Node) -> None:
    """One call, perhaps with a deadline that may pass; one without, which must work whatever came before."""
    rng = random.Random(number * 10 + thread)
    if rng.random() < 0.5:
        with contextlib.suppress(nvcoll.Timeout):
            Reduction(rng, node.world_size).drive(node, timeout=rng.choice([0, 1e-5, 1e-4]))
    if rng.random() < 0.2:
        with pytest.raises(ValueError, match="injected"):
            failing = rng.randrange(node.world_size)

            def program(comm):
                if comm.rank == failing:
                    raise ValueError("injected")
                comm.barrier(timeout=WATCHDOG_S)

            node.run(program)
    Reduction(rng, node.world_size).drive(node, timeout=WATCHDOG_S)


def test_nodes_in_several_threads_work_after_every_timeout_and_abort():
    failures: list[BaseException] = []

    def work(thread: int) -> None:
        try:
            for number in range(FIRST, FIRST + ROUNDS):
                # A new node now and then: helpers start and stop while those of other nodes work.
                if number % 20 == 0 or number == FIRST:
                    rng = random.Random(number * 10 + thread)
                    node = nvcoll.Node(rng.choice(WORLD_SIZES), workers=rng.choice([1, 2, 3]))
                numbered(driven_round, number, thread, node)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
