"""Subsets: who is in which, in any order, on threads and on processes; and messages that move in the background."""

import functools
import time

import numpy as np
import pytest
from processes import results, start
from rank_threads import in_threads

import nvcoll
from nvcoll.testing import Fault, run_ranks

pytestmark = pytest.mark.timeout(200)

WATCHDOG_S = 60.0


def on_threads(world_size, program, *args):
    return nvcoll.Node(world_size, workers=1).run(program, *args, timeout=WATCHDOG_S)


def on_processes(world_size, program, *args):
    return nvcoll.spawn(functools.partial(with_limit, program), world_size, *args)


def with_limit(program, comm, *args):
    return program(comm.subset(comm.ranks, timeout=WATCHDOG_S), *args)


KINDS = pytest.mark.parametrize("run", [on_threads, on_processes])


def sums(comm, value=1.0):
    x = np.full(3, value)
    comm.all_reduce(x)
    return x[0]


def orders(comm):
    pair = comm.subset([2, 0]) if comm.rank != 1 else None
    alone = comm.subset([comm.rank])
    everybody = comm.subset([1, 2, 0], tag=7)
    if pair is None:
        return None, alone.ranks, everybody.rank, sums(everybody)
    return (pair.ranks, pair.rank, sums(pair, comm.rank)), alone.ranks, everybody.rank, sums(everybody)


@KINDS
def test_only_the_ranks_of_a_list_make_a_subset_and_have_its_order(run):
    assert run(3, orders) == [
        (((2, 0), 1, 2.0), (0,), 2, 3.0),
        (None, (1,), 0, 3.0),
        (((2, 0), 0, 2.0), (2,), 1, 3.0),
    ]


def again(comm):
    total = sum(sums(comm.subset([0, 1], tag=3)) for _ in range(20)) if comm.rank < 2 else 0
    half = comm.subset([0, 1, 2]).split(comm.rank % 2)
    return total, half.subset([half.rank]).ranks, half.subset(range(half.world_size)).world_size


@KINDS
def test_the_same_list_and_tag_again_and_subsets_of_groups(run):
    assert run(3, again) == [(40.0, (0,), 2), (40.0, (1,), 1), (0, (2,), 2)]


def tags_in_opposite_order(comm):
    """Two threads of each rank make two subsets, which differ in their tags, in opposite order."""
    tags = (0, 1) if comm.rank else (1, 0)
    made = in_threads(*(lambda tag=tag: comm.subset([0, 1], tag=tag) for tag in tags))
    found = dict(zip(tags, made, strict=True))
    return [sums(found[tag], tag) for tag in (0, 1)]


def test_threads_of_a_process_make_subsets_in_any_order():
    assert on_processes(2, tags_in_opposite_order) == [[0.0, 2.0]] * 2


WRONG = {
    "`ranks` contains 2: pass ranks from 0 to 1": [0, 1, 2],
    "`ranks` contains 0 twice": [0, 0],
    "`ranks` does not contain rank 0, which calls": [1],
    "`ranks` does not contain rank 0": [],
}


@pytest.mark.parametrize("words", WRONG)
def test_a_list_that_is_none_is_refused(words):
    def program(comm):
        if comm.rank == 0:
            with pytest.raises(nvcoll.InvalidArgument, match=words):
                comm.subset(WRONG[words])

    on_threads(2, program)


def missing(comm):
    try:
        comm.subset([0, 1, 2], timeout=0.3) if comm.rank else time.sleep(0.8)
    except nvcoll.Timeout as error:
        return str(error)
    return None


def test_a_rank_that_does_not_come_is_named_at_the_deadline():
    found = nvcoll.spawn(missing, 3)
    assert found[0] is None
    assert all("subset timed out after 0.3 s" in text and "rank 0" in text for text in found[1:]), found


def dies(comm):
    comm.barrier()
    return comm.subset([0, 1, 2], timeout=WATCHDOG_S).barrier()


def test_the_death_of_a_rank_ends_the_subset_of_the_others():
    run = run_ranks(dies, 3, fault=Fault.kill(rank=1, call=0, step=-1), timeout=60)
    for rank in (0, 2):
        assert isinstance(run[rank].error, nvcoll.Aborted), run


def waits_elsewhere(comm):
    other = comm.split(0)
    x, y = np.full(1 << 20, float(comm.rank)), np.empty(1 << 20)
    if comm.rank == 0:
        work = comm.isend(x, 1)
        other.barrier()
        work.wait()
    elif comm.rank == 1:
        comm.recv(y, 0)
        other.barrier()
        return y.sum()
    else:
        other.barrier()
    return None


@KINDS
def test_a_message_moves_though_its_sender_waits_in_another_communicator(run):
    assert run(3, waits_elsewhere) == [None, 0.0, None]


def crowd(comm):
    """Several threads of each rank send and receive at once."""
    n, peer = 40, 1 - comm.rank

    def exchange(tag):
        found = []
        for number in range(n):
            count = 1 + (number * 7919 + tag) % 5000
            x, y = np.full(count, float(number)), np.empty(count)
            works = [comm.irecv(y, peer, tag=tag), comm.isend(x, peer, tag=tag)]
            for work in works:
                work.wait()
            found.append(bool(y[0] == y[-1] == number))
        return found

    found = [one for of in in_threads(*(lambda tag=tag: exchange(tag) for tag in range(4))) for one in of]
    return len(found), all(found)


@KINDS
def test_threads_of_a_rank_send_and_receive_at_once(run):
    assert run(2, crowd) == [(160, True)] * 2


def test_a_rank_that_waits_in_subset_beside_one_that_raises_gets_aborted():
    program = """
    comm = nvcoll.init(timeout=60)
    if comm.rank == 0:
        time.sleep(0.3)
        raise ValueError("the program fails")
    try:
        comm.subset([0, 1])
    except nvcoll.Aborted as error:
        print(error)
    """
    _, (status, out, errors) = results(start(2, program, "raises beside a subset"))
    assert (status, out, errors) == (0, "rank 0 failed: the call was aborted\n", "")


def refused_for_its_length(comm):
    with pytest.raises(nvcoll.InvalidArgument, match="more than"):
        comm.subset(range(10**12))


def test_a_list_of_ranks_that_never_ends_is_refused_before_it_is_collected():
    on_threads(1, refused_for_its_length)
