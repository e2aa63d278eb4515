"""Calls with `async_op=True` between processes: results, and every way in which a process ends with calls in flight."""

import functools
import signal
import sys
import time

import pytest
import random_programs
from amounts import examples
from hypothesis import HealthCheck, given, settings
from process_ranks import Job
from processes import WAIT_S, open_things, results, start
from strategies import programs

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="ranks that are processes need Linux"),
    pytest.mark.timeout(300),
]


@pytest.fixture(scope="module")
def job():
    with Job(3) as job:
        yield job


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(program=programs(3))
def test_random_programs_on_several_communicators_match_the_oracle(job, program):
    job.run(functools.partial(random_programs.run, program))


def many_communicators(comm):
    before = open_things()
    works = [comm.split(0).barrier(async_op=True) for _ in range(10)]
    for work in works:
        work.wait()
    del works, work
    comm.barrier()
    return before == open_things()


def test_communicators_with_calls_in_flight_leave_nothing_behind(job):
    assert job.run(many_communicators) == [True] * 3
    assert job.run(many_communicators) == [True] * 3


def told(program, name, world_size=2):
    """Runs a program and returns status and output of each rank, which says nothing on standard error."""
    found = results(start(world_size, program, name))
    assert [errors for _, _, errors in found] == [""] * world_size
    return [(status, out) for status, out, _ in found]


ENDS = {"returns": "", "finalizes": "nvcoll.finalize()", "exits": "sys.exit(3)"}


@pytest.mark.parametrize("end", ENDS)
def test_a_process_makes_its_calls_in_flight_before_it_ends(end):
    program = f"""
    comm = nvcoll.init(timeout=60)
    half, x, y = comm.split(0), np.full(100_000, comm.rank + 1.0), np.array([comm.rank])
    if comm.rank == 0:
        half.all_reduce(x, async_op=True)
        comm.all_gather(y, async_op=True)
        del half
        {ENDS[end]}
    else:
        time.sleep(0.5)
        print(half.all_reduce(x)[0], comm.all_gather(y))
        try:
            comm.barrier()
        except nvcoll.Error as error:
            print(type(error).__name__)
    """
    first, second = told(program, f"async-{end}")
    assert first == (3 if end == "exits" else 0, "")
    assert second[0] == 0 and second[1].startswith("3.0 [0 1]\n")
    assert second[1].splitlines()[1] in (("Mismatch", "Aborted") if end == "exits" else ("Mismatch",))


def test_a_process_that_raises_ends_its_calls_in_flight():
    program = """
    comm = nvcoll.init(timeout=60)
    if comm.rank == 0:
        works = [comm.all_reduce(np.ones(3), async_op=True) for _ in range(3)]
        raise ValueError("on purpose")
    time.sleep(0.5)
    try:
        comm.all_reduce(np.ones(3), async_op=True).wait()
    except nvcoll.Aborted as error:
        print(error)
    """
    (status, _, errors), (_, out, told) = results(start(2, program, "async-raises"))
    assert status == 1 and "on purpose" in errors and "nvcoll" not in errors.replace("nvcoll.Work", "")
    assert out.startswith("rank 0") and told == ""


def test_a_process_that_ends_while_a_peer_waits_elsewhere_ends_at_once():
    program = """
    comm = nvcoll.init(timeout=60)
    other = comm.split(0)
    if comm.rank == 0:
        work = other.all_reduce(np.ones(3), async_op=True)
        nvcoll.finalize()
        print(type(work.exception()).__name__)
    else:
        try:
            comm.barrier()
        except nvcoll.Mismatch:
            print("Mismatch")
            sys.exit(1)
    """
    (first, out, _), (second, told, _) = results(start(2, program, "async-elsewhere"))
    assert (first, out, second, told) == (0, "Aborted\n", 1, "Mismatch\n")


def test_ctrl_c_ends_a_wait_and_leaves_the_call_in_flight():
    program = """
    comm = nvcoll.init(timeout=60)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if comm.rank == 0:
        work = comm.all_reduce(np.ones(4), async_op=True)
        print("ready\\n", end="", flush=True)
        try:
            work.wait()
        except KeyboardInterrupt:
            print("interrupted", work.done(), flush=True)
        print(work.wait())
    else:
        sys.stdin.readline()
        print(comm.all_reduce(np.ones(4)))
    """
    first, second = start(2, program, "async-interrupt", stdin=True)
    assert first.stdout is not None and first.stdout.readline() == "ready\n"
    time.sleep(0.3)
    first.send_signal(signal.SIGINT)
    assert first.stdout.readline() == "interrupted False\n"
    assert [told for told in results([second, first])] == [(0, "[2. 2. 2. 2.]\n", "")] * 2


def test_ctrl_c_ends_a_run_whose_ranks_wait_for_calls_in_flight():
    program = """
    import asyncio
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def rank(comm):
        if comm.rank < 2:
            works = [half.all_reduce(np.ones(3), async_op=True) for half in (comm.split(comm.rank), comm)]
            works[0].wait()
            print("ready\\n", end="", flush=True)
            works[1].wait() if comm.rank == 0 else asyncio.run(waiting(works[1]))
        comm.split(comm.rank)
        time.sleep(0.2)
        comm.barrier(timeout=30)

    async def waiting(work):
        await work

    nvcoll.Node(3).run(lambda comm: rank(comm) if comm.rank < 2 else (comm.split(2), time.sleep(30)))
    """
    (process,) = start(1, program, "async-run")
    assert process.stdout is not None and {process.stdout.readline(), process.stdout.readline()} == {"ready\n"}
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    [(status, _, errors)] = results([process])
    assert status == -signal.SIGINT and "KeyboardInterrupt" in errors


def test_ctrl_c_ends_a_process_that_waits_for_its_last_calls():
    program = """
    comm = nvcoll.init(timeout=60)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if comm.rank == 0:
        comm.all_reduce(np.ones(4), async_op=True)
        print("ready\\n", end="", flush=True)
        nvcoll.finalize()
    try:
        time.sleep(2)
        comm.all_reduce(np.ones(4))
    except nvcoll.Aborted as error:
        print(error)
    """
    first, second = start(2, program, "async-finalize")
    assert first.stdout is not None and first.stdout.readline() == "ready\n"
    time.sleep(0.5)
    first.send_signal(signal.SIGINT)
    _, errors = first.communicate(timeout=WAIT_S)
    assert first.returncode == -signal.SIGINT and "KeyboardInterrupt" in errors
    [(status, out, _)] = results([second])
    assert status == 0 and out.startswith("rank 0")


def test_the_child_of_a_fork_is_no_rank_and_waits_for_no_call_of_its_parent():
    program = """
    import warnings
    warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork")  # Python 3.12 and later
    comm = nvcoll.init(timeout=60)
    done, x = comm.all_reduce(np.ones(2), async_op=True), np.ones(2)
    done.wait()
    if comm.rank == 1:
        time.sleep(0.5)
    works = [comm.all_reduce(x, async_op=True)]
    if comm.rank == 0:
        child = os.fork()
        if child == 0:
            for call in (works[0].wait, comm.barrier):
                try:
                    call()
                except nvcoll.Closed as error:
                    print("forked" in str(error), works[0].done(), done.wait(), flush=True)
            nvcoll.Node(2).all_reduce([x, np.ones(2)])  # the array is in flight in the parent alone
            print(x)
            works.clear()
            gc.collect()
            with nvcoll.Node(2) as node:
                print(node.run(lambda comm: comm.all_gather(np.ones(1), async_op=True).wait())[0])
            sys.exit()
        assert os.waitpid(child, 0)[1] == 0
    print(works[0].wait())
    """
    first, second = told(program, "async-fork")
    assert first == (0, "True False [2. 2.]\nTrue False [2. 2.]\n[2. 2.]\n[1. 1.]\n[2. 2.]\n")
    assert second == (0, "[2. 2.]\n")


def test_the_interpreter_ends_with_calls_in_flight_in_a_thread_that_is_abandoned():
    program = """
    import asyncio, threading
    begun = threading.Event()

    def rank(comm):
        work = comm.all_reduce(np.ones(3), async_op=True)
        if comm.rank == 1:
            return asyncio.run(wait(work))
        time.sleep(1000)

    async def wait(work):
        asyncio.get_running_loop().call_later(0.1, begun.set)
        await work
        await comm_never()

    def run():
        nvcoll.Node(3).run(lambda comm: rank(comm) if comm.rank < 2 else time.sleep(1000))

    threading.Thread(target=run, daemon=True).start()
    begun.wait(60)
    print("over")
    """
    assert told(program, "async-abandoned", 1) == [(0, "over\n")]


def test_a_peer_that_is_killed_ends_the_calls_in_flight():
    program = """
    comm = nvcoll.init(timeout=60)
    comm.barrier()
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    works = [comm.all_reduce(np.ones(3), async_op=True) for _ in range(3)]
    print([isinstance(work.exception(), nvcoll.Aborted) for work in works])
    """
    (status, out, errors), (killed, _, _) = results(start(2, program, "async-killed"))
    assert (status, out, errors, killed) == (0, "[True, True, True]\n", "", -signal.SIGKILL)
