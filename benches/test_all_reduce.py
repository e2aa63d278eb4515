"""How fast are ring, tree, nvswitch and numpy, by ranks and bytes? What does a call cost?"""

import numpy as np
import pytest

import nvcoll
from nvcoll._nvcoll import algorithms

NAMES = [row.name for row in algorithms() if row.collective == "all_reduce"]
SIZES = {"1KiB": 2**10, "64KiB": 2**16, "1MiB": 2**20, "16MiB": 2**24, "64MiB": 2**26}


def chain(arrays, scratch):
    np.add(arrays[0], arrays[1], out=scratch)
    for x in arrays[2:]:
        np.add(scratch, x, out=scratch)
    for x in arrays:
        np.copyto(x, scratch)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("name", [*NAMES, "numpy"])
def test_all_reduce(benchmark, name, ranks, size):
    benchmark.group = f"all_reduce {ranks} ranks {size}"
    fresh = [np.full(SIZES[size] // 4, r + 1, dtype="f4") for r in range(ranks)]
    arrays, scratch = [x.copy() for x in fresh], np.empty_like(fresh[0])
    node = nvcoll.Node(ranks)

    def refill():
        for x, value in zip(arrays, fresh, strict=True):
            np.copyto(x, value)

    call = (lambda: chain(arrays, scratch)) if name == "numpy" else (lambda: node.all_reduce(arrays, algorithm=name))
    benchmark.pedantic(call, setup=refill, rounds=10, warmup_rounds=1)
    assert all((x == ranks * (ranks + 1) / 2).all() for x in arrays)


@pytest.mark.parametrize("kind", ["planned", "unplanned"])
def test_call_of_eight_ranks_and_64_floats(benchmark, kind):
    node = nvcoll.Node(8)
    arrays = [np.zeros(64, dtype="f4") for _ in range(8)]
    plan = node.plan("all_reduce", arrays)
    benchmark(plan.run if kind == "planned" else lambda: node.all_reduce(arrays))
