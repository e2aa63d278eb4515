"""Groups of ranks: who is in which, what they compute, side by side, and every way in which one of them can end."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from left_open import assert_nothing_was_left, left_open, needs_lists, resident_bytes
from rank_threads import ends_of, in_threads

import nvcoll
from nvcoll import oracle

pytestmark = pytest.mark.timeout(100)

# A watchdog inside the calls, so that a hang is a Timeout that says who is missing.
WATCHDOG_S = 60.0


def ones(count=12, dtype="f4"):
    return np.ones(count, dtype=dtype)


def run(world_size, program, *args):
    return nvcoll.Node(world_size, workers=1).run(program, *args, timeout=WATCHDOG_S)


def grid(comm, columns):
    """Splits into the rows and the columns of a grid, by rank from left to right and then down."""
    return comm.split(comm.rank // columns), comm.split(comm.rank % columns)


def test_ranks_of_a_color_form_a_group_ordered_by_key_and_then_by_rank():
    keys = [3, 0, -7, 0, 3, 2**31 - 1, -(2**31)]

    def program(comm):
        group = comm.split(comm.rank % 2, keys[comm.rank])
        return group.ranks, group.rank, group.world_size

    evens, odds = (6, 2, 0, 4), (1, 3, 5)
    expected = [(g, g.index(rank), len(g)) for rank in range(7) for g in [odds if rank % 2 else evens]]
    assert run(7, program) == expected


@pytest.mark.parametrize("world_size", [1, 2, 5])
def test_a_split_by_one_color_is_all_ranks_and_by_none_nobody(world_size):
    def program(comm):
        every, none = comm.split(0), comm.split(None, 3)
        some = comm.split(7 if comm.rank == 0 else None)
        assert (some is None) == (comm.rank > 0) and (some is None or some.ranks == (0,))
        return every.ranks, every.rank, none, comm.ranks

    ranks = tuple(range(world_size))
    assert run(world_size, program) == [(ranks, rank, None, ranks) for rank in ranks]


def test_a_group_of_a_group_says_which_ranks_of_the_run_it_has():
    def program(comm):
        half = comm.split(comm.rank // 4, key=-comm.rank)
        quarter = half.split(half.rank // 2, key=-half.rank)
        assert half.all_reduce(ones(1))[0] == 4
        assert quarter.all_reduce(np.full(3, comm.rank, dtype="i4"))[0] == sum(quarter.ranks)
        return half.ranks, quarter.ranks, repr(quarter)

    outcomes = run(8, program)
    assert outcomes[5] == ((7, 6, 5, 4), (4, 5), "<nvcoll.Communicator rank 1 of 2, ranks 4, 5 of the run>")
    assert [ranks for _, ranks, _ in outcomes] == [(r // 2 * 2, r // 2 * 2 + 1) for r in range(8)]


@pytest.mark.parametrize("path", ["mapped", "staged"])
@pytest.mark.parametrize("algorithm", ["auto", "nvswitch", "ring", "tree"])
def test_groups_of_other_sizes_give_the_bits_of_the_oracle(algorithm, path):
    rng = np.random.default_rng(7)
    inputs = [rng.standard_normal(5000).astype(ml_dtypes.bfloat16) for _ in range(7)]
    groups = {color: [rank for rank in reversed(range(7)) if rank % 3 == color] for color in range(3)}

    def program(comm):
        group = comm.split(comm.rank % 3, -comm.rank)
        return group.all_reduce(inputs[comm.rank].copy(), "avg", algorithm=algorithm, path=path)

    results = run(7, program)
    for ranks in groups.values():
        name = "nvswitch" if algorithm == "auto" else algorithm
        schedule = nvcoll.schedule("all_reduce", name, world_size=len(ranks))
        expected = oracle.all_reduce(schedule, [inputs[rank] for rank in ranks], "avg")
        assert all(oracle.same_bits(results[rank], bits) for rank, bits in zip(ranks, expected, strict=True))


def test_an_algorithm_of_its_user_runs_in_groups_of_two_sizes():
    @nvcoll.algorithm("all_reduce")
    def chain(b):
        x = b.input(0, *b.chunks(1))
        for rank in range(1, b.world_size):
            x = b.fold(x, b.input(rank, 0), into=b.output(rank, 0))
        for rank in range(b.world_size - 1):
            b.copy(x, into=b.output(rank, 0))

    def program(comm):
        return comm.split(int(comm.rank >= 2)).all_reduce(ones(3), algorithm=chain)[0]

    assert run(5, program) == [2, 2, 3, 3, 3]
    schedule = chain.schedule(world_size=3)
    with pytest.raises(nvcoll.InvalidArgument, match="the schedule is for 3 ranks, the call is made by 2"):
        run(4, lambda comm: comm.split(comm.rank % 2).all_reduce(ones(), algorithm=schedule))


def sums(comm, group, rounds, path):
    for number in range(rounds):
        x = np.arange(257, dtype="i4") * (comm.rank + 1) + number
        expected = np.arange(257, dtype="i4") * sum(r + 1 for r in group.ranks) + number * group.world_size
        assert (group.all_reduce(x, path=path) == expected).all()
        if number % 7 == 0:
            group.barrier()


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize(("rows", "columns"), [(2, 2), (2, 3), (3, 2)])
def test_rows_and_columns_overlap_and_are_used_alternately_or_at_once(rows, columns, at_once):
    def program(comm):
        row, column = grid(comm, columns)
        if at_once:
            in_threads(lambda: sums(comm, row, 60, "mapped"), lambda: sums(comm, column, 60, "staged"))
        else:
            for _ in range(20):
                sums(comm, row, 1, "mapped")
                sums(comm, column, 2, "staged")
        return comm.all_reduce(ones(1))[0]

    assert run(rows * columns, program) == [rows * columns] * (rows * columns)


def test_a_group_goes_on_while_other_threads_of_its_ranks_wait_in_another_group():
    columns_are_through = threading.Barrier(4)

    def program(comm):
        row, column = grid(comm, 2)

        def use_the_column():
            for _ in range(50):
                assert column.all_reduce(ones(2))[0] == 2
            columns_are_through.wait(WATCHDOG_S)

        if comm.rank % 2 == 0:
            in_threads(row.barrier, use_the_column)
        else:  # its peer in the row waits until the columns are through
            use_the_column()
            row.barrier()

    run(4, program)


def test_a_communicator_serves_one_thread_at_a_time_and_another_is_free_meanwhile():
    refused = threading.Event()

    def program(comm):
        group = comm.split(0)

        def attempt():
            try:
                group.barrier()
            except nvcoll.Busy as error:
                assert "in a call of another thread" in str(error)
                comm.barrier()
                refused.set()

        if comm.rank == 0:
            in_threads(attempt, attempt)
        else:
            comm.barrier()
            assert refused.wait(WATCHDOG_S)
            group.barrier()

    run(2, program)


def test_a_rank_that_raises_ends_the_calls_of_its_row_and_its_column_and_of_no_other():
    through = threading.Barrier(5)  # a rank that ends may end a call in which another one is still leaving

    def program(comm):
        row, column = grid(comm, 3)  # 0 1 2 above 3 4 5
        if comm.rank == 4:
            raise ValueError("boom")
        if comm.rank == 1:
            with pytest.raises(nvcoll.Aborted, match=r"^rank 1 failed.* are ranks 1, 4 of the run\)$"):
                column.barrier()
        if comm.rank in (3, 5):
            with pytest.raises(nvcoll.Aborted, match=r"^rank 1 failed.* are ranks 3, 4, 5 of the run\)$"):
                row.all_reduce(ones())
        if comm.rank < 3:
            assert row.all_reduce(ones(1))[0] == 3
        if comm.rank != 1:
            assert column.all_reduce(ones(1))[0] == 2
        with pytest.raises(nvcoll.Aborted, match="rank 4 failed"):
            comm.barrier()
        through.wait(WATCHDOG_S)
        raise KeyError(comm.rank)

    seen, first = ends_of(nvcoll.Node(6), program)
    assert isinstance(first, ValueError)
    assert all(isinstance(seen[rank], KeyError) for rank in range(6) if rank != 4)


@pytest.mark.parametrize("split_late", [False, True])
def test_a_rank_that_raises_is_told_of_in_groups_that_its_peers_were_about_to_use(split_late):
    """Ranks in groups of groups, which wait for one that failed when they had split already, or while they split."""

    def program(comm):
        half = comm.split(comm.rank // 2)
        if comm.rank == 3 and split_late:
            raise ValueError("boom")
        pair = half.split(0)
        if comm.rank == 3:
            raise ValueError("boom")
        pair.barrier()
        raise KeyError("through") if comm.rank < 2 else AssertionError("rank 3 did not come")

    seen, _ = ends_of(nvcoll.Node(4), program)
    assert isinstance(seen[2], nvcoll.Aborted) and isinstance(seen[3], ValueError)


def test_abort_ends_the_calls_of_its_own_communicator_and_says_who_called_it():
    def program(comm):
        half = comm.split(comm.rank // 3)
        pair = half.split(half.rank // 2)
        if comm.rank == 4:
            half.abort()
        if comm.rank >= 3:
            for call in (half.barrier, lambda: half.all_reduce(ones()), lambda: half.split(0), half.barrier):
                with pytest.raises(nvcoll.Aborted, match=r"^rank 1 called abort: .* are ranks 3, 4, 5 of the run\)$"):
                    call()
        half.barrier() if comm.rank < 3 else None
        assert pair.all_reduce(ones(1))[0] == pair.world_size
        comm.barrier()
        again = comm.split(comm.rank // 3)
        return again.all_reduce(ones(1))[0]

    assert run(6, program) == [3] * 6


def test_abort_of_the_whole_communicator_leaves_the_groups():
    def program(comm):
        group = comm.split(comm.rank % 2)
        if comm.rank == 2:
            comm.abort()
        with pytest.raises(nvcoll.Aborted, match=r"^rank 2 called abort: the call was aborted$"):
            comm.barrier()
        return group.all_reduce(ones(1))[0]

    assert run(4, program) == [2] * 4


def test_abort_ends_a_call_that_another_thread_is_in():
    def program(comm):
        group = comm.split(0)
        ended = []

        def wait():
            try:
                group.barrier()
            except nvcoll.Aborted as error:
                ended.append(str(error))

        if comm.rank == 0:
            thread = threading.Thread(target=wait)
            thread.start()
            comm.barrier()
            group.abort()
            thread.join()
            assert "rank 0 called abort" in ended[0]
        else:
            comm.barrier()
        comm.barrier()

    run(2, program)


def test_a_timeout_in_a_group_ends_its_calls_and_leaves_the_others():
    gone = threading.Event()

    def program(comm):
        group, other = comm.split(comm.rank % 2), comm.split(comm.rank % 2)
        if comm.rank == 2:
            with pytest.raises(
                nvcoll.Timeout,
                match=r"rank 0 has not entered the call; rank 0 of the run has made no .* are ranks 0, 2 of the run\)$",
            ):
                group.barrier(timeout=0.05)
            gone.set()
        assert gone.wait(WATCHDOG_S)
        for _ in range(2):
            if comm.rank == 0:
                with pytest.raises(nvcoll.Aborted, match=r"^rank 1 timed out: the call was aborted"):
                    group.barrier()
            elif comm.rank == 2:
                with pytest.raises(nvcoll.Timeout):
                    group.barrier()
            else:
                group.barrier()
        return other.all_reduce(ones(1))[0] + comm.all_reduce(ones(1))[0]

    assert run(4, program) == [6] * 4


def test_a_mismatch_or_an_overlap_in_a_group_is_told_in_its_own_numbers():
    shared = ones(10)

    def program(comm):
        odd = comm.split(comm.rank % 2)
        if comm.rank % 2:
            with pytest.raises(nvcoll.Mismatch, match=r"rank [01] called .* are ranks 1, 3 of the run\)$") as caught:
                odd.barrier() if comm.rank == 1 else odd.all_reduce(ones())
            assert "called barrier" in str(caught.value) and "called all_reduce of 12" in str(caught.value)
        else:
            with pytest.raises(
                nvcoll.InvalidArgument, match=r"rank 0 and rank 1 passed.* are ranks 0, 2 of the run\)$"
            ):
                odd.all_reduce(shared)
        comm.barrier()

    run(4, program)


@pytest.mark.parametrize("odd_rank", [0, 1, 3])
def test_a_split_beside_another_call_is_a_mismatch_that_names_both(odd_rank):
    def program(comm):
        comm.barrier()
        comm.all_reduce(ones()) if comm.rank == odd_rank else comm.split(0)

    seen, _ = ends_of(nvcoll.Node(4), program)
    assert sorted(seen) == [0, 1, 2, 3]
    for error in seen.values():
        assert isinstance(error, nvcoll.Mismatch)
        assert f"rank {odd_rank} called all_reduce of 12" in str(error) and "called split" in str(error)


def test_a_rank_whose_program_returned_is_missed_in_every_communicator():
    def program(comm):
        row, column = grid(comm, 2)
        row.barrier()
        if comm.rank == 0:
            return
        left = "returned, or dropped the communicator, after"
        if comm.rank == 1:
            with pytest.raises(nvcoll.Mismatch, match=f"rank 0 {left} 1 call, but rank 1 called barrier"):
                row.barrier()
        if comm.rank == 2:
            with pytest.raises(nvcoll.Mismatch, match=f"rank 0 {left} 0 calls, but rank 1 called split"):
                column.split(0)
        with pytest.raises(nvcoll.Mismatch, match="rank 0 returned after 2 calls"):
            comm.barrier()

    run(4, program)


def test_a_rank_that_drops_a_group_has_left_it():
    def program(comm):
        group = comm.split(0)
        if comm.rank == 0:
            del group
        else:
            with pytest.raises(nvcoll.Mismatch, match="rank 0 returned, or dropped the communicator, after 0 calls"):
                group.barrier()
        return comm.all_reduce(ones(1))[0]

    assert run(3, program) == [3] * 3


def test_groups_end_with_the_program_of_their_rank():
    kept = run(4, lambda comm: (comm, *grid(comm, 2)))
    for comms in kept:
        for comm in comms:
            calls = (comm.barrier, lambda c=comm: c.all_reduce(ones()), lambda c=comm: c.split(0), comm.abort)
            for call in (*calls, lambda c=comm: c.barrier(async_op=True)):
                with pytest.raises(nvcoll.Closed, match="has ended"):
                    call()
            assert comm.rank in (0, 1, 2, 3) and len(comm.ranks) == comm.world_size


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1,), r"`color` is -1: it must be a whole number, at least 0 and less than 2\^31"),
        ((2**31,), "`color` is 2147483648: it must be"),
        ((True,), "`color` is True"),
        ((1.0,), r"`color` is 1\.0"),
        (("red",), "`color` is 'red'"),
        ((0, 2**31), "`key` is 2147483648: it must be a whole number, at least -2147483648 and less than"),
        ((0, False), "`key` is False"),
    ],
)
def test_a_color_or_a_key_that_is_none_is_refused_and_nothing_was_called(arguments, message):
    def program(comm):
        with pytest.raises(nvcoll.InvalidArgument, match=message):
            comm.split(*arguments)
        with pytest.raises(nvcoll.InvalidArgument, match="`timeout` is"):
            comm.split(0, timeout=-1)
        return comm.all_reduce(ones(1))[0]

    assert run(2, program) == [2, 2]


def test_a_group_has_the_timeout_of_what_it_was_split_off():
    gone = threading.Event()

    def program(comm):
        group = comm.split(0).split(0)
        if comm.rank == 1:
            assert gone.wait(WATCHDOG_S)
            return
        try:
            group.barrier()
        finally:
            gone.set()

    with pytest.raises(nvcoll.Timeout, match=r"barrier timed out after 2 s"):  # the splits take far less
        nvcoll.Node(2).run(program, timeout=2)


@needs_lists
def test_three_thousand_splits_leave_nothing_behind():
    """In a process of its own: memory that other tests have freed comes and goes."""
    program = "import test_split; test_split.three_thousand_splits()"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parent,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ended.returncode == 0, ended.stderr


def three_thousand_splits():
    """A world of two ranks takes 6 KiB: forgotten ones would be 12 and 18 MiB, and staging that is used far more.

    What the allocator keeps comes and goes, so the lesser of two counts."""

    def splits(comm, times):
        for number in range(times):
            group = comm.split((comm.rank + number) % 2, -comm.rank)
            if number % 100 == 0:
                group.all_reduce(ones(50), path="staged")
            if number % 10 == 0:
                assert group.split(0).ranks == group.ranks

    node = nvcoll.Node(4, workers=1)
    node.run(splits, 500, timeout=WATCHDOG_S)
    before, resident = left_open(), resident_bytes()
    after = []
    for times in (2_000, 1_000):
        node.run(splits, times, timeout=WATCHDOG_S)
        after.append(resident_bytes())
    assert_nothing_was_left(before, 30)
    assert min(after) - resident < 6 << 20


@needs_lists
@pytest.mark.parametrize("end", ["raise", "abort", "timeout", "return"])
def test_groups_that_end_badly_leave_nothing_behind(end):
    def program(comm):
        groups = [comm.split(comm.rank % 2), comm.split(0, -comm.rank)]
        groups[1].all_reduce(ones(50), path="staged")
        if comm.rank == 0 and end == "raise":
            raise ValueError("boom")
        if comm.rank == 0 and end == "abort":
            groups[1].abort()
        if comm.rank == 0 and end == "return":
            return
        if comm.rank == 0 and end == "timeout":
            groups[1].barrier(timeout=0)
        groups[1].barrier()

    def round_trip():
        node = nvcoll.Node(4, workers=1)
        for _ in range(3):
            with pytest.raises((ValueError, nvcoll.Error)):
                node.run(program, timeout=WATCHDOG_S)

    for _ in range(3):
        round_trip()
    before = left_open()
    for _ in range(20):
        round_trip()
    assert_nothing_was_left(before, 20)
