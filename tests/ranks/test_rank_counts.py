"""What ranks that are processes tell ``nvcoll run -n --on`` of their calls, and the table that comes of it."""

import json
import os
import re
import subprocess

import pytest
from command_line import LIMIT_S, PROGRAM

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="ranks are processes on Linux only")

BEGIN = """
import os, select, signal, subprocess, sys, time
import numpy as np, nvcoll
"""

SPMD = """
def program(comm):
    comm.all_reduce(np.ones(256, "f4"))
    for _ in range(3):
        comm.all_reduce(np.ones(1 << 16, "f4"), "max", algorithm="ring")
    comm.barrier()
    comm.scan(np.ones(1000, "f8"), algorithm="chain")
    comm.broadcast(np.ones(10), root=2)
    comm.all_gather(np.ones(8, "i4"))
    half = comm.split(comm.rank % 2, key=-comm.rank)
    for _ in range(2):
        half.all_reduce(np.ones(64, "f8"))
    if comm.rank % 2:
        half.reduce_scatter(np.ones(64, "f2"))
    with half.group() as group:
        for n in (4, 40, 400):
            half.all_reduce(np.ones(n, "f4"))
    group.run()
    half.split(half.rank).all_reduce(np.ones(3))

if "NVCOLL_RANK" in os.environ:
    program(nvcoll.init())
else:
    nvcoll.Node(4).run(program)
"""


@pytest.fixture
def script(tmp_path):
    """Writes a script; returns its path."""

    def write(text):
        path = tmp_path / "script.py"
        path.write_text(BEGIN + text)
        return str(path)

    return write


def run(script, *options, status=0):
    words = [*PROGRAM, "run", "--on", "hgx-h100", *options, script]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == status, (done.stdout, done.stderr)
    return done


def report(script, *options, status=0):
    """Runs a program that prints nothing; returns its numbers of calls, and the ranks whose counts are missing."""
    found = json.loads(run(script, "--json", *options, status=status).stdout)
    calls = {(row["collective"], row["nbytes"], tuple(row["ranks"])): row["times"] for row in found["calls"]}
    return calls, found["silent"]


def test_a_program_has_the_same_table_on_threads_and_on_processes(script):
    path = script(SPMD)
    threads, processes = run(path).stdout, run(path, "-n", "4").stdout
    assert threads == processes and "2 x 2      2" in threads and "chain, simulated" in threads
    assert run(path, "--json").stdout == run(path, "-n", "4", "--json").stdout


def test_ranks_that_fail_and_tell_nothing_are_named(script):
    path = script("""
comm = nvcoll.init()
if comm.rank == 0:
    open(__file__ + ".0", "w").write(str(os.getpid()))
comm.all_reduce(np.ones(4))
comm.split(comm.rank).all_reduce(np.ones(5))
rank_0 = os.pidfd_open(int(open(__file__ + ".0").read()))
comm.barrier()
if comm.rank == 2:
    select.select([rank_0], [], [])  # its counts are there when it has ended
    os.kill(os.getpid(), 9)
time.sleep(600 if comm.rank else 0)
""")
    calls, silent = report(path, "-n", "3", status=137)
    assert (calls, silent) == (
        {("all_reduce", 32, (0, 1, 2)): 1, ("all_reduce", 40, (0,)): 1, ("barrier", 0, (0, 1, 2)): 1},
        [1, 2],
    )
    done = run(path, "-n", "3", status=137)
    note = (
        "ranks 1 and 2 ended without reporting their calls: "
        "calls of communicators with one of them as first rank are missing"
    )
    assert note in re.sub(r"\s+", " ", done.stdout)
    assert done.stderr.endswith("nvcoll: rank 2 was killed by signal 9 (SIGKILL)\n")


def test_an_exception_and_an_interrupt_do_not_hide_calls(script):
    path = script("""
nvcoll.init().barrier()
if os.environ["NVCOLL_RANK"] == "0":
    raise KeyboardInterrupt
""")
    assert report(path, "-n", "2", status=130) == ({("barrier", 0, (0, 1)): 1}, [])


def test_several_jobs_of_a_process_are_counted_together_and_their_children_not(script):
    path = script("""
for size in (4, 5):
    comm = nvcoll.init(job=f"{os.environ['NVCOLL_JOB']}-{size}")
    comm.all_reduce(np.ones(size))
    nvcoll.finalize()
assert "NVCOLL_COUNTS" not in os.environ
if os.fork() == 0:
    nvcoll.init(0, 1).all_reduce(np.ones(6))
    sys.exit()
os.wait()
nvcoll.Node(2).all_reduce(np.ones((2, 7)))
""")
    assert report(path, "-n", "2") == ({("all_reduce", 32, (0, 1)): 1, ("all_reduce", 40, (0, 1)): 1}, [])


def test_a_program_that_a_rank_starts_before_it_uses_nvcoll_tells_nothing(tmp_path):
    path = tmp_path / "script.py"
    path.write_text("""
import os, subprocess, sys
child = "import nvcoll; nvcoll.init(0, 1).barrier()"
with open(__file__) as file:  # perhaps it takes the number of the descriptor
    subprocess.run([sys.executable, "-c", child], check=True, stdin=file)
import nvcoll
nvcoll.init()
""")
    assert report(str(path), "-n", "2") == ({}, [])


def test_a_script_without_a_rank_is_told_how_to_be_one(script):
    lines = run(script("nvcoll.Node(2).all_reduce(np.ones((2, 4)))\n"), "-n", "2").stdout.splitlines()
    assert lines[-2] == "no collectives were made" and lines[-1].endswith("write them with nvcoll.init")


def test_a_script_that_is_its_own_job_of_one_rank_is_counted_without_a_launcher(script):
    assert report(script("nvcoll.init().all_reduce(np.ones(4))\n")) == ({("all_reduce", 32, (0,)): 1}, [])
