"""Ranks that are processes on a machine that refuses memory, descriptors, room, processors or privileges."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import resource
import subprocess
import sys

import many_jobs
import numpy as np
import pytest
from command_line import PROGRAM
from process_ranks import Job
from processes import WAIT_S, open_things, results, start, wait_until

import nvcoll
from nvcoll import _nvcoll

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="ranks that are processes need Linux"),
    pytest.mark.timeout(300),
]

JOIN_S = 3.0
"""How long ranks wait for one that could not even make a socket. Chosen: others join within milliseconds."""

NO_DESCRIPTOR = (
    r"OSError: \[Errno 24\] no descriptor for \d+ bytes of {what}: raise the limit of open files \(`ulimit -n`\) "
    r"if it is reached: Too many open files \(os error 24\)"
)
NOT_RECEIVED = (
    r"OSError: \[Errno 24\] \d of 3 descriptors of rank \d were received: raise the limit of open files "
    r"\(`ulimit -n`\): Too many open files \(os error 24\)"
)
NO_MEMORY = (
    "MemoryError: no memory for \\d+ bytes of {what} on each rank: pass smaller arrays, or another algorithm or path"
)
NO_ROOM = "MemoryError: no memory for \\d+ bytes of symmetric memory on each rank: make smaller arrays, or release some"
TOO_LONG = (
    r"OSError: \[Errno 27\] the system refuses \d+ bytes of {what}: raise the limit of the size of files "
    r"\(`ulimit -f`\), or pass smaller arrays: File too large \(os error 27\)"
)
NOT_SHARED = "Aborted: rank {rank} could not share memory with its peers: the call was aborted"


@pytest.fixture(scope="module")
def job():
    """A small allocation that fails ends a process: its heap, one for all threads, keeps a MiB or so."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"ARENA_MAX": 1, "TOP_PAD_": 1 << 20, "TRIM_THRESHOLD_": 1 << 30}.items():
            patch.setenv(f"MALLOC_{name}", str(value))
        with Job(3) as job:
            yield job


# limits


def descriptors(room):
    """Returns the limit that leaves a process `room` more descriptors."""
    fillers = [os.dup(0) for _ in range(room + 1)]
    for filler in fillers:
        os.close(filler)
    return max(fillers)


def address_space(room):
    """Returns the limit that lets a process map `room` more bytes, and has room in its heap for what is small."""
    fillers = [bytearray(10_000) for _ in range(100)]
    del fillers
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[0]) * os.sysconf("SC_PAGESIZE") + room


LIMITS = {
    "descriptors": (resource.RLIMIT_NOFILE, descriptors),
    "bytes of a file": (resource.RLIMIT_FSIZE, lambda room: room),
    "address space": (resource.RLIMIT_AS, address_space),
}


@contextlib.contextmanager
def limited(what, room):
    """Has the system refuse this process more than `room` of something."""
    kind, limit = LIMITS[what]
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (limit(room), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)


def outcome_of(work, *args):
    try:
        work(*args)
        return "done"
    except (nvcoll.Error, OSError, MemoryError) as error:
        return f"{type(error).__name__}: {error}"


def attempt(work, at, what, room, comm):
    """Does something, under a limit on rank `at`; returns the outcome. Nothing is left, and `comm` works."""
    before = open_things()
    with limited(what, room) if comm.rank == at else contextlib.nullcontext():
        outcome = outcome_of(work, comm, f"limited-{os.getppid()}-{what}-{at}-{room}")
    assert open_things() == before
    assert (comm.all_reduce(np.full(3, comm.rank)) == 3).all()
    return outcome


def told(job, work, at, what, rooms):
    """Does something with more and more room; returns the errors of rank `at` and of the others until all went well."""
    own, others = [], []
    for room in rooms:
        outcomes = job.run(functools.partial(attempt, work, at, what, room))
        if outcomes == ["done"] * 3:
            return own, others
        own.append(outcomes.pop(at))
        others += outcomes
    raise AssertionError(f"it never went well: {own}")


def join(comm, name):
    """Joins one more job. Only the processes of a job know when all of them have come to the next attempt."""
    joined = _nvcoll.Job(comm.rank, comm.world_size, name, None, JOIN_S, None)
    joined.communicator(WAIT_S).barrier()
    joined.leave()


def split(comm, _name):
    comm.split(0).all_reduce(np.ones(3))


def assert_all_were_told(patterns, found, at_times=()):
    """Every text fits a pattern, and every pattern fits a text, except the patterns that do so `at_times`."""
    telling = [[one for one in (*patterns, *at_times) if re.fullmatch(one, text)] for text in found]
    assert all(telling), [text for text, of in zip(found, telling, strict=True) if not of]
    assert {one for of in telling for one in of} >= {*patterns}, found


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_join_ends_for_all_if_a_rank_has_no_descriptors(job, at):
    own, others = told(job, join, at, "descriptors", range(60))
    memory = NO_DESCRIPTOR.format(what="(words|bells|staging)")
    socket = (
        r"OSError: \[Errno 24\] (no|rank \d cannot) .*(socket|connection|accept).*: Too many open files \(os error 24\)"
    )
    # Which of its two last steps lacks descriptors depends on which rank is faster.
    assert_all_were_told([socket, memory], own, at_times=[NOT_RECEIVED])
    missing = rf"(Closed|Timeout): .*rank {at} .*"
    assert_all_were_told([NOT_SHARED.format(rank=at), missing], others)


@pytest.mark.parametrize("at", [0, 1])
def test_a_split_ends_for_all_if_a_rank_has_no_descriptors(job, at):
    own, others = told(job, split, at, "descriptors", range(60))
    memory = [NO_DESCRIPTOR.format(what=what) for what in ("words", "bells", "staging")]
    assert_all_were_told(memory, own, at_times=[NOT_RECEIVED])
    assert_all_were_told([NOT_SHARED.format(rank=at)], others)


@pytest.mark.parametrize("work", [join, split])
@pytest.mark.parametrize("what", ["bytes of a file", "address space"])
def test_a_join_or_split_ends_for_all_if_a_rank_has_no_memory(job, work, what):
    own, others = told(job, work, 1, what, [0, 1 << 16, *(n << 18 for n in range(1, 200))])
    refusal = TOO_LONG if what == "bytes of a file" else NO_MEMORY
    no_thread, missing = r"BlockingIOError: .* no thread to watch other ranks: .*", r"(Closed|Timeout): .*rank 1 .*"
    words, staging = (refusal.format(what=one) for one in ("words", "staging"))
    assert_all_were_told([staging], own, at_times=[words, no_thread])
    assert_all_were_told([NOT_SHARED.format(rank=1)], others, at_times=[missing])


def grow(what, room, comm):
    """Has the heap of rank 1 refused a region, then makes the array and the call."""
    outcome, before = "done", open_things()
    if comm.rank == 1:
        with limited(what, room):
            outcome = outcome_of(comm.empty, (5 << 20) + room, "u1")
        assert open_things() == before
    x = comm.full(5 << 20, comm.rank + 1, "u1")
    return outcome, bool((comm.all_reduce(x) == 6).all())


def use_scratch(what, room, comm):
    """Has rank 1 refused the scratch of a call in which its peers reach it, and which it then makes."""
    outcome, x = "done", comm.full(3 << 20, comm.rank + 1.0)
    if comm.rank == 1:
        with limited(what, room):
            outcome = outcome_of(lambda: comm.reduce(x, root=0, algorithm="chain"))
    found = comm.reduce(x, root=0, algorithm="chain")
    return outcome, comm.rank != 0 or bool((found == 6).all())


@pytest.mark.parametrize(("what", "room"), [("descriptors", 0), ("bytes of a file", 4096), ("address space", 4096)])
@pytest.mark.parametrize("work", [grow, use_scratch])
def test_a_rank_whose_heap_cannot_grow_may_go_on(what, room, work):
    with Job(3) as job:  # whose heaps are empty, but for the arrays
        outcomes = job.run(functools.partial(work, what, room))
    assert all(is_right for _, is_right in outcomes)
    refusals = {"descriptors": NO_DESCRIPTOR, "bytes of a file": TOO_LONG, "address space": NO_ROOM}
    expected = refusals[what].format(what="symmetric memory")
    assert [re.fullmatch(expected, told) is not None for told, _ in outcomes] == [False, True, False], outcomes


def map_an_array(what, comm):
    """Has rank 1 refused what it needs to reach the arrays of its peers, in one communicator and then in another."""
    group, x = comm.split(0), comm.full(5 << 20, 1, "u1")
    comm.barrier()
    with limited(what, 0) if comm.rank == 1 else contextlib.nullcontext():
        return [outcome_of(group.all_reduce, x), outcome_of(comm.all_reduce, x)]


@pytest.mark.parametrize("what", ["descriptors", "address space"])
def test_a_rank_that_cannot_map_an_array_of_a_peer_ends_the_call(what):
    with Job(3) as job:
        outcomes = job.run(functools.partial(map_an_array, what))
    told, of_group = (
        "Aborted: rank 1 could not map memory of its peers",
        " (the ranks of this communicator are ranks 0, 1, 2 of the run)",
    )
    own, end = outcomes.pop(1), ": the call was aborted"
    assert outcomes == [[told + end + of_group, told + end]] * 2
    reason = {
        "descriptors": r": \[?.*0 of 1 descriptors of rank [02] were received: .*",
        "address space": ": no memory for .*",
    }[what]
    assert re.fullmatch(told + reason + re.escape(end + of_group), own[0]) and re.fullmatch(
        told + reason + end, own[1]
    ), own


# the machine


def run(ranks, program, tmp_path, *before):
    """Runs a program by `nvcoll run -n`, behind some words; returns what it wrote."""
    script = tmp_path / "script.py"
    script.write_text("import os\nimport numpy as np\nimport nvcoll\n\n" + program)
    words = [*before, *PROGRAM, "run", "-n", str(ranks), "--no-prefix", str(script)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


def test_dev_shm_may_be_small_and_full(tmp_path):
    mount = "mount -t tmpfs -o size=1m tmpfs /dev/shm && head -c 1m /dev/zero > /dev/shm/full"
    inside = ["unshare", "--mount", "sh", "-c", mount + ' && exec "$@"', "sh"]
    if subprocess.run([*inside, "true"], capture_output=True).returncode != 0:
        pytest.skip("this user may not mount a small /dev/shm")
    program = """
comm = nvcoll.init(timeout=60)
room = os.statvfs("/dev/shm")
assert (room.f_frsize * room.f_blocks, room.f_bavail) == (1 << 20, 0)
for make in (np.full, comm.full):
    x = make(4 << 20, comm.rank + 1, "f4")
    assert (comm.all_reduce(x) == 6).all()
    assert (comm.all_gather(x[:1000]) == 6).all()
print("right")
"""
    assert run(3, program, tmp_path, *inside) == "right\n" * 3


def test_eight_ranks_share_one_processor(tmp_path):
    program = """
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
comm = nvcoll.init(timeout=100)
for nth in range(100):
    for make in (np.full, comm.full):
        x = make(40, comm.rank + nth)
        assert (comm.all_reduce(x.copy()) == 28 + 8 * nth).all()
        assert (comm.all_gather(x).reshape(8, 40) == np.arange(8)[:, None] + nth).all()
        assert (comm.reduce_scatter(x) == 28 + 8 * nth).all()
        assert (comm.broadcast(x, root=nth % 8) == nth % 8 + nth).all()
    comm.barrier()
print("right")
"""
    assert run(8, program, tmp_path) == "right\n" * 8


FEW_DESCRIPTORS = {
    "group": "print(comm.split(0).all_reduce(np.ones(1))[0])",
    "arrays": """
arrays = [comm.full(mb << 20, 1.0, "f4") for mb in (1, 3, 7)]
found = {comm.all_reduce(x)[-1] for x in arrays}
print(*found)
""",
    "messages": """
out = np.empty((8, 100))
with comm.group():
    for peer in range(8):
        comm.send(np.full(100, float(comm.rank)), peer)
        comm.recv(out[peer], peer)
print(float((out[:, 99] == np.arange(8)).sum()))
""",
}


@pytest.mark.parametrize("work", FEW_DESCRIPTORS.values(), ids=FEW_DESCRIPTORS)
def test_ranks_without_privileges_need_few_descriptors_on_their_way(tmp_path, work):
    """The system limits what one user has sent and nobody received, by the limit of the sender (unix(7))."""
    inside = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    if inside and subprocess.run([*inside, "true"], capture_output=True).returncode != 0:
        pytest.skip("setpriv cannot take privileges away")
    program = f"comm = nvcoll.init(timeout=60, join_timeout=60)\n{work}"
    assert run(8, program, tmp_path, *inside, "sh", "-c", 'ulimit -n 64; exec "$@"', "sh") == "8.0\n" * 8


# names


def test_of_two_jobs_with_one_name_the_second_is_refused_and_the_first_goes_on(tmp_path):
    program = f"""
    if os.environ["NVCOLL_RANK"] == "1":
        while not os.path.exists({str(tmp_path / "go")!r}):
            time.sleep(0.01)
    print(nvcoll.init(timeout=60, join_timeout=60).all_reduce(np.ones(1))[0])
    """
    first = start(2, program, "one-name")
    name = f"nvcoll.{os.geteuid()}.one-name-{os.getpid()}"

    def listens():
        with open("/proc/net/unix") as lines:
            return any(line.endswith(f"@{name}\n") for line in lines)

    wait_until(listens)
    (status, _, errors), _ = results(start(2, 'if os.environ["NVCOLL_RANK"] == "0":\n    nvcoll.init()', "one-name"))
    assert status == 1
    assert f"process {first[0].pid} of user {os.geteuid()} is rank 0 of a job" in errors
    (tmp_path / "go").touch()
    assert results(first) == [(0, "2.0\n", "")] * 2


@pytest.mark.parametrize(("in_a_row", "at_once"), [(6, 3), pytest.param(100, 20, marks=pytest.mark.slow)])
def test_many_jobs_leave_nothing(in_a_row, at_once):
    assert "nothing left" in many_jobs.check(in_a_row, at_once)
