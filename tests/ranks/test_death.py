"""Ranks that die or stop: the errors of the others, that nothing is left, and that they can go on."""

import os
import random
import signal
from pathlib import Path

import numpy as np
import pytest
from processes import PATIENCE_S, WAIT_S, is_running, results, start

import nvcoll

DEATHS = [
    ("os.kill(os.getpid(), signal.SIGKILL)", 9, None, "was killed by signal 9 (SIGKILL)"),
    ("os.kill(os.getpid(), signal.SIGSEGV)", 11, None, "was killed by signal 11 (SIGSEGV)"),
    ("os.abort()", 6, None, "was killed by signal 6 (SIGABRT)"),
    ("os._exit(7)", None, 7, "ended with status 7 without leaving the job"),
    ("os._exit(0)", None, 0, "ended with status 0 without leaving the job"),
    ("os.execv('/bin/sleep', ['sleep', '1'])", None, None, "ended without leaving the job"),
]


def told(processes, rank_lost):
    """Returns what each survivor printed; fails if one wrote errors or failed."""
    pid = processes[rank_lost].pid
    texts = []
    for rank, (status, out, errors) in enumerate(results(processes)):
        if rank != rank_lost:
            assert (status, errors) == (0, ""), errors
            texts.append(out.splitlines())
    return pid, texts


@pytest.mark.parametrize(("end", "number", "status", "words"), DEATHS, ids=[end for end, *_ in DEATHS])
@pytest.mark.parametrize("is_in_call", [True, False], ids=["in a call", "between calls"])
def test_survivors_get_the_rank_its_process_and_how_it_ended(end, number, status, words, is_in_call):
    program = f"""
    import threading
    comm = nvcoll.init(timeout=60)
    group = comm.split(0, -comm.rank)
    group.barrier()
    def die():
        {end}
    if comm.rank == 1:
        threading.Timer(0.3, die).start() if {is_in_call} else die()
    if comm.rank == 2:
        time.sleep(1)
    try:
        group.all_reduce(np.ones(70_000))
    except nvcoll.PeerLost as error:
        print(error.rank, error.pid, error.signal, error.status, error, sep="|")
    """
    pid, texts = told(start(3, program, "death"), 1)
    for lines in texts:
        *facts, text = lines[0].split("|")
        assert facts == ["1", str(pid), str(number), str(status)]
        doing = "in all_reduce" if is_in_call else "between two calls, after 1 call"
        assert words in text and doing in text and "ranks 2, 1, 0 of the run" in text


def test_the_next_call_after_a_death_raises_before_a_byte_moves():
    program = """
    comm = nvcoll.init(timeout=60)
    x = comm.full(1000, comm.rank + 1.0)
    comm.barrier()
    if comm.rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(1)
    try:
        comm.broadcast(x, root=0)
    except nvcoll.PeerLost as error:
        print(error.rank, (x == comm.rank + 1).all())
    """
    _, texts = told(start(3, program, "next"), 2)
    assert texts == [["2 True"], ["2 True"]]


def test_a_death_is_noticed_though_a_child_of_the_rank_holds_its_connections():
    program = """
    comm = nvcoll.init(timeout=60)
    comm.barrier()
    if comm.rank == 1:
        child = os.fork()
        if child == 0:
            os.close(1), os.close(2)
            time.sleep(300)
            os._exit(0)
        print(child, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        comm.barrier()
    except nvcoll.PeerLost as error:
        print(error.signal)
    """
    (status, out, errors), (_, child, _) = results(start(2, program, "forked"))
    try:
        assert (status, out, errors) == (0, "9\n", "") and is_running(int(child))
    finally:
        os.kill(int(child), signal.SIGKILL)


def test_a_process_whose_joining_thread_ends_has_not_died():
    program = """
    import threading
    made = []
    joining = threading.Thread(target=lambda: made.append(nvcoll.init(timeout=60)))
    joining.start()
    joining.join()
    time.sleep(0.3)
    print(made[0].all_reduce(np.ones(2)))
    """
    for status, out, errors in results(start(2, program, "thread")):
        assert (status, out, errors) == (0, "[2. 2.]\n", "")


def test_joining_and_leaving_keeps_no_thread_and_no_descriptor():
    program = """
    def count():
        gc.collect()
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

    counts = []
    for number in range(8):
        comm = nvcoll.init(job=f"{os.environ['NVCOLL_JOB']}-{number}", timeout=60)
        comm.all_reduce(np.ones(2))
        nvcoll.finalize()
        del comm
        counts.append(count())
    print(counts[2:] == counts[2:3] * 6, counts)
    """
    for status, out, errors in results(start(3, program, "again")):
        assert (status, errors) == (0, "") and out.startswith("True"), out


def test_a_signal_handler_that_ends_a_call_is_named_to_peers_and_by_later_calls():
    program = """
    class Late(Exception): ...

    def late(*_):
        raise Late

    comm = nvcoll.init(timeout=60)
    comm.barrier()
    if comm.rank == 1:
        sys.stdin.readline()
        try:
            comm.all_reduce(np.ones(2))
            comm.barrier()
        except nvcoll.Aborted as error:
            print(error)
        sys.exit()
    work = comm.all_reduce(np.ones(2), async_op=True)
    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        comm.barrier()
    except Late:
        print("late", end=" ")
    x = np.ones(2)
    send, isend, split = (lambda: comm.send(x, 1)), (lambda: comm.isend(x, 1)), (lambda: comm.split(0))
    for call in (work.wait, comm.barrier, send, isend, split):
        try:
            call()
        except nvcoll.Aborted as error:
            print("rank 0 was interrupted" in str(error), end=" ")
    """
    processes = start(2, program, "interrupted", stdin=True)
    out, errors = processes[0].communicate(timeout=WAIT_S)
    print(file=processes[1].stdin, flush=True)
    [(_, told, _)] = results(processes[1:])
    assert (out.split(), errors) == (["late"] + ["True"] * 5, "")
    assert told == "rank 0 was interrupted: the call was aborted\n"


def test_a_handler_that_ends_the_rank_in_the_middle_of_a_call_is_refused():
    program = """
    def ends(*_):
        global work
        work = comm.all_reduce(np.ones(2), async_op=True)
        try:
            nvcoll.finalize()
        except nvcoll.Busy as error:
            print("handler of a signal" in str(error), flush=True)

    comm = nvcoll.init(timeout=60)
    comm.barrier()
    if comm.rank == 1:
        sys.stdin.readline()
        comm.barrier()
        work = comm.all_reduce(np.ones(2), async_op=True)
    else:
        signal.signal(signal.SIGALRM, ends)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        comm.barrier()
    print(work.wait())
    """
    processes = start(2, program, "handler", stdin=True)
    said = processes[0].stdout.readline()
    print(file=processes[1].stdin, flush=True)
    ends = results(processes)
    assert said == "True\n", (said, ends)
    assert [(status, out, errors) for status, out, errors in ends] == [(0, "[2. 2.]\n", "")] * 2


@pytest.fixture
def small_group():
    """A control group of 256 MiB, into which processes may be put by writing their numbers to a file; its path."""
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    group = next((f"/sys/fs/cgroup/memory{path}" for _, names, path in lines if names == "memory"), None)
    group = group or next(f"/sys/fs/cgroup{path}" for number, _, path in lines if number == "0")
    group = Path(group, f"nvcoll-test-{os.getpid()}")
    try:
        group.mkdir()
        names = "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.max", "memory.swap.max"
        limits = [group / name for name in names if (group / name).exists()]
        for limit in limits:
            limit.write_text("0" if "swap.max" in limit.name else str(256 << 20))
        assert limits
    except (OSError, AssertionError) as error:
        pytest.skip(f"this user cannot make a control group that limits memory: {error}")
    yield group / "cgroup.procs"
    group.rmdir()


def test_a_rank_that_the_system_kills_for_its_memory_is_told_so(small_group):
    program = """
    comm = nvcoll.init(timeout=60)
    comm.barrier()
    sys.stdin.readline()
    if comm.rank == 1:
        np.ones(1 << 28)
    try:
        comm.barrier()
    except nvcoll.PeerLost as error:
        print(error.signal, error)
    """
    processes = start(2, program, "memory", stdin=True)
    # rank 0 joins the group, whose count of deaths it reads, after the death of its peer: else both may be killed
    for process in reversed(processes):
        small_group.write_text(str(process.pid))
        print(file=process.stdin, flush=True)
        process.wait(WAIT_S)
    (status, out, _), (killed, _, _) = results(processes)
    assert (status, killed) == (0, -signal.SIGKILL)
    assert out.startswith("9 rank 1 ")
    assert "killed by signal 9 (SIGKILL), perhaps because memory ran out, between two calls" in out


@pytest.mark.parametrize("call", ["all_reduce(np.ones(4), ", "split(0, ", "barrier("])
def test_a_rank_that_is_stopped_is_named_at_the_deadline_with_what_to_do(call):
    program = f"""
    comm = nvcoll.init(timeout=60)
    comm.barrier()
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    try:
        comm.{call}timeout=1.5)
    except (nvcoll.Timeout, nvcoll.Aborted) as error:
        print(error)
    """
    processes = start(3, program, "stopped")
    texts = [processes[rank].communicate(timeout=WAIT_S)[0] for rank in (0, 2)]
    processes[1].kill()
    results(processes[1:2])
    late, is_stopped = "rank 1 has not entered the call; ", "; the process of rank 1 is stopped: continue it by SIGCONT"
    assert any(late in text and is_stopped in text for text in texts), texts
    assert all(late in text or "timed out" in text for text in texts), texts


SHRINK = """
    comm = nvcoll.init(timeout=60)
    x = comm.full(1000, 1.0)
    kept = np.arange(1000.0)
    sums = []
    def go_on(comm):
        while True:
            try:
                comm = comm.shrink()
                y = comm.full(1000, 1.0)
                assert (comm.all_reduce(y) == comm.world_size).all()
                assert (comm.all_reduce(np.ones(3)) == comm.world_size).all()
                comm.barrier()
                return comm
            except nvcoll.PeerLost:
                pass
"""


def test_survivors_shrink_and_go_on_and_what_was_not_an_output_is_intact():
    program = (
        SHRINK
        + """
    other = comm.split(comm.rank % 2)
    comm.barrier()
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        comm.all_reduce(x)
        comm.barrier()
    except nvcoll.PeerLost:
        pass
    small = go_on(comm)
    print(small.ranks, small.rank, small.world_size, (kept == np.arange(1000)).all())
    half = small.split(0 if small.rank < 2 else 1)
    print(half.ranks, half.all_reduce(np.ones(1)))
    if comm.rank != 3:
        print(other.all_reduce(np.ones(1)))
    """
    )
    _, texts = told(start(4, program, "shrink"), 1)
    assert [lines[0] for lines in texts] == [f"(0, 2, 3) {rank} 3 True" for rank in range(3)]
    assert [lines[1] for lines in texts] == ["(0, 2) [2.]", "(0, 2) [2.]", "(3,) [1.]"]
    assert [lines[2:] for lines in texts] == [["[2.]"], ["[2.]"], []]


@pytest.mark.parametrize("seed", range(4))
def test_ranks_that_die_at_random_moments_leave_the_others_working(seed):
    ranks, draw = 5, random.Random(seed)
    doomed = draw.sample(range(ranks), 3)
    moments = {rank: draw.uniform(0.0, 0.25) for rank in doomed}
    program = (
        SHRINK
        + f"""
    moments = {moments}
    if comm.rank in moments:
        import threading
        threading.Timer(moments[comm.rank], lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    end = time.monotonic() + 60
    while comm.world_size > {ranks - len(doomed)}:
        assert time.monotonic() < end
        try:
            comm.all_reduce(np.ones(20_000))
        except nvcoll.PeerLost:
            comm = go_on(comm)
    print(comm.ranks, comm.all_reduce(np.ones(1)))
    """
    )
    processes = start(ranks, program, "random")
    left = tuple(sorted(set(range(ranks)) - set(doomed)))
    for rank, (status, out, errors) in enumerate(results(processes)):
        expected = (-signal.SIGKILL, "", "") if rank in doomed else (0, f"{left} [{len(left)}.]\n", "")
        assert (status, out, errors) == expected


def test_a_rank_that_runs_and_does_not_call_shrink_is_named():
    program = """
    comm = nvcoll.init(timeout=60)
    comm.barrier()
    if comm.rank == 1:
        sys.stdin.readline()
    else:
        for _ in range(2):
            try:
                comm.shrink(timeout=1.5)
            except nvcoll.Timeout as error:
                print(error, flush=True)
    print(comm.shrink().ranks)
    """
    processes = start(3, program, "absent", stdin=True)
    late = "shrink timed out after 1.5 s: rank 1 has not called it\n"
    for process in processes[0], processes[2]:
        assert [process.stdout.readline() for _ in range(2)] == [late, late]
    print(file=processes[1].stdin, flush=True)
    assert [out for _, out, _ in results(processes)] == ["(0, 1, 2)\n"] * 3


def test_ranks_that_are_threads_shrink_after_one_has_failed():
    def program(comm):
        x, other = np.ones(100), comm.split(comm.rank // 2)
        if comm.rank == 3:
            raise ValueError("mine")
        try:
            comm.all_reduce(x)
        except nvcoll.Aborted:
            comm = comm.shrink()
        seen.append((comm.ranks, comm.all_reduce(np.ones(1))[0]))
        if comm.rank < 2:
            assert other.all_reduce(np.ones(1)) == 2
        again = comm.shrink()
        return again.all_reduce(np.ones(1))

    seen: list = []
    with pytest.raises(ValueError, match="mine"):
        nvcoll.Node(4).run(program, timeout=PATIENCE_S)
    assert seen == [((0, 1, 2), 3.0)] * 3


def test_shrinking_keeps_no_descriptor_and_no_mapping():
    program = """
    sys.path.insert(0, "tests/lib")
    from processes import open_things
    comm = nvcoll.init(timeout=60)
    def shrink_once():
        small = comm.shrink()
        small.barrier()
    shrink_once()
    before = open_things()
    for _ in range(5):
        shrink_once()
    print(open_things() == before)
    """
    for status, out, errors in results(start(2, program, "kept")):
        assert (status, out, errors) == (0, "True\n", "")
