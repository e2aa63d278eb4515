"""Conformance and properties, drawn from the registries: every collective, algorithm, dtype, op, path, way to call."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from amounts import examples
from drawn import (
    DTYPES,
    FORMS,
    HAS_ROOT,
    OF_ONE_PART,
    PAIRS,
    ROWS,
    Call,
    Choice,
    contents,
    dtype_named,
    forms_of,
    pairs_of,
    parts_of,
)
from hypothesis import HealthCheck, given, settings
from process_ranks import Job, Order
from strategies import PATHS, choices

import nvcoll
from nvcoll import oracle
from nvcoll._nvcoll import algorithms, machine, ops

RANK_ORDER = [row.name for row in algorithms() if row.collective == "all_reduce" and row.order == "rank"]
MOST_PROCESSES = 5
"""Chosen: more than the processors of most machines that test, and few enough to start."""
NODES: dict[tuple, nvcoll.Node] = {}


def node_of(world_size: int, **settings) -> nvcoll.Node:
    key = (world_size, *sorted(settings.items()))
    return NODES.setdefault(key, nvcoll.Node(world_size, **settings))


EVERY_ROW = {*ROWS, *(row.name for row in ops()), *DTYPES, *FORMS, *PATHS}


def drawn_by(choice: Choice) -> list:
    return [(choice.collective, choice.algorithm), choice.op, choice.dtype, choice.form, choice.path]


def is_exact_enough(call: Call) -> bool:
    """Compares a sum with the one in float64: the oracle could be wrong in the same way as the engine."""
    choice = call.choice
    if choice.collective != "all_reduce" or choice.op != "sum" or choice.dtype not in ("float32", "float64"):
        return True
    inputs = np.array([rank.unchanged[0][1] for rank in call.ranks if rank.unchanged], dtype="f8")
    if choice.is_special or choice.form == "in place":
        return True
    bound = (len(inputs) - 1) * np.finfo(choice.dtype).eps * np.sum(np.abs(inputs), axis=0)
    return bool(np.all(np.abs(call.ranks[0].expected - np.sum(inputs, axis=0)) <= bound))


RELAXED = settings(max_examples=examples(300), suppress_health_check=list(HealthCheck))


def check_driven(choice: Choice) -> None:
    call = Call(choice, is_spmd=False)
    call.drive(node_of(choice.world_size), timeout=60)
    assert is_exact_enough(call)


def check_threads(choice: Choice) -> None:
    call = Call(choice, is_spmd=True)
    node_of(choice.world_size).run(call.run, timeout=60)
    assert all(guarded.is_intact() for guarded in call.guards)


@pytest.fixture(scope="session")
def check_spmd(pytestconfig):
    """Checks a call that ranks make for themselves: threads, or processes with ``--ranks processes``."""
    if pytestconfig.getoption("ranks") == "threads":
        yield check_threads
        return
    with Job(MOST_PROCESSES) as job:

        def check_processes(choice: Choice) -> None:
            choice = replace(choice, world_size=min(choice.world_size, MOST_PROCESSES))
            if not isinstance(choice.counts, int):
                choice.counts = choice.counts[: parts_of(choice.collective, choice.world_size)]
            choice.root = min(choice.root, choice.world_size - 1)
            everybody = tuple(range(choice.world_size))
            for symmetric in ((), everybody, everybody[: choice.seed % choice.world_size]):
                job.run(Order(choice, symmetric))

        yield check_processes


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("caller", ["node", "ranks"])
def test_every_call_gives_the_oracle_s_bits_and_every_row_is_drawn(caller, check_spmd):
    check = check_driven if caller == "node" else check_spmd
    drawn = set()

    @RELAXED
    @given(choices())
    def conforms(choice):
        drawn.update(drawn_by(choice))
        check(choice)

    conforms()
    # What chance left out of large registries.
    few = settings(RELAXED, max_examples=examples(4))
    for more in [*(choices(row=row) for row in ROWS), *(choices(pair=pair) for pair in PAIRS)]:
        few(given(more)(lambda choice: (drawn.update(drawn_by(choice)), check(choice))[1]))()
    assert drawn >= EVERY_ROW


@pytest.mark.parametrize(("collective", "algorithm"), ROWS)
def test_every_algorithm_op_and_dtype_gives_the_oracle_s_bits(collective, algorithm, pytestconfig):
    """Each form on one path of three, in turn; with ``--slow`` on all."""
    for number, (op, dtype) in enumerate(pairs_of(collective)):
        for at, form in enumerate(forms_of(collective)):
            for path in PATHS if pytestconfig.getoption("slow") else [PATHS[(number + at) % 3]]:
                root = number % 5 if HAS_ROOT[collective] else 0
                check_driven(
                    Choice(collective, algorithm, 5, 1009, op=op, dtype=dtype, root=root, path=path, form=form)
                )


@pytest.mark.parametrize(("collective", "algorithm"), ROWS)
def test_every_algorithm_runs_for_every_root_and_number_of_ranks(collective, algorithm, check_spmd, pytestconfig):
    """Each number and root on one path of three, in turn; with ``--slow`` on all."""
    for number, world_size in enumerate((1, 2, 3, 4, 7, 8)):
        for root in range(world_size if HAS_ROOT[collective] else 1):
            counts = 97 if collective in OF_ONE_PART else [at % 5 * 7 for at in range(parts_of(collective, world_size))]
            for path in PATHS if pytestconfig.getoption("slow") else [PATHS[(number + root) % 3]]:
                choice = Choice(
                    collective, algorithm, world_size, counts, root=root, path=path, form=forms_of(collective)[0]
                )
                check_driven(choice)
                check_spmd(choice)


@pytest.mark.parametrize("algorithm", RANK_ORDER)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rank_order_gives_the_same_bits_wherever_an_element_lies(algorithm, dtype):
    if ("sum", dtype) not in PAIRS:
        pytest.skip("nothing to fold")
    rng = np.random.default_rng(3)
    values = [contents(rng, dtype_named(dtype), 1000, False) for _ in range(5)]
    counts = (1000, 5000, 1_200_000 // values[0].itemsize)
    places = [(count, at) for count in counts for at in sorted({0, min(1, count - 1000), count - 1000})]
    options = [{"workers": 1}, {"workers": 2}, *({"isa": isa} for isa in machine()["isas"])]
    around = {count: [contents(rng, dtype_named(dtype), count, False) for _ in range(5)] for count in counts}
    results = []
    # Every place with every option and every path, every option with every path.
    for (row, (count, at)), (column, option) in product(enumerate(places), enumerate(options)):
        arrays = [x.copy() for x in around[count]]
        for x, v in zip(arrays, values, strict=True):
            x[at : at + 1000] = v
        node_of(5, **option).all_reduce(arrays, algorithm=algorithm, path=PATHS[(row + column) % len(PATHS)])
        results.append(arrays[0][at : at + 1000].copy())
    assert all(oracle.same_bits(result, results[0]) for result in results)
