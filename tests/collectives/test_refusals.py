"""Refusals: ranks that pass each other's memory, or run out of time."""

import contextlib
import threading

import numpy as np
import pytest

import nvcoll


def told(world_size, program):
    """The error of each rank in the call that fails."""
    messages = [None] * world_size

    def rank(comm):
        try:
            program(comm)
        except nvcoll.Error as error:
            messages[comm.rank] = f"{type(error).__name__}: {error}"

    nvcoll.Node(world_size).run(rank, timeout=30)
    return messages


@pytest.mark.parametrize("is_group", [False, True])
def test_strided_arrays_of_two_ranks_are_refused_exactly_if_they_share_a_byte(is_group):
    matrix = np.ones((4, 4))
    packed = matrix[1:3].reshape(8)[2:6]
    for first, second, shares in (
        (matrix[:, 0], matrix[:, 0], True),
        (matrix[:, 0], matrix[:, 1], False),
        (matrix[:, 3], packed, True),
        (packed, matrix[:, 3], True),
    ):

        def program(comm, arrays=(first, second)):
            with comm.group() if is_group else contextlib.nullcontext():
                if is_group:
                    comm.all_reduce(np.ones(4))
                comm.all_reduce(arrays[comm.rank])

        for message in told(2, program):
            assert "overlaps" in message if shares else message is None


@pytest.mark.parametrize("is_group", [False, True])
def test_a_rank_that_comes_late_may_pass_strided_memory_that_another_one_has_back(is_group):
    matrix, is_back = np.zeros((4, 2)), threading.Event()

    def program(comm):
        if comm.rank == 2:
            assert is_back.wait(30)
            matrix[:] = 0
        x = np.ones(4) if comm.rank == 0 else matrix[:, 0]
        with comm.group() if is_group else contextlib.nullcontext():
            comm.broadcast(x, algorithm="direct")
        if comm.rank == 1:
            is_back.set()

    assert told(3, program) == [None, None, None]
    assert (matrix == [1, 0]).all()


def test_a_rank_has_one_communicator_and_only_ranks_have_one():
    team = nvcoll.Node(2)._team()
    with pytest.raises(nvcoll.InvalidArgument, match="rank is 9: it must be a whole number, from 0 to 1"):
        team.communicator(9, None)
    kept = team.communicator(0, None)
    with pytest.raises(nvcoll.InvalidArgument, match="rank 0 has its communicator already"):
        team.communicator(0, None)
    assert kept.rank == 0
    team.end()


def test_the_time_of_a_driven_call_begins_before_its_proof():
    node, x = nvcoll.Node(256, workers=1), np.ones((256, 256), "f4")
    with pytest.raises(nvcoll.Timeout, match="its schedule was being built and proved"):
        node.all_reduce(x, algorithm="ring", path="staged", timeout=0.001)
    assert (x == 1).all()


def test_the_time_of_a_call_begins_before_the_proof_of_a_user_s_schedule():
    node, x = nvcoll.Node(256, workers=1), np.ones((256, 256), "f4")
    schedule = nvcoll.schedule("all_reduce", world_size=256, algorithm="ring", in_place=True)
    with pytest.raises(nvcoll.Timeout, match="its schedule was being proved"):
        node.all_reduce(x, algorithm=schedule, path="staged", timeout=0.001)
    assert (x == 1).all()


def test_the_time_of_a_rank_s_call_begins_before_its_proof():
    def program(comm):
        comm.all_reduce(np.ones(64, "f4"), algorithm="ring", path="pushed", timeout=0.001)

    assert any("Timeout" in message for message in told(64, program))
