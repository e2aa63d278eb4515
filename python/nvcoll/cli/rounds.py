"""Rounds of what ``auto`` chooses from: every candidate once in each, in an order drawn at random, on rewritten arrays.

A mode is how a call is run (see docs/auto.md): *tile* and *staged* are planned calls that one caller makes for all
ranks, *ranks* are calls that every rank makes for itself in
``Node.run``, timed by rank 0 from a barrier on.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import numpy as np

import nvcoll
from nvcoll import Communicator
from nvcoll.cli.timing import Array, Candidate, dtype_named

TIMED = ("all_reduce",)
"""The collectives that can be timed."""

MODES = {"tile": ("mapped", False), "staged": ("staged", False), "ranks": ("mapped", True)}
"""For each mode, the path, and whether every rank calls for itself."""


def _order(names: Sequence[str], rounds: int) -> list[list[str]]:
    """Draws the order of every round; the first is not timed."""
    draw = random.Random(rounds)
    return [draw.sample(list(names), len(names)) for _ in range(rounds + 1)]


def _data(node: nvcoll.Node, dtype: str, count: int) -> list[Array]:
    """Returns small numbers, which every dtype holds, and whose sums do too."""
    return [(np.arange(count) % 3 + rank % 2).astype(dtype_named(dtype)) for rank in range(node.world_size)]


def measure(
    node: nvcoll.Node, mode: str, collective: str, dtype: str, count: int, names: Sequence[str], rounds: int
) -> dict[str, list[float]]:
    """Times a sum in place by some algorithms.

    Returns:
        For each algorithm, the seconds of every round.
    """
    data = _data(node, dtype, count)
    path, by_rank = MODES[mode]
    measure_mode = _by_ranks if by_rank else _by_one
    return measure_mode(node, path, collective, data, _order(names, rounds))


def _by_one(
    node: nvcoll.Node, path: str, collective: str, data: list[Array], order: list[list[str]]
) -> dict[str, list[float]]:
    arrays = [x.copy() for x in data]
    plans = {name: node.plan(collective, arrays, algorithm=name, path=path) for name in order[0]}
    candidates = {name: Candidate(lambda plan=plan: plan.run(), arrays) for name, plan in plans.items()}
    for number, names in enumerate(order):
        for name in names:
            for x, fresh in zip(arrays, data, strict=True):
                np.copyto(x, fresh)
            candidates[name].run(is_counted=number > 0)
    return {name: candidate.seconds for name, candidate in candidates.items()}


def _by_ranks(
    node: nvcoll.Node, path: str, collective: str, data: list[Array], order: list[list[str]]
) -> dict[str, list[float]]:
    def program(comm: Communicator) -> dict[str, list[float]]:
        fresh = data[comm.rank]
        x = fresh.copy()
        call = getattr(comm, collective)
        seconds: dict[str, list[float]] = {name: [] for name in order[0]}
        for number, names in enumerate(order):
            for name in names:
                np.copyto(x, fresh)
                comm.barrier()
                start = time.perf_counter()
                call(x, algorithm=name, path=path)
                if number > 0:
                    seconds[name].append(time.perf_counter() - start)
        return seconds

    return node.run(program)[0]
