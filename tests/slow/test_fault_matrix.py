"""A slice of the fault matrix; ``python tests/slow/fault_matrix.py`` runs all of it."""

from __future__ import annotations

import random
import sys

import pytest
from fault_matrix import KINDS, Case, drawn_cases, places, run_all, wrong_of

from nvcoll._nvcoll import algorithms
from nvcoll.testing import no_residue

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="ranks that are processes need Linux"),
    pytest.mark.timeout(300),
]


def test_survivors_are_told_rightly_and_nothing_is_left_after_60_faults():
    with no_residue():
        results = run_all(drawn_cases(60, random.Random(15)))
    assert {one.case.kind for one in results} == {*KINDS} and len(results) == 60
    assert not wrong_of(results)


def test_a_stopped_rank_is_named_that_has_not_passed_the_memory_of_its_stream():
    places = [(rank, step) for rank in range(3) for step in (None, 0)]
    assert not wrong_of(run_all([Case("STOP", "sendrecv", "", "small", *place) for place in places]))


def test_every_algorithm_and_messages_have_places_in_the_matrix():
    assert {(place.collective, place.algorithm) for place in places()} == {
        ("sendrecv", ""),
        *((row.collective, row.name) for row in algorithms()),
    }
