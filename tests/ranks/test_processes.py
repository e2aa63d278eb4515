"""Ranks that are processes: joining, calls, memory that every rank can reach, and ends of every kind."""

from __future__ import annotations

import gc
import os
import sys
from functools import partial

import numpy as np
import pytest
from process_ranks import Job
from processes import results, start

import nvcoll

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="ranks that are processes need Linux"),
    pytest.mark.timeout(300),
]


@pytest.fixture(scope="module")
def job():
    with Job(3) as job:
        yield job


def groups_and_calls(comm):
    group = comm.split(comm.rank % 2, key=-comm.rank)
    inside = group.all_gather(np.array([comm.rank]))
    with comm.group() as calls:
        first = comm.all_reduce(np.full(7, comm.rank, "f4"))
        second = comm.all_gather(comm.full(2, comm.rank))
    calls.run()
    return group.ranks, inside.tolist(), first[0], second.tolist()


def test_groups_splits_and_repeated_groups_work_between_processes(job):
    assert job.run(groups_and_calls) == [
        ((2, 0), [2, 0], 9.0, [0, 0, 1, 1, 2, 2]),
        ((1,), [1], 9.0, [0, 0, 1, 1, 2, 2]),
        ((2, 0), [2, 0], 9.0, [0, 0, 1, 1, 2, 2]),
    ]


def many_calls_in_a_group(comm):
    arrays = [np.full(3, comm.rank + n) for n in range(600)]
    with comm.group():
        for x in arrays:
            comm.all_reduce(x)
    return all((x == 3 + 3 * n).all() for n, x in enumerate(arrays))


def test_a_group_has_more_calls_than_a_pass_has_room_for(job):
    assert job.run(many_calls_in_a_group) == [True] * 3


def groups_of_symmetric_arrays(comm):
    outcomes = []
    for reachable in ((0, 1, 2), (1,), ()):
        arrays = [(comm.full if comm.rank in reachable else np.full)(n, comm.rank + 1.0) for n in (1, 1000, 7)]
        with comm.group() as calls:
            for x in arrays:
                comm.all_reduce(x)
        outcomes += [float(x.sum() / x.size) for x in arrays]
        calls.run()
        outcomes += [float(x[0]) for x in arrays]
    return outcomes


def test_ranks_agree_on_the_path_of_a_group(job):
    assert job.run(groups_of_symmetric_arrays) == [([6.0] * 3 + [18.0] * 3) * 3] * 3


def small_scaled_sums(comm):
    """Each rank scales its own array, in place, whichever of them every rank can reach."""
    sums = []
    for reachable in ((0, 1, 2), (1,), ()):
        for count in (1, 5, 250, 1000):
            x = (comm.full if comm.rank in reachable else np.full)(count, comm.rank + 1.0)
            comm.all_reduce(x, nvcoll.premul_sum(10.0**comm.rank))
            sums.append(float(x.sum() / count))
    return sums


def test_each_contribution_is_scaled_once_whoever_passes_symmetric_memory(job):
    assert job.run(small_scaled_sums) == [[321.0] * 12] * 3


def scatter_in_place(comm):
    """Only the root is in place; its part of the symmetric input is its output."""
    x = comm.array(np.arange(6.0))
    part = x[0:2] if comm.rank == 0 else comm.empty(2)
    comm.scatter(x if comm.rank == 0 else None, root=0, out=part, path="mapped")
    return part.tolist(), x.tolist()


def test_the_root_of_a_mapped_scatter_of_symmetric_arrays_may_be_in_place(job):
    whole = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert job.run(scatter_in_place) == [(whole[2 * rank : 2 * rank + 2], whole) for rank in range(3)]


def calls_in_place_with_empty_parts(comm, path):
    """Ranks 1 and 2 have no elements, and no address that says whether they are in place."""
    counts, results = [3, 0, 0], []
    for empty in (slice(3, 3), None):
        whole = comm.zeros(3)
        part = whole[:3] if comm.rank == 0 else comm.empty(0) if empty is None else whole[empty]
        part += 1.0
        comm.all_gather(part, counts=counts, out=whole, path=path)
        results.append(whole.tolist())
        comm.reduce_scatter(whole, counts=counts, out=part, path=path)
        results.append(part.tolist())
    return results


@pytest.mark.parametrize("path", ["staged", "pushed", "mapped"])
def test_ranks_without_elements_call_as_those_that_are_in_place(job, path):
    of_first, of_others = [[1.0] * 3, [3.0] * 3] * 2, [[1.0] * 3, []] * 2
    assert job.run(partial(calls_in_place_with_empty_parts, path=path)) == [of_first, of_others, of_others]


def repeated_calls(comm, path, dtype):
    """Returns the calls whose bits changed within eight rounds; the first rounds try the kinds of stores in turn."""
    x = np.random.default_rng(comm.rank).integers(1, 100, 30_003).astype(dtype) / np.array(3, dtype)
    calls = {
        "sum": lambda y: comm.all_reduce(y, path=path),
        "max": lambda y: comm.all_reduce(y, "max", path=path),
        "root": lambda y: comm.broadcast(y, root=1, path=path),
        "gather": lambda y: comm.all_gather(y[1:], path=path),
        "scatter": lambda y: comm.reduce_scatter(y, "prod", path=path),
        "strided": lambda y: comm.all_reduce(np.repeat(y, 2)[::2], path=path),
    }
    different = {name for name, call in calls.items() if len({call(x.copy()).tobytes() for _ in range(8)}) != 1}
    return sorted(different), comm.all_reduce(x.copy()).tobytes() == comm.all_reduce(x.copy(), path="pushed").tobytes()


@pytest.mark.parametrize("dtype", ["f4", "f2", "f8"])
@pytest.mark.parametrize("path", ["staged", "pushed"])
def test_calls_give_the_same_bits_however_they_store(job, path, dtype):
    assert job.run(partial(repeated_calls, path=path, dtype=dtype)) == [([], True)] * 3


def test_init_checks_its_arguments_before_it_joins():
    program = """
        for arguments in ({"timeout": "x"}, {"join_timeout": -1}):
            try:
                nvcoll.init(**arguments)
            except nvcoll.InvalidArgument as error:
                print(error)
        print(nvcoll.init(timeout=1.0).world_size)
    """
    [(status, output, errors)] = results(start(1, program, "arguments"))
    assert (status, output.count("seconds, 0 or more"), output[-2:]) == (0, 2, "1\n"), errors


def test_a_subinterpreter_is_refused():
    program = """
        interpreters = __import__("_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters")
        try:
            print(interpreters.run_string(interpreters.create(), "import nvcoll"))
        except RuntimeError as error:
            print(error)
    """
    [(status, output, errors)] = results(start(1, program, "interpreter"))
    by_python = "does not support loading in subinterpreters"  # 3.12 and later
    assert status == 0 and ("nvcoll does not run in a subinterpreter" in output or by_python in output), errors


def arrays_of_every_kind(comm):
    made = [
        comm.empty(5),
        comm.empty((2, 3), dtype="float32"),
        comm.zeros((4, 0)),
        comm.full((2, 2), 7, dtype=np.int16),
        comm.array([[1, 2], [3, 4]]),
    ]
    return [(x.shape, str(x.dtype), bool(x.flags.writeable), x.sum() if n > 1 else 0) for n, x in enumerate(made)]


def test_symmetric_arrays_are_ordinary_numpy_arrays(job):
    expected = [
        ((5,), "float64", True, 0),
        ((2, 3), "float32", True, 0),
        ((4, 0), "float64", True, 0),
        ((2, 2), "int16", True, 28),
        ((2, 2), "int64", True, 10),
    ]
    assert job.run(arrays_of_every_kind) == [expected] * 3


def wrong_arrays(comm):
    messages = []
    for shape, dtype in ((-1, "f4"), (1 << 62, "f8"), (3, object), ((1 << 40,), "f8")):
        try:
            comm.empty(shape, dtype)
        except (nvcoll.InvalidArgument, MemoryError) as error:
            messages.append(str(error))
    return messages


def test_symmetric_arrays_that_cannot_be_made_are_refused(job):
    for messages in job.run(wrong_arrays):
        assert [text.split(":")[0] for text in messages] == [
            "`shape` is -1",
            "`shape` is 4611686018427387904",
            "`dtype` is object, whose elements are references",
            f"no memory for {8 << 40} bytes of symmetric memory on each rank",
        ]


def addresses_of_reused_memory(comm):
    addresses = set()
    for _ in range(50):
        x = comm.empty(1 << 18)
        part = x[5:100]
        addresses.add(part.ctypes.data)
        del x  # the slice holds the block
        comm.all_reduce(part)
        del part
        gc.collect()
    return len(addresses)


def test_memory_of_an_array_is_free_when_its_last_slice_is_gone(job):
    assert job.run(addresses_of_reused_memory) == [1] * 3


def mapped_and_mixed(comm):
    outcomes = []
    for reachable in ((0, 1, 2), (0, 2), ()):
        x = (comm.full if comm.rank in reachable else np.full)(1000, comm.rank + 1.0)
        outcomes.append(bool((comm.all_reduce(x) == 6).all()))
    try:
        comm.all_reduce(np.ones(3), path="mapped")
    except nvcoll.InvalidArgument as error:
        outcomes.append(str(error).split(":")[0].replace(str(comm.rank), "r"))
    return outcomes


def test_ranks_agree_on_the_path_whoever_passes_symmetric_memory(job):
    refused = "path is mapped, and the arrays of rank r are memory of its own process"
    assert job.run(mapped_and_mixed) == [[True, True, True, refused]] * 3


def test_a_process_is_one_rank_at_a_time_and_may_join_again():
    program = """
    comm = nvcoll.init(timeout=60)
    try:
        nvcoll.init()
    except nvcoll.InvalidArgument as error:
        print(error)
    nvcoll.finalize()
    try:
        comm.barrier()
    except nvcoll.Closed as error:
        print(error)
    comm = nvcoll.init(timeout=60)
    print(comm.all_reduce(np.ones(3)))
    """
    for status, out, errors in results(start(2, program, "again")):
        assert (status, errors) == (0, "")
        first, second, third = out.splitlines()
        assert first.startswith("this process is rank") and "nvcoll.finalize()" in first
        assert second.startswith("the program of this rank has ended")
        assert third == "[2. 2. 2.]"


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("raise ValueError('no')", "rank 1 failed"),
        ("sys.exit(3)", "rank 1 ended with status 3"),
        ("sys.exit('no')", "rank 1 ended with status 1"),
        ("group.abort(); time.sleep(0.5); os._exit(0)", "rank 1 called abort"),
    ],
)
@pytest.mark.parametrize(("make", "where"), [("np.ones", "comm.split(0)"), ("comm.zeros", "comm")])
def test_peers_of_a_rank_that_ends_get_its_name_in_its_groups_too(end, words, make, where):
    program = f"""
    comm = nvcoll.init(timeout=60)
    x, group = {make}(100_000), {where}
    try:
        for call in range(10**9):
            group.all_reduce(x)
            if comm.rank == 1:
                {end}
    except nvcoll.Aborted as error:
        print(error)
    """
    (status, first, errors), _, (_, third, _) = results(start(3, program, "end"))
    assert (status, errors) == (0, "")
    assert first.startswith("rank 1 ") and third.startswith("rank 1 ")
    assert words in first and words in third


@pytest.mark.parametrize("end", ["pass", "sys.exit()", "sys.exit(0)"])
def test_a_rank_that_returned_is_named_by_the_peer_that_calls_again(end):
    program = f"""
    comm = nvcoll.init(timeout=60)
    comm.barrier()
    if comm.rank == 1:
        {end}
    if comm.rank == 0:
        try:
            comm.all_reduce(np.ones(4))
        except nvcoll.Mismatch as error:
            print(error)
    """
    (status, out, _), _ = results(start(2, program, "returned"))
    assert status == 0 and "the program of rank 1 returned after 1 call" in out


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="ranks cannot be bound to different numbers of CPUs")
def test_ranks_that_are_bound_to_different_cpus_choose_alike():
    """By themselves, one CPU and two would choose nvswitch and one_shot for 64 elements."""
    program = """
    rank = int(os.environ["NVCOLL_RANK"])
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: rank + 1])
    comm = nvcoll.init(timeout=20)
    for count in (1, 16, 64, 100, 128, 200, 1000, 100_000):
        for make in (np.ones, comm.zeros):
            x = make(count, "i4")
            x[:] = np.arange(count) * (rank + 1)
            assert np.array_equal(comm.all_reduce(x), 3 * np.arange(count)), count
    print("alike")
    """
    assert [(status, out) for status, out, _ in results(start(2, program, "bound"))] == [(0, "alike\n")] * 2
