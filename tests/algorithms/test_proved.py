"""What was proved is what runs: every public way to run a schedule, small and large, on every path.

A program's order is made of a proof alone (`StepOrder::of` takes a `Verified`). Builds with debug assertions, such as
the gate's, compare the two before each call of at most 256 steps and panic where they differ: a call here fails then.
A unit test of `program/order.rs` shows that a changed order is noticed.
"""

import numpy as np
import pytest
from process_ranks import Job

import nvcoll

pytestmark = pytest.mark.timeout(300)

WORLD_SIZE = 3
# A value in the line of the stamp, one that travels with the enter, one of several steps, one of several tiles.
COUNTS = [2, 100, 5_000, 300_000]
PATHS = ["mapped", "staged", "pushed"]
ALGORITHMS = ["one_shot", "two_shot", "ring", "tree", "nvswitch", "own"]


@nvcoll.algorithm("all_reduce")
def own(b):
    """Rank 0 folds; the others copy."""
    for chunk in b.chunks(1):
        total = b.fold(*[b.input(rank, chunk) for rank in range(b.world_size)], into=b.output(0, chunk))
        for rank in range(1, b.world_size):
            b.copy(total, into=b.output(rank, chunk))


def contribution(rank, count):
    return (np.arange(count) % 1000 + rank).astype(np.int32)


def total(count):
    return sum(contribution(rank, count) for rank in range(WORLD_SIZE))


def algorithm_of(name):
    return own if name == "own" else name


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_node_a_plan_and_ranks_of_threads_run_what_was_proved(name, path):
    chosen = algorithm_of(name)
    with nvcoll.Node(WORLD_SIZE) as node:
        for count in COUNTS:
            arrays = [contribution(rank, count) for rank in range(WORLD_SIZE)]
            node.all_reduce(arrays, algorithm=chosen, path=path)
            assert all(np.array_equal(array, total(count)) for array in arrays)
            for rank, array in enumerate(arrays):
                array[:] = contribution(rank, count)
            plan = node.plan("all_reduce", arrays, algorithm=chosen, path=path)
            plan.run()
            assert all(np.array_equal(array, total(count)) for array in arrays)
        node.run(lambda comm: every_way(comm, chosen, path))


def every_way(comm, chosen, path):
    """Every way in which a communicator runs a schedule, over all ranks and over some."""
    for count in COUNTS:
        wanted = total(count)
        calls = [contribution(comm.rank, count) for _ in range(6)]
        comm.all_reduce(calls[0], algorithm=chosen, path=path)
        work = comm.all_reduce(calls[1], algorithm=chosen, path=path, async_op=True)
        work.wait()
        with comm.group():
            comm.all_reduce(calls[2], algorithm=chosen, path=path)
        with comm.group():
            comm.all_reduce(calls[3], algorithm=chosen, path=path)
            comm.all_reduce(calls[4], algorithm=chosen, path=path)
        part = comm.split(0, key=comm.rank)
        part.all_reduce(calls[5], algorithm=chosen, path=path)
        comm.barrier()
        assert all(np.array_equal(call, wanted) for call in calls)


def every_collective(comm):
    """Every collective on arrays of its own, of which some are small."""
    n = comm.world_size
    for count in COUNTS:
        x = contribution(comm.rank, count)
        whole = np.concatenate([x] * n)
        comm.all_gather(x)
        comm.reduce_scatter(whole.copy())
        comm.all_to_all(whole.copy())
        comm.broadcast(x.copy(), root=1)
        comm.reduce(x.copy(), root=2)
        comm.scan(x.copy())
        shared = comm.empty(count, np.int32)
        shared[:] = x
        comm.all_reduce(shared)
        assert np.array_equal(shared, total(count))
    comm.barrier()


def in_a_process(comm):
    for name in ALGORITHMS:
        for path in ("staged", "pushed"):
            every_way(comm, algorithm_of(name), path)
    every_collective(comm)


def test_ranks_of_processes_run_what_was_proved():
    with Job(WORLD_SIZE) as job:
        job.run(in_a_process)


def test_every_collective_runs_what_was_proved():
    with nvcoll.Node(WORLD_SIZE) as node:
        node.run(every_collective)


def test_a_schedule_with_early_steps_is_no_schedule_to_bring():
    text = """schedule broadcast hand  world_size 2  root 0  chunks_per_part 1  path staged  aliasing in_place
        r0.q0.0  staging0[r0].0 = input[r0].0
        r1.q0.0  output[r1].0 = staging0[r0].0  after r0.enter
        enter r0  after r0.q0
        leave r0  after r1.enter"""
    schedule = nvcoll.Schedule.parse(text)
    assert nvcoll.verify(schedule) and str(nvcoll.Schedule.parse(str(schedule))) == str(schedule)
    with nvcoll.Node(2) as node, pytest.raises(nvcoll.InvalidArgument, match="with early steps: pass the one without"):
        node.broadcast([np.zeros(1), np.zeros(1)], algorithm=schedule, path="staged")
