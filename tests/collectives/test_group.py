"""Groups: calls that are launched as one give what they give one by one."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import nvcoll
from nvcoll._nvcoll import algorithms


def rank_arrays(world_size: int, count: int, seed: int, dtype: str = "f4") -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(-100, 100, count).astype(dtype) for _ in range(world_size)]


def total(arrays):
    return sum(arrays[1:], start=arrays[0].copy())


@pytest.mark.parametrize("path", ["mapped", "staged", "pushed"])
@pytest.mark.parametrize("world_size", [1, 2, 5])
def test_a_node_s_group_gives_every_result_when_the_block_ends_and_again(path, world_size):
    node = nvcoll.Node(world_size)
    counts = [256] * 8 + [0, 1, 70_001]
    grads = [rank_arrays(world_size, count, seed) for seed, count in enumerate(counts)]
    shards = rank_arrays(world_size, 33, 99, "i8")
    with node.group() as group:
        for nth, grad in enumerate(grads):
            returned = node.all_reduce(grad, algorithm=("nvswitch", "ring")[nth % 3 == 0], path=path)
            assert returned is grad
        gathered = node.all_gather(shards, path=path)
        best = node.reduce([x.copy() for x in shards], "max", root=world_size - 1, path=path)
        assert all(np.array_equal(x, y) for x, y in zip(grads[0], rank_arrays(world_size, 256, 0), strict=True))
    assert len(group) == len(counts) + 2
    for seed, grad in enumerate(grads):
        expected = total(rank_arrays(world_size, counts[seed], seed))
        assert all(np.array_equal(x, expected) for x in grad)
    assert all(np.array_equal(x, np.concatenate(shards)) for x in gathered)
    assert np.array_equal(best, np.max(shards, axis=0))
    for seed, grad in enumerate(grads):
        for x, y in zip(grad, rank_arrays(world_size, counts[seed], seed + 50), strict=True):
            x[:] = y
    group.run()
    for seed, grad in enumerate(grads):
        expected = total(rank_arrays(world_size, counts[seed], seed + 50))
        assert all(np.array_equal(x, expected) for x in grad)


def test_strided_arrays_are_packed_before_the_group_runs_and_written_back_after_it():
    node, wide = nvcoll.Node(2), np.arange(80, dtype="f8").reshape(2, 10, 4)
    kept = wide.copy()
    with node.group():
        node.all_reduce([wide[0, :, 0], wide[1, :, 0]])
        node.all_reduce([wide[0, :, 2], wide[1, :, 2]], "max")
    assert np.array_equal(wide[:, :, [1, 3]], kept[:, :, [1, 3]])
    assert np.array_equal(wide[0, :, 0], kept[0, :, 0] + kept[1, :, 0]) and np.array_equal(wide[1, :, 2], kept[1, :, 2])


def test_a_block_that_raises_launches_nothing_and_the_node_is_usable():
    node, grads = nvcoll.Node(2), np.ones((2, 5), "f4")
    with pytest.raises(ZeroDivisionError), node.group():
        node.all_reduce(grads)
        raise ZeroDivisionError
    assert (grads == 1).all()
    node.all_reduce(grads)
    assert (grads == 2).all()


def test_ranks_whose_blocks_all_raise_go_on():
    def program(comm):
        grad = np.ones(5, "f4")
        with pytest.raises(ZeroDivisionError), comm.group():
            comm.all_reduce(grad)
            raise ZeroDivisionError
        assert (grad == 1).all()
        return float(comm.all_reduce(grad)[0])

    assert nvcoll.Node(2).run(program, timeout=60) == [2.0, 2.0]


@pytest.mark.parametrize("then", ["returns", "raises", "calls"])
def test_the_peers_of_a_rank_whose_block_raised_are_told_and_do_not_wait_for_ever(then):
    told = []

    def program(comm):
        grads = np.ones((2, 5), "f4")
        try:
            with comm.group():
                comm.all_reduce(grads[0])
                comm.all_reduce(grads[1])
                if comm.rank == 0:
                    raise ZeroDivisionError
        except ZeroDivisionError:
            if then == "raises":
                raise
            if then == "calls":
                comm.barrier()
        except nvcoll.Error as error:
            told.append(type(error))
            raise

    with pytest.raises((ZeroDivisionError, nvcoll.Mismatch)):
        nvcoll.Node(3).run(program)
    assert len(told) == 2 and set(told) <= {nvcoll.Aborted, nvcoll.Mismatch}


def test_a_program_that_returns_in_an_open_group_has_failed():
    def program(comm):
        group = comm.group()
        group.__enter__()
        comm.all_reduce(np.ones(5, "f4"))

    with pytest.raises(nvcoll.Busy, match="returned while a group was open, whose calls were not made"):
        nvcoll.Node(2).run(program)


def test_new_arrays_hold_zeros_until_their_group_or_plan_runs():
    node, parts = nvcoll.Node(2), np.ones((2, 300_000), "f4")
    with node.group():
        gathered = node.all_gather(list(parts))
        assert not np.any(gathered)
    plan = node.plan("all_gather", list(parts))
    assert not np.any(plan.result)
    plan.run()
    assert np.all(gathered) and np.all(plan.result)

    def program(comm):
        with comm.group():
            gathered = comm.all_gather(parts[comm.rank])
            assert not gathered.any()
        return bool(gathered.all())

    assert nvcoll.Node(2).run(program, timeout=60) == [True, True]


def test_an_empty_group_does_nothing():
    def program(comm):
        with comm.group() as group:
            pass
        group.run()
        return len(group), float(comm.all_reduce(np.ones(1, "f4"))[0])

    assert nvcoll.Node(2).run(program, timeout=60) == [(0, 2.0)] * 2


def test_arrays_of_two_calls_that_overlap_are_refused_by_call():
    node, grads, other = nvcoll.Node(2), np.ones((2, 8), "f4"), np.ones((2, 8), "f4")
    with pytest.raises(nvcoll.InvalidArgument, match=r"of rank 0 in call 1 of the group and .* in call 3 of the group"):
        with node.group():
            node.all_reduce(grads)
            node.all_reduce(other)
            node.all_gather([grads[0, 4:], other[1, :0]], counts=[4, 0])
    assert (grads == 1).all() and (other == 1).all()
    with node.group():
        node.all_gather([grads[0], grads[1]])
        node.all_gather([grads[0], grads[1]])


@pytest.mark.parametrize("others", [0, 2])
def test_memory_that_ranks_share_between_collectives_of_their_groups_is_refused(others):
    node, shared = nvcoll.Node(2), np.ones(64, "f4")

    def program(comm):
        grads = np.ones((3, 64), "f4")
        with comm.group():
            comm.all_reduce(shared[:40] if comm.rank == 0 else grads[0, :40])
            comm.all_gather(grads[1, :40] if comm.rank == 0 else shared[:40], out=np.ones(80, "f4"))
            for _ in range(others):
                comm.all_reduce(np.ones(5, "f4"), "max")

    with pytest.raises(nvcoll.InvalidArgument, match=r"rank 0 and rank 1 passed to .* overlaps"):
        node.run(program, timeout=60)
    assert (shared == 1).all()

    with pytest.raises(nvcoll.InvalidArgument, match=r"in call 1 of the group and .* in call 2 of the group"):
        with node.group():
            node.all_reduce([shared[:40], np.ones(40, "f4")])
            node.all_gather([np.ones(8, "f4"), shared[32:40]])
    assert (shared == 1).all()


SHAPES = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 3), st.integers(0, 300), st.integers(0, 20_000)),
        st.sampled_from(["float32", "float64", "float16", "int8", "uint32", "complex64"]),
        st.sampled_from(["sum", "avg", "premul_sum", "prod"]),
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)
NAMES = [row.name for row in algorithms() if row.collective == "all_reduce"]


@settings(max_examples=examples(40))
@given(
    world_size=st.integers(1, 9),
    shapes=SHAPES,
    names=st.lists(st.sampled_from(["auto", "nvswitch", *NAMES]), min_size=1, max_size=3),
    path=st.sampled_from(["mapped", "staged", "pushed"]),
    seed=st.integers(0, 1000),
)
def test_a_group_gives_the_bits_of_its_calls_made_one_by_one(world_size, shapes, names, path, seed):
    """Calls of all sizes, dtypes and ops share passes; of ranks that call for themselves, and of a node."""
    rng = np.random.default_rng(seed)
    scalars = [rank + 2 for rank in range(world_size)]

    def is_possible(dtype, op):
        return not (op == "avg" and np.dtype(dtype).kind in "iu") and not (op == "premul_sum" and dtype == "complex64")

    calls = [(count, dtype, op if is_possible(dtype, op) else "sum", alone) for count, dtype, op, alone in shapes]
    data = [[rng.integers(1, 4, count).astype(dtype) for _ in range(world_size)] for count, dtype, _, _ in calls]

    def make(call, arrays, outs, scalar):
        for nth, ((_, _, op, alone), x, out) in enumerate(zip(calls, arrays, outs, strict=True)):
            op = nvcoll.premul_sum(scalar) if op == "premul_sum" else op
            call(x, op, algorithm=names[nth % len(names)], path=path, out=out if alone else None)

    def results(arrays, outs):
        return [out if alone else x for (*_, alone), x, out in zip(calls, arrays, outs, strict=True)]

    def fresh(rank):
        return [[x[rank].copy() for x in data], [np.zeros_like(x[rank]) for x in data]]

    def program(comm):
        one_by_one, grouped = fresh(comm.rank), fresh(comm.rank)
        make(comm.all_reduce, *one_by_one, scalars[comm.rank])
        with comm.group() as group:
            make(comm.all_reduce, *grouped, scalars[comm.rank])
        first = [x.tobytes() for x in results(*grouped)]
        for x, value in zip(grouped[0], fresh(comm.rank)[0], strict=True):
            x[:] = value
        comm.barrier()
        group.run()
        expected = [x.tobytes() for x in results(*one_by_one)]
        assert first == expected and [x.tobytes() for x in results(*grouped)] == expected
        return expected

    node = nvcoll.Node(world_size)
    by_rank = node.run(program, timeout=60)
    arrays, outs = zip(*(fresh(rank) for rank in range(world_size)), strict=True)
    arrays, outs = [list(x) for x in zip(*arrays, strict=True)], [list(x) for x in zip(*outs, strict=True)]
    with node.group():
        make(node.all_reduce, arrays, outs, scalars)
    for nth, of_call in enumerate(results(arrays, outs)):
        assert [x.tobytes() for x in of_call] == [of_rank[nth] for of_rank in by_rank]


def test_a_mismatch_counts_the_calls_of_the_whole_group():
    def program(comm):
        with comm.group():
            comm.all_reduce(np.ones(4, "f4"))
            comm.all_gather(np.ones(4, "f4"))
            comm.all_reduce(np.ones(4, "f4"), "max" if comm.rank else "min")

    with pytest.raises(nvcoll.Mismatch, match=r"\(call 3 of 3 in a group\).*\(call 3 of 3 in a group\)"):
        nvcoll.Node(2).run(program, timeout=60)


def test_what_cannot_be_in_a_group_is_refused_where_it_is_called():
    node, grads = nvcoll.Node(2), np.ones((2, 5), "f4")
    with node.group() as group:
        with pytest.raises(nvcoll.InvalidArgument, match="barrier cannot be in a group"):
            node.barrier()
        with pytest.raises(nvcoll.InvalidArgument, match=r"`timeout` is given in a group.*pass it to group\(\)"):
            node.all_reduce(grads, timeout=1)
        with pytest.raises(nvcoll.InvalidArgument, match="no op is called `summ`"):
            node.all_reduce(grads, "summ")
        with pytest.raises(nvcoll.Busy, match="a group is open"):
            node.group().__enter__()
        with pytest.raises(nvcoll.Busy, match="was not launched"):
            group.run()
    assert len(group) == 0 and (grads == 1).all()
    with node.group(), pytest.raises(nvcoll.Busy, match="is not open"):
        node.group().__exit__(None, None, None)

    def program(comm):
        with comm.group(), pytest.raises(nvcoll.InvalidArgument, match="split cannot be in a group"):
            comm.split(0)

    node.run(program, timeout=60)


def test_a_call_of_another_thread_while_a_group_is_open_is_refused():
    node, refused = nvcoll.Node(2), []

    def other():
        try:
            node.all_reduce(np.ones((2, 5), "f4"))
        except nvcoll.Busy as error:
            refused.append(str(error))

    with node.group():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert len(refused) == 1 and "a group is open" in refused[0]


def test_a_group_that_ranks_do_not_come_to_times_out_and_says_who():
    def program(comm):
        if comm.rank == 0:
            with comm.group(timeout=0.05):
                comm.all_reduce(np.ones(4, "f4"))

    with pytest.raises((nvcoll.Timeout, nvcoll.Mismatch)):
        nvcoll.Node(2).run(program)
