"""Ranks that call for themselves: what they return, and every way in which they can disagree, fail or be misused."""

import threading
import time

import numpy as np
import pytest
from rank_threads import ends_of

import nvcoll

pytestmark = pytest.mark.timeout(100)


def ones(count=12, dtype="f4"):
    return np.ones(count, dtype=dtype)


def errors_of(node, program, expected):
    """Runs a program that fails; returns the exception of each rank by rank. The node goes on."""
    seen, first = ends_of(node, program)
    assert isinstance(first, expected)
    assert node.run(lambda comm: comm.all_reduce(ones(1))[0], timeout=60) == [node.world_size] * node.world_size
    return seen


@pytest.mark.parametrize("world_size", [1, 2, 7])
def test_what_ranks_return_is_collected_by_rank(world_size):
    def program(comm, scale):
        comm.barrier()
        x = comm.all_reduce(np.full(3, comm.rank, dtype="i4"), "max", path="staged" if scale else "mapped")
        return comm.rank * scale, comm.world_size, x.tolist()

    for scale in (0, 10):
        expected = [(rank * scale, world_size, [world_size - 1] * 3) for rank in range(world_size)]
        assert nvcoll.Node(world_size).run(program, scale) == expected


@pytest.mark.parametrize("algorithm", ["nvswitch", "ring", "tree"])
@pytest.mark.parametrize("path", ["mapped", "staged", "pushed"])
@pytest.mark.parametrize("pair", [(0, 1), (1, 4), (2, 5), (0, 5)])
def test_ranks_that_pass_overlapping_memory_are_named_on_every_rank(algorithm, path, pair):
    shared = np.ones(1999, dtype="f4")
    start = {pair[0]: 0, pair[1]: 999}

    def program(comm):
        comm.all_reduce(ones(7))
        own = np.ones(1000, dtype="f4")
        x = shared[start[comm.rank] :][:1000] if comm.rank in start else own
        comm.all_reduce(x, algorithm=algorithm, path=path)

    seen = errors_of(nvcoll.Node(6), program, nvcoll.InvalidArgument)
    assert sorted(seen) == list(range(6))
    for error in seen.values():
        assert isinstance(error, nvcoll.InvalidArgument)
        assert f"rank {pair[0]} and rank {pair[1]} passed to all_reduce of 1000" in str(error)


def test_what_one_rank_writes_may_not_be_what_another_reads():
    shared = np.zeros(10, dtype="f4")

    def program(comm):
        comm.all_reduce(shared if comm.rank == 0 else ones(10), out=shared if comm.rank == 1 else ones(10))

    seen = errors_of(nvcoll.Node(3), program, nvcoll.InvalidArgument)
    assert all("rank 0 and rank 1 passed" in str(error) for error in seen.values()) and len(seen) == 3


def test_ranks_may_read_the_same_memory_and_write_neighbouring_memory():
    shared, rows = np.ones(10, dtype="f4"), np.zeros((4, 10), dtype="f4")
    nvcoll.Node(4).run(lambda comm: comm.all_reduce(shared, out=rows[comm.rank]), timeout=60)
    assert (rows == 4).all() and (shared == 1).all()


@pytest.mark.parametrize("path", ["mapped", "staged", "pushed"])
def test_memory_that_a_rank_has_back_may_be_passed_by_a_rank_that_enters_later(path):
    memory, is_back = np.zeros(4), threading.Event()

    def program(comm):
        if comm.rank == 2:
            assert is_back.wait(60)
        out = memory if comm.rank else np.zeros(4)
        comm.scatter(np.arange(12.0) if comm.rank == 0 else None, out=out, algorithm="direct", path=path)
        assert (out == np.arange(4.0) + 4 * comm.rank).all()
        if comm.rank == 1:
            is_back.set()

    nvcoll.Node(3).run(program, timeout=60)


def test_the_caller_gets_the_first_exception_with_notes_about_the_others():
    failing = threading.Barrier(2)

    def program(comm):
        if comm.rank in (1, 2):
            failing.wait(60)
            raise ValueError("boom") if comm.rank == 1 else KeyError("bang")
        comm.barrier()

    with pytest.raises((ValueError, KeyError)) as caught:
        nvcoll.Node(4).run(program)
    first, other = ("1", "rank 2 raised KeyError") if caught.type is ValueError else ("2", "rank 1 raised ValueError")
    assert caught.value.__notes__[0] == f"raised by rank {first}"
    assert any(note.startswith(other) for note in caught.value.__notes__[1:])
    assert not any("Aborted" in note for note in caught.value.__notes__)


def test_an_exception_that_cannot_print_itself_is_raised_all_the_same():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError("no words")

    def program(comm):
        if comm.rank == 1:
            raise Mute

    with pytest.raises(Mute) as caught:
        nvcoll.Node(2).run(program)
    assert caught.value.__notes__ == ["raised by rank 1"]


@pytest.mark.parametrize("first", range(3))
def test_what_several_ranks_raise_is_told_by_rank_whoever_is_first(first):
    failing, has_failed = threading.Barrier(3), threading.Event()

    def program(comm):
        failing.wait(60)
        try:
            if comm.rank != first:
                assert has_failed.wait(60)
            raise ValueError("boom")
        finally:
            has_failed.set()

    with pytest.raises(ValueError) as caught:
        nvcoll.Node(3).run(program)
    assert caught.value.__notes__ == ["raised by rank 0 and 2 others"]


def test_a_mismatch_names_the_lower_rank_first_whichever_finds_the_other():
    def program(comm, late):
        if comm.rank == late:
            time.sleep(0.001)
        comm.barrier() if comm.rank else comm.all_reduce(ones())

    for late in 20 * [0, 1]:
        with pytest.raises(nvcoll.Mismatch, match=r"^rank 0 called all_reduce .*, but rank 1 called barrier"):
            nvcoll.Node(2).run(program, late)


def test_exceptions_that_are_no_errors_reach_the_caller_too():
    def program(comm):
        if comm.rank == 1:
            raise SystemExit(3)
        comm.barrier()

    with pytest.raises(SystemExit):
        nvcoll.Node(3).run(program)


@pytest.mark.parametrize(("name", "arguments"), [("barrier", ()), ("split", (None,))])
def test_a_timeout_names_all_who_are_missing_and_ends_the_others(name, arguments):
    gone, is_next = threading.Event(), threading.Event()

    def program(comm):
        if comm.rank in (1, 3):
            assert gone.wait(60)
            return
        try:
            if comm.rank == 2:
                is_next.set()
                getattr(comm, name)(*arguments)
            else:
                assert is_next.wait(60)
                getattr(comm, name)(*arguments, timeout=1)  # long enough for the next step of rank 2
        finally:
            gone.set()

    words = rf"{name} timed out after 1 s: ranks 1, 3 have not entered the call; rank 1 has made no collective"
    with pytest.raises(nvcoll.Timeout, match=words) as caught:
        nvcoll.Node(4).run(program)
    assert isinstance(caught.value, TimeoutError)


@pytest.mark.parametrize("path", ["mapped", "staged", "pushed"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_driven_call_times_out_whoever_sees_it_first(path, workers):
    node = nvcoll.Node(4, workers=workers)
    x = np.ones((4, 1 << 20), dtype="f4")
    with pytest.raises(nvcoll.Timeout, match=r"timed out after 0"):
        node.all_reduce(x, path=path, timeout=0)
    x[:] = 1
    node.all_reduce(x, path=path, timeout=60)
    assert (x == 4).all()


@pytest.mark.parametrize(
    "use",
    [
        lambda node: node.run(lambda comm: comm.barrier()),
        lambda node: node.all_reduce([ones(), ones()]),
        lambda node: node.all_reduce([ones(), ones()], path="staged"),
        lambda node: node.plan("all_reduce", [ones(), ones()]).run(),
    ],
)
def test_a_node_in_a_run_is_busy_for_its_ranks_and_for_others(use):
    node = nvcoll.Node(2)
    with pytest.raises(nvcoll.Busy, match="in a run of its ranks"):
        node.run(lambda comm: use(node))
    inside, go_on = threading.Event(), threading.Event()

    def program(comm):
        inside.set()
        assert go_on.wait(60)
        comm.barrier()

    thread = threading.Thread(target=node.run, args=(program,))
    thread.start()
    assert inside.wait(60)
    try:
        with pytest.raises(nvcoll.Busy, match="in a run of its ranks"):
            use(node)
    finally:
        go_on.set()
        thread.join()
    use(node)


def test_another_node_may_run_inside_a_rank():
    def program(comm):
        inner = nvcoll.Node(2).run(lambda inner: inner.all_reduce(ones(1))[0])
        return comm.all_reduce(ones(1))[0], inner

    assert nvcoll.Node(2).run(program) == [(2, [2, 2])] * 2


def test_a_program_that_returns_ends_the_call_of_its_other_thread():
    ended = []

    def program(comm):
        if comm.rank == 1:
            assert gone.wait(60)
            return

        def wait_for_ever():
            try:
                comm.barrier()
            except nvcoll.Error as error:
                ended.append(error)
                gone.set()

        threading.Thread(target=wait_for_ever).start()
        time.sleep(0.2)

    gone = threading.Event()
    try:
        nvcoll.Node(2).run(program)
    except nvcoll.Busy as error:
        assert "join the thread" in str(error)
    assert isinstance(ended[0], (nvcoll.Aborted, nvcoll.Closed))


def test_an_algorithm_that_is_refuted_is_refuted_on_every_rank():
    @nvcoll.algorithm("all_reduce")
    def forgetful(b):
        b.copy(b.input(0, *b.chunks(1)), into=b.outputs)

    for _ in range(20):  # each time a new schedule, which eight ranks find unproved at about the same time
        schedule = forgetful().schedule(world_size=8)

        def program(comm, schedule=schedule):
            comm.all_reduce(ones(), algorithm=schedule)

        assert len(errors_of(nvcoll.Node(8), program, nvcoll.Refuted)) == 8
