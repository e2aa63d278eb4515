"""What a timeout says about ranks that wait for each other, and what a rank can say about its last calls."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from process_ranks import Job

import nvcoll

needs_processes = pytest.mark.skipif(sys.platform != "linux", reason="ranks that are processes need Linux")
pytestmark = pytest.mark.timeout(300)

SHORT_S = 0.5
"""A timeout that passes in every one of these programs."""


@pytest.fixture(scope="module")
def job():
    with Job(3) as job:
        yield job


def message(call) -> str:
    """Returns the message of the error that a call raises."""
    with pytest.raises((nvcoll.Timeout, nvcoll.Aborted)) as caught:
        call()
    return f"{type(caught.value).__name__}: {caught.value}"


def two_groups_in_opposite_order(comm):
    """Ranks 0 and 1 use two communicators of theirs in opposite order; rank 2 is in neither."""
    first, second = (comm.split(0 if comm.rank < 2 else None) for _ in range(2))
    said = None
    if comm.rank < 2:
        begins_with = first if comm.rank == 0 else second
        said = message(lambda: begins_with.all_reduce(np.ones(4, "f4"), timeout=SHORT_S))
    comm.barrier()
    return said


def rings_of_groups(comm):
    """Of three communicators, each rank is in two, and begins with the one that it shares with the next rank."""
    pairs = [(0, 1), (1, 2), (2, 0)]
    groups = [
        comm.split(0 if comm.rank in pair else None, key=pair.index(comm.rank) if comm.rank in pair else 0)
        for pair in pairs
    ]
    said = message(lambda: groups[comm.rank].all_gather(np.ones(3, "i4"), timeout=SHORT_S))
    comm.barrier()
    return said


def receives_from_each_other(comm):
    """Ranks 0 and 1 receive from each other, and nobody sends."""
    group = comm.split(0 if comm.rank < 2 else None)
    said = None
    if group is not None:
        said = message(lambda: group.recv(np.zeros(2), 1 - group.rank, timeout=SHORT_S))
    comm.barrier()
    return said


def check_receives(said):
    (words,) = {text for text in said if text and text.startswith("Timeout")}
    assert words.startswith("Timeout: recv of 2 float64 from rank"), words
    of = "recv of 16 bytes with any tag of the communicator of ranks 0, 1"
    assert words.count(of) == 2 and ", which wait" in words and words.count("for rank 0") == 1, words


def check_two_groups(said):
    assert said[2] is None
    for rank, other, own_split, other_split in ((0, 1, 1, 2), (1, 0, 2, 1)):
        call = "all_reduce of 4 float32, sum, in place"
        assert said[rank].startswith(f"Timeout: {call}"), said[rank]
        assert f"rank {other} has not entered the call; rank {rank} waits in {call}," in said[rank]
        assert (
            f"of the communicator of ranks 0, 1, made by split in call {own_split}, for rank {other}, which wait"
            in said[rank]
        )
        assert (
            f"of the communicator of ranks 0, 1, made by split in call {other_split}, for rank {rank}: every rank"
            in said[rank]
        )


def check_rings(said):
    for words in said:
        assert words.startswith("Timeout: all_gather of 6 int32"), words
        for other in range(3):
            assert f"for rank {other}" in words, words
        assert words.count(", which wait") == 2, words


def test_threads_that_use_two_communicators_in_opposite_order_read_the_cycle():
    check_two_groups(nvcoll.Node(3).run(two_groups_in_opposite_order))
    check_rings(nvcoll.Node(3).run(rings_of_groups))
    check_receives(nvcoll.Node(3).run(receives_from_each_other))


@needs_processes
def test_processes_that_use_two_communicators_in_opposite_order_read_the_cycle(job):
    check_two_groups(job.run(two_groups_in_opposite_order))
    check_rings(job.run(rings_of_groups))
    check_receives(job.run(receives_from_each_other))
