"""Calls with `async_op=True` between threads: results, order, arrays in flight, failures, asyncio, ends."""

import asyncio
import gc
import os
import sys
import threading
import time

import numpy as np
import pytest
import random_programs
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_threads import in_threads
from strategies import programs

import nvcoll

WATCHDOG_S = 60


def progress_threads() -> int:
    """Counts the threads of this process that advance calls in flight."""
    names = []
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{thread}/comm") as file:
            names.append(file.read().strip())
    return names.count("nvcoll-progress")


def no_progress_thread_is_left() -> bool:
    """Waits until the progress threads of idle ranks have ended, which they do after about a second."""
    gc.collect()
    until = time.monotonic() + WATCHDOG_S
    while progress_threads() and time.monotonic() < until:
        time.sleep(0.05)
    return progress_threads() == 0


def beside_a_call_in_flight(check, world_size=2, make=lambda comm, x: comm.all_reduce(x, async_op=True)):
    """Has rank 0 check something while its call is in flight, which the others enter afterwards."""
    checked = threading.Event()

    def program(comm):
        x = np.full(100, comm.rank + 1.0)
        if comm.rank == 0:
            work = make(comm, x)
            try:
                seen = check(comm, x, work)
            finally:
                checked.set()
            return seen, work.wait()
        assert checked.wait(WATCHDOG_S)
        make(comm, x).wait()
        return None

    return nvcoll.Node(world_size).run(program, timeout=WATCHDOG_S)[0]


@settings(max_examples=examples(30))
@given(st.integers(1, 4).flatmap(lambda world_size: st.tuples(st.just(world_size), programs(world_size))))
def test_random_programs_on_several_communicators_match_the_oracle(drawn):
    world_size, program = drawn
    nvcoll.Node(world_size).run(lambda comm: random_programs.run(program, comm), timeout=WATCHDOG_S)


def test_calls_run_in_the_order_of_issue_whether_they_block_or_not():
    def program(comm):
        rounds = [comm.all_gather(np.array([2 * n]), async_op=True) for n in range(20)]
        blocked = comm.all_gather(np.array([39]))
        assert all(work.done() for work in rounds)
        barrier = comm.barrier(async_op=True)
        half = comm.split(comm.rank % 2)
        assert barrier.done() and barrier.wait() is None
        with comm.group() as group:
            grouped = comm.all_gather(np.array([50]))
        before = comm.all_gather(np.array([51]), async_op=True)
        group.run()
        assert before.done()
        with comm.group(async_op=True) as issued:
            together = comm.all_gather(np.array([comm.rank]))
        assert issued.work.wait() is None
        with half.group(async_op=True) as empty:
            pass
        empty.work.wait()
        return [work.wait().tolist() for work in rounds], blocked.tolist(), grouped.tolist(), together.tolist()

    for rounds, blocked, grouped, together in nvcoll.Node(3).run(program, timeout=WATCHDOG_S):
        assert rounds == [[2 * n] * 3 for n in range(20)]
        assert (blocked, grouped, together) == ([39] * 3, [50] * 3, [0, 1, 2])


def test_thousands_of_calls_are_issued_while_others_run():
    """Issuing looks at the communicator, in which the thread of the calls begins another one at that moment."""

    def program(comm):
        works = [comm.barrier(async_op=True) for _ in range(3000)]
        return [work.exception() for work in works].count(None)

    assert nvcoll.Node(1).run(program, timeout=WATCHDOG_S) == [3000]
    assert nvcoll.Node(2).run(program, timeout=WATCHDOG_S) == [3000] * 2


def test_two_communicators_in_opposite_order_finish():
    def program(comm):
        both = [comm.split(0), comm.split(0)]
        order = [0, 1] if comm.rank == 0 else [1, 0]
        works = {at: both[at].all_gather(np.array([10 * at + comm.rank]), async_op=True) for at in order}
        return [works[at].wait().tolist() for at in order[::-1]]

    assert nvcoll.Node(2).run(program, timeout=WATCHDOG_S) == [[[10, 11], [0, 1]], [[0, 1], [10, 11]]]


def test_many_communicators_share_the_thread_of_their_rank_which_ends_after_them():
    assert no_progress_thread_is_left()

    def program(comm):
        comms = [comm.split(0) for _ in range(30)]
        works = [one.all_reduce(np.full(10, n), async_op=True) for n, one in enumerate(comms)]
        assert [int(work.wait()[0]) for work in works] == [2 * n for n in range(30)]
        comm.barrier()
        counted = progress_threads()
        comm.barrier()
        return counted

    assert nvcoll.Node(2).run(program, timeout=WATCHDOG_S) == [2, 2]
    assert no_progress_thread_is_left()


def test_the_wait_returns_what_the_call_returns_and_strided_arrays_are_written_back():
    def program(comm):
        grid = np.zeros((6, 8), "f4")
        grid[:, ::2] = comm.rank + 1
        assert comm.all_reduce(grid[:, ::2], async_op=True).wait().base is grid
        out = np.zeros((4, 3), "i8").T
        assert comm.all_reduce(np.ones((3, 4), "i8"), out=out, async_op=True).wait() is out
        reduced = comm.reduce(np.ones(3), root=1, async_op=True).wait()
        assert (reduced is None) == (comm.rank == 0)
        rows = [[1, 2], [3, 4]][comm.rank]
        swapped = comm.all_to_all(np.arange(sum(rows)), counts=rows, async_op=True).wait()
        return grid, out, swapped.tolist()

    first, second = nvcoll.Node(2).run(program, timeout=WATCHDOG_S)
    for grid, out, _ in (first, second):
        assert (grid[:, ::2] == 3).all() and (grid[:, 1::2] == 0).all() and (out == 2).all()
    assert (first[2], second[2]) == ([0, 0, 1, 2], [1, 2, 3, 4, 5, 6])


TOUCHES = {
    "a call that blocks": lambda comm, x: comm.broadcast(x),
    "a call that reads": lambda comm, x: comm.all_gather(x[7:9]),
    "a row of counts": lambda comm, x: comm.all_to_all(x[:2], counts=[1, 1]),
    "strided": lambda comm, x: comm.all_reduce(x[::3]),
    "a message": lambda comm, x: comm.isend(x[:1], 0),
    "a node": lambda comm, x: nvcoll.Node(1).all_reduce([x]),
    "a plan": lambda comm, x: nvcoll.Node(1).plan("all_reduce", [x]).run(),
}


@pytest.mark.parametrize("touch", TOUCHES)
def test_an_array_in_flight_is_refused_to_other_calls_and_both_are_named(touch):
    def check(comm, x, work):
        with pytest.raises(nvcoll.Busy, match="in flight") as refused:
            TOUCHES[touch](comm, x)
        assert "all_reduce of 100 float64" in str(refused.value) and not work.done()

    assert (beside_a_call_in_flight(check)[1] == 3).all()


def test_calls_that_were_issued_on_one_communicator_share_arrays_in_the_order_of_issue():
    def program(comm):
        x, rows = np.full(1000, comm.rank + 1.0), np.zeros((2, 500))
        with comm.group(async_op=True) as group:
            comm.all_reduce(x)  # 3
        works = [
            group.work,
            comm.all_reduce(x, "prod", async_op=True),  # 9
            comm.all_reduce(x[::2], async_op=True),  # 18, 9
            comm.all_gather(x[:500], out=rows, async_op=True),
            comm.all_to_all(x[:2], counts=[1, 1], out=x[2:4], async_op=True),
        ]
        for work in works:
            work.wait()
        return x.tolist(), rows.tolist()

    for x, rows in nvcoll.Node(2).run(program, timeout=WATCHDOG_S):
        assert x[4:] == [18, 9] * 498 and rows == [[18, 9] * 250] * 2
        assert x[2:4] in ([18, 18], [9, 9])


def test_an_array_in_flight_is_refused_to_a_group_and_to_another_communicator():
    def check(comm, x, work):
        def alone(other):
            with pytest.raises(nvcoll.Busy, match="in flight"):
                other.all_reduce(x)
            with pytest.raises(nvcoll.Busy, match="in flight"), other.group():
                other.all_reduce(x)
            with pytest.raises(nvcoll.Busy, match="in flight"), other.group(async_op=True):
                other.all_reduce(x)

        nvcoll.Node(1).run(alone)

    beside_a_call_in_flight(check)


def test_arrays_that_are_only_read_and_neighbours_are_free_while_a_call_is_in_flight():
    whole = np.ones(200)

    def make(comm, x):
        return comm.all_gather(whole[:100], async_op=True)

    def check(comm, x, work):
        nvcoll.Node(1).run(lambda other: other.all_gather(whole[:100]))
        nvcoll.Node(1).run(lambda other: other.all_reduce(whole[100:]))
        assert not work.done()

    beside_a_call_in_flight(check, make=make)
    nvcoll.Node(1).all_reduce([whole])


def test_an_array_in_flight_keeps_its_memory_and_its_work_says_so():
    def check(comm, x, work):
        with pytest.raises(ValueError, match="refere"):
            x.resize(3)
        assert repr(work).startswith("<nvcoll.Work all_reduce of 100 float64") and repr(work).endswith("in flight>")

    beside_a_call_in_flight(check)

    def program(comm):
        x = np.ones(1000)
        comm.all_reduce(x, async_op=True).wait()
        x.resize(3)  # nothing holds it any more
        return repr(comm.all_reduce(np.ones(2), async_op=True))

    nvcoll.Node(2).run(program, timeout=WATCHDOG_S)


def test_a_wait_that_takes_too_long_leaves_the_call_in_flight():
    def check(comm, x, work):
        for wait in (work.wait, work.exception):
            with pytest.raises(nvcoll.Timeout, match=r"all_reduce of 100 .* is in flight after a wait of 0.01 s"):
                wait(0.01)
        assert not work.done()

    assert (beside_a_call_in_flight(check)[1] == 3).all()


def test_the_timeout_of_a_call_ends_its_communicator():
    def program(comm):
        if comm.rank == 1:
            time.sleep(0.5)
        work = comm.all_reduce(np.ones(3), timeout=0.05, async_op=True)
        error = work.exception(WATCHDOG_S)
        with pytest.raises(type(error)):
            work.wait()
        with pytest.raises((nvcoll.Timeout, nvcoll.Aborted)):
            comm.barrier(async_op=True).wait()
        return error

    first, second = nvcoll.Node(2).run(program, timeout=WATCHDOG_S)
    assert isinstance(first, nvcoll.Timeout) and "rank 1 has not entered" in str(first)
    assert isinstance(second, nvcoll.Aborted) and "rank 0 timed out" in str(second)


def test_a_call_that_waits_for_its_turn_too_long_ends_its_communicator():
    def program(comm):
        if comm.rank == 0:
            work = comm.barrier(async_op=True)
            with pytest.raises(nvcoll.Timeout, match=r"all_reduce of 3 .*issued before were in flight"):
                comm.all_reduce(np.ones(3), timeout=0.05)
            return work.exception(WATCHDOG_S)
        time.sleep(0.5)
        return comm.barrier(async_op=True).exception(WATCHDOG_S)

    first, second = nvcoll.Node(2).run(program, timeout=WATCHDOG_S)
    assert isinstance(first, nvcoll.Timeout) and isinstance(second, nvcoll.Aborted)


def test_a_mismatch_is_raised_where_the_call_is_waited_for_and_in_the_task_that_awaits():
    async def awaited(work):
        return await work

    def program(comm):
        work = comm.all_reduce(np.ones(3 + comm.rank), async_op=True)
        waits = [work.wait, lambda: asyncio.run(awaited(work))]
        for wait in waits if comm.rank else waits[::-1]:
            with pytest.raises(nvcoll.Mismatch, match=r"of 3 float64.* of 4 float64"):
                wait()
        assert isinstance(work.exception(), nvcoll.Mismatch) and work.done() and repr(work).endswith("failed>")

    nvcoll.Node(2).run(program, timeout=WATCHDOG_S)


def test_a_wrong_argument_is_told_at_once_and_nothing_is_issued():
    def program(comm):
        with pytest.raises(nvcoll.InvalidArgument, match="no op is called"):
            comm.all_reduce(np.ones(3), "summ", async_op=True)
        with pytest.raises(nvcoll.InvalidArgument, match="pass it to group"), comm.group():
            comm.all_reduce(np.ones(3), async_op=True)
        assert progress_threads() == 0

    assert no_progress_thread_is_left()
    nvcoll.Node(1).run(program)


def test_a_failure_that_nobody_waits_for_is_told_as_one_in_a_destructor(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)

    def program(comm):
        seen = comm.all_gather(np.ones(1), async_op=True)
        works = [comm.all_reduce(np.ones(3 + comm.rank), async_op=True) for _ in range(2)]
        if comm.rank == 0:
            del works[0]  # before the call is over, or after it
        seen.wait()
        comm_is_over = works[-1].exception(WATCHDOG_S)
        works.clear()
        return comm_is_over

    nvcoll.Node(2).run(program, timeout=WATCHDOG_S)
    gc.collect()
    assert len(told) == 2 and all(isinstance(one.exc_value, nvcoll.Mismatch) for one in told)
    assert all("nobody waited for all_reduce of" in one.exc_value.__notes__[0] for one in told)


def test_tasks_of_several_event_loops_await_calls():
    def program(comm):
        comms = [comm.split(0) for _ in range(4)]

        async def one(at, number):
            return (await comms[at].all_gather(np.array([100 * at + number]), async_op=True)).tolist()

        async def several(at):
            return await asyncio.gather(*(one(at, number) for number in range(10)))

        return in_threads(*(lambda at=at: asyncio.run(several(at)) for at in range(4)))

    expected = [[[100 * at + number] * 2 for number in range(10)] for at in range(4)]
    assert nvcoll.Node(2).run(program, timeout=WATCHDOG_S) == [expected] * 2


def test_a_task_that_is_cancelled_leaves_its_call_as_it_is():
    def check(comm, x, work):
        async def main():
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(waiting()), 0.01)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(waiting(), 0.01)

        async def waiting():
            return await work

        asyncio.run(main())  # the call ends after its loop was closed
        assert not work.done()

    assert (beside_a_call_in_flight(check)[1] == 3).all()


def test_a_program_that_returns_makes_its_calls_in_flight_first():
    def program(comm):
        half, x = comm.split(0), np.full(1000, comm.rank + 1.0)
        half.all_reduce(x, async_op=True)
        del half  # the communicator lives until its call is over
        if comm.rank == 1:
            time.sleep(0.2)
        y = np.ones(3)
        return x, y, comm.all_reduce(y, async_op=True)

    for x, y, work in nvcoll.Node(2).run(program, timeout=WATCHDOG_S):
        assert work.done() and (x == 3).all() and (y == 2).all()
        assert work.wait() is y
    assert no_progress_thread_is_left()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # nobody waits for the call of rank 0
def test_a_rank_that_returned_departs_from_idle_communicators_first():
    """Else rank 0 would wait in one for rank 1, and rank 1 in the other for rank 0."""

    def program(comm):
        other = comm.split(0)
        if comm.rank == 0:
            return other.all_reduce(np.ones(3), async_op=True)
        comm.barrier()

    with pytest.raises(nvcoll.Mismatch, match=r"rank 0 returned after 1 call, but rank 1 called barrier"):
        nvcoll.Node(2).run(program, timeout=WATCHDOG_S)


def test_a_program_that_raises_ends_its_calls_in_flight():
    def program(comm):
        if comm.rank == 0:
            works = [comm.all_reduce(np.ones(3), async_op=True) for _ in range(3)]
            raise ValueError(f"after {len(works)} calls")
        time.sleep(0.1)
        with pytest.raises(nvcoll.Aborted, match="rank 0 failed"):
            for _ in range(3):
                comm.all_reduce(np.ones(3), async_op=True).wait()

    with pytest.raises(ValueError, match="after 3 calls"):
        nvcoll.Node(2).run(program, timeout=WATCHDOG_S)
    assert no_progress_thread_is_left()
