"""Calls that differ between ranks: both are named in full, whether ranks are threads or processes."""

from __future__ import annotations

import sys
from functools import partial

import mismatching_programs
import numpy as np
import pytest
from mismatching_programs import WRITTEN
from process_ranks import Job

import nvcoll
from nvcoll.testing import Ranks

pytestmark = pytest.mark.timeout(300)

needs_processes = pytest.mark.skipif(sys.platform != "linux", reason="ranks that are processes need Linux")

SEEDS = range(100)
"""A slice of the programs; the command of the module runs thousands."""


def message(comm, call) -> str:
    """Returns the message of the mismatch, in a communicator of its own."""
    group = comm.split(0)
    with pytest.raises(nvcoll.Mismatch) as caught:
        call(group)
        group.barrier()
    comm.barrier()
    return str(caught.value)


def tables_of_one_sum(comm):
    counts = ([2, 3, 4, 1], [2, 3, 4, 1], [2, 4, 3, 1], [2, 3, 4, 1])[comm.rank]
    return message(comm, lambda group: group.all_gather(np.ones(counts[comm.rank], "f4"), counts=counts, path="staged"))


def parameters_of_an_algorithm(comm):
    name = f"two_level(per_node={2 + 2 * (comm.rank == 3)})"
    return message(comm, lambda group: group.all_reduce(np.ones(8), algorithm=name, path="staged"))


def algorithms_of_the_user(comm):
    mine = WRITTEN["mine1" if comm.rank == 1 else "mine0"]
    return message(comm, lambda group: group.all_reduce(np.ones(8), algorithm=mine, path="staged"))


def a_row_of_counts_on_some_ranks(comm):
    counts = {"counts": [5, 5, 5, 5]} if comm.rank == 0 else {}
    return message(comm, lambda group: group.all_to_all(np.ones(20, "i4"), **counts))


def check(program, said):
    (text,) = set(said)
    assert "an algorithm of its own" not in text
    if program is tables_of_one_sum:
        assert ": their tables differ first in part 1, 3 and 4 elements" in text or "1, 4 and 3 elements" in text
    elif program is parameters_of_an_algorithm:
        assert "two_level(per_node=2), but rank 3 called" in text and "two_level(per_node=4): every rank" in text
    elif program is algorithms_of_the_user:
        assert ": two algorithms are called mine, and their steps differ" in text
    else:
        assert "all_to_all with a row of counts" in text and "all_to_all of 20 int32" in text


@pytest.fixture(scope="module")
def job():
    with Job(4) as job:
        yield job


PROGRAMS = [tables_of_one_sum, parameters_of_an_algorithm, algorithms_of_the_user, a_row_of_counts_on_some_ranks]


@pytest.mark.parametrize("program", PROGRAMS)
def test_both_calls_are_named_in_full_between_threads(program):
    check(program, nvcoll.Node(4).run(program))


@needs_processes
@pytest.mark.parametrize("program", PROGRAMS)
def test_both_calls_are_named_in_full_between_processes(program, job):
    check(program, job.run(program))


def check_random_programs(check):
    kinds, wrong = mismatching_programs.run(SEEDS, check)
    assert not wrong, "\n".join(wrong)
    assert sum(kinds.values()) == len(SEEDS) and len(kinds) > 10


def test_random_programs_that_differ_between_threads_get_a_mismatch_that_says_how():
    check_random_programs(mismatching_programs.on_threads)


@needs_processes
def test_random_programs_that_differ_between_processes_get_a_mismatch_that_says_how():
    with Ranks() as ranks:
        check_random_programs(partial(mismatching_programs.on_processes, ranks))


def test_random_draws_differ_and_every_kind_is_drawn():
    draws = [mismatching_programs.draw(seed) for seed in range(1000)]
    assert all(draw.base != draw.variant for draw in draws)
    assert len({draw.kind for draw in draws}) >= 17
