"""What must not break a node: Ctrl-C, forks, nodes that go. Nothing is left behind: no thread, descriptor or memory."""

import functools
import gc
import os
import threading
import weakref

import numpy as np
import processes
import pytest
from left_open import assert_nothing_was_left, left_open, needs_lists

import nvcoll

# What every script begins with: a node that works, Ctrl-C a moment after ranks are where they should be, and the end.
PRELUDE = """
import os, signal, threading, time
import numpy as np
import nvcoll

signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests ignore it

def interrupt_soon(is_ready=lambda: True):
    def interrupt():
        while not is_ready():
            time.sleep(0.01)
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()

def check_usable(node):
    n = node.world_size
    for path in ("mapped", "staged"):
        x = np.ones((n, 100_000), dtype="f4")
        node.all_reduce(x, path=path)
        assert (x == n).all(), path
    assert node.run(lambda comm: float(comm.all_reduce(np.ones(1, dtype="f4"))[0]), timeout=30) == [float(n)] * n

def interrupted(call, is_ready=lambda: True):
    end = time.monotonic() + 60
    try:
        interrupt_soon(is_ready)
        while time.monotonic() < end:
            call()
    except KeyboardInterrupt:
        time.sleep(0.1)  # a second one would come now
    else:
        raise AssertionError("no call was interrupted")

def threads_of(*ranks):
    names = [f"nvcoll-rank-{rank}" for rank in ranks]
    return [thread for thread in threading.enumerate() if thread.name in names]

def join(*ranks):
    for thread in threads_of(*ranks):
        thread.join(60)
"""

run_script = functools.partial(processes.run_script, PRELUDE)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("path", ["mapped", "staged", "pushed"])
def test_ctrl_c_in_calls_in_a_loop_is_raised_once_and_the_node_goes_on(path, workers):
    run_script(
        f"""
        node = nvcoll.Node(4, workers={workers})
        x = np.zeros((4, 1 << 21), dtype="f4")
        interrupted(lambda: node.all_reduce(x, path="{path}", algorithm="ring"))
        check_usable(node)
        """
    )


def test_ctrl_c_ends_ranks_that_wait_in_groups_in_threads_of_their_own():
    run_script(
        """
        node = nvcoll.Node(4)
        inside, seen = [], []

        def program(comm):
            row, column = comm.split(comm.rank // 2), comm.split(comm.rank % 2)

            def wait(group):
                try:
                    inside.append(group.ranks)
                    while True:
                        group.barrier()
                except KeyboardInterrupt:
                    seen.append(group.ranks)

            other = threading.Thread(target=wait, args=(row,))
            other.start()
            wait(column)
            other.join()
            raise KeyboardInterrupt

        interrupted(lambda: node.run(program), lambda: len(inside) == 8)
        join(0, 1, 2, 3)
        assert sorted(seen) == sorted(2 * [(0, 1), (2, 3), (0, 2), (1, 3)]), seen
        check_usable(node)
        """
    )


def test_ctrl_c_ends_ranks_in_calls_one_after_the_other():
    run_script(
        """
        node = nvcoll.Node(4)

        def program(comm):
            x = np.zeros(1 << 16, dtype="f4")
            while True:
                comm.all_reduce(x, path="staged" if comm.rank < 0 else "mapped")
                comm.barrier()

        interrupted(lambda: node.run(program))
        check_usable(node)
        """
    )


def test_ctrl_c_ends_ranks_in_python_code():
    run_script(
        """
        node = nvcoll.Node(3)
        inside, ended = [], []

        def program(comm):
            try:
                inside.append(comm.rank)
                while True:
                    pass
            finally:
                ended.append(comm.rank)

        interrupted(lambda: node.run(program), lambda: len(inside) == 3)
        join(0, 1, 2)
        assert sorted(ended) == [0, 1, 2], ended
        check_usable(node)
        """
    )


def test_ctrl_c_while_a_run_begins_leaves_the_node_free(monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    node = nvcoll.Node(3)
    with monkeypatch.context() as patch:
        patch.setattr(threading, "Thread", interrupted)
        try:
            node.run(lambda comm: comm.barrier())
        except KeyboardInterrupt:
            patch.undo()
            # Here the exception holds the frames of the run, and what they hold.
            assert node.run(lambda comm: comm.rank) == [0, 1, 2]


@pytest.mark.parametrize("call", ["comm.all_reduce(np.ones(4, dtype='f4'))", "comm.barrier()", "comm.split(0)"])
def test_ctrl_c_ends_ranks_that_wait_for_one_in_foreign_code_which_is_named_and_interrupted_later(call):
    run_script(
        f"""
        node = nvcoll.Node(3)
        inside, seen, woken = [], [], threading.Event()

        def program(comm):
            try:
                inside.append(comm.rank)
                if comm.rank == 1:
                    woken.wait(60)  # a lock of C
                {call}
            except KeyboardInterrupt:
                seen.append(comm.rank)
                raise

        interrupt_soon(lambda: len(inside) == 3)
        try:
            node.run(program)
        except KeyboardInterrupt as error:
            assert any("rank 1 is still in foreign code" in note for note in error.__notes__), error.__notes__
        join(0, 2)
        assert sorted(seen) == [0, 2], seen
        check_usable(node)
        woken.set()
        join(1)
        assert sorted(seen) == [0, 1, 2], seen
        """
    )


def test_a_child_of_a_fork_can_use_the_node():
    node = nvcoll.Node(4, workers=2)
    arrays = [np.ones(1 << 18, dtype="f4") for _ in range(4)]
    node.all_reduce(arrays)
    child = os.fork()
    if child == 0:
        node.all_reduce(arrays)
        node.all_reduce(arrays, path="staged")
        os._exit(0 if (arrays[0] == 64).all() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (arrays[0] == 4).all()


def test_a_child_forked_while_another_thread_is_in_a_call_is_told_what_to_do():
    run_script(
        """
        node = nvcoll.Node(2)
        inside, go_on = threading.Event(), threading.Event()

        def program(comm):
            inside.set()
            go_on.wait(60)

        thread = threading.Thread(target=node.run, args=(program,))
        thread.start()
        inside.wait()
        x = np.ones((2, 4), dtype="f4")
        try:
            node.all_reduce(x)
        except nvcoll.Busy as error:
            assert "forked" not in str(error)
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            try:
                node.all_reduce(x)
            except nvcoll.Busy as error:
                nvcoll.Node(2).all_reduce(x)
                os._exit(0 if "make a node in the child" in str(error) and (x == 2).all() else 1)
            os._exit(2)
        go_on.set()
        thread.join()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        """
    )


def test_a_child_forked_by_a_rank_has_no_peers_and_its_parent_goes_on():
    def is_refused(call):
        try:
            call()
        except nvcoll.Closed as error:
            return "forked" in str(error)
        return False

    def program(comm):
        group = comm.split(0)
        child = os.fork() if comm.rank == 1 else None
        if child == 0:
            calls = (comm.barrier, group.barrier, lambda: group.split(0), group.abort)
            os._exit(7 if all(is_refused(call) for call in calls) else 1)
        if child is not None:
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        return group.all_reduce(np.ones(1, dtype="f4"))[0]

    assert nvcoll.Node(3).run(program, timeout=60) == [3.0] * 3


def fail_by_exception(node):
    def program(comm):
        if comm.rank == 0:
            raise ValueError("boom")
        comm.barrier()

    with pytest.raises(ValueError):
        node.run(program)


def fail_by_timeout(node):
    gone = threading.Event()

    def program(comm):
        if comm.rank == 1:
            gone.wait(30)
        try:
            comm.barrier(timeout=0.02)
        finally:
            gone.set()

    with pytest.raises(nvcoll.Timeout):
        node.run(program)


def fail_by_mismatch(node):
    with pytest.raises(nvcoll.Mismatch):
        node.run(lambda comm: comm.all_reduce(np.ones(1 + comm.rank, dtype="f4")))


def fail_by_return(node):
    with pytest.raises(nvcoll.Mismatch):
        node.run(lambda comm: comm.rank and comm.barrier())


def fail_by_overlap(node):
    x = np.zeros(10, dtype="f4")
    with pytest.raises(nvcoll.InvalidArgument):
        node.run(lambda comm: comm.all_reduce(x))


def fail_by_a_deadline_of_a_driven_call(node):
    for path in ("mapped", "staged"):
        with pytest.raises(nvcoll.Timeout):
            node.all_reduce(np.zeros((4, 1 << 18), dtype="f4"), path=path, timeout=0)


def fork_and_exit(node):
    child = os.fork()
    if child == 0:
        node.all_reduce(np.zeros((4, 1 << 18), dtype="f4"))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def drop_while_ranks_wait(node):
    other = nvcoll.Node(4, workers=3)
    thread = threading.Thread(target=other.run, args=(lambda comm: comm.barrier(),))
    thread.start()
    del other
    thread.join()


FAILURES = [
    fail_by_exception,
    fail_by_timeout,
    fail_by_mismatch,
    fail_by_return,
    fail_by_overlap,
    fail_by_a_deadline_of_a_driven_call,
    fork_and_exit,
    drop_while_ranks_wait,
]


@needs_lists
@pytest.mark.parametrize("fail", FAILURES, ids=lambda fail: fail.__name__)
def test_nothing_is_left_behind(fail):
    def round_trip():
        node = nvcoll.Node(4, workers=2)
        for _ in range(3):
            fail(node)
            x = np.ones((4, 1 << 16), dtype="f4")
            node.all_reduce(x, path="staged")
            assert (x == 4).all()

    for _ in range(3):
        round_trip()
    before = left_open()
    for _ in range(12):
        round_trip()
    assert_nothing_was_left(before, 12)


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="limits the address space as Linux counts it")
@pytest.mark.parametrize(
    ("what", "path", "ranks", "count"), [("scratch", "mapped", 4, 1 << 23), ("staging", "staged", 128, 4)]
)
def test_no_memory_for_a_call_is_an_error_and_the_node_goes_on(what, path, ranks, count):
    run_script(
        f"""
        import resource

        def limited(call, spare):
            with open("/proc/self/statm") as statm:
                used = int(statm.read().split()[0]) * resource.getpagesize()
            before = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (used + spare, before[1]))
            try:
                call()
            except MemoryError as error:
                assert "{what}" in str(error), error
            else:
                raise AssertionError("there was memory")
            finally:
                resource.setrlimit(resource.RLIMIT_AS, before)

        node = nvcoll.Node({ranks}, workers=1)
        x = np.ones(({ranks}, {count}), dtype="f4")
        plan = node.plan("all_reduce", x, algorithm="one_shot", path="{path}")
        limited(plan.run, 48 << 20)
        assert (x == 1).all()
        plan.run()
        assert (x == {ranks}).all()
        """
    )


class Tracked(np.ndarray):
    """An array with attributes; one may be its plan."""


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather"])
def test_an_array_that_holds_its_own_plan_is_freed(collective):
    node = nvcoll.Node(2)
    arrays = [np.zeros(8, "f4").view(Tracked) for _ in range(2)]
    arrays[0].plan = node.plan(collective, arrays)
    arrays.append(arrays[0].plan)  # the list is the plan's result, in place
    arrays[0].plan.run()
    watched = weakref.ref(arrays[0])
    gc.collect()
    assert watched() is not None
    del arrays
    gc.collect()
    assert watched() is None
