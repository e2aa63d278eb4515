"""``nvcoll.testing``: faults strike where they are asked to, and nothing that ranks leave goes unnoticed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import rank_programs as programs
from processes import is_running

import nvcoll
from nvcoll.testing import Fault, Residue, no_residue, run_ranks

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="ranks that are processes need Linux"),
    pytest.mark.timeout(120),
]

PAGE = Path(__file__).parents[2] / "docs" / "run" / "testing.md"
STEPS = 5
"""Steps of a rank in a staged all_reduce by the ring algorithm of 3 ranks."""


@pytest.fixture(scope="module", autouse=True)
def fork_server():
    run_ranks(programs.place, 1)


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (Fault.kill(1, 2, None), -signal.SIGKILL),
        (Fault.kill(1, 2, 0), -signal.SIGKILL),
        (Fault.segfault(1, 2, 3), -signal.SIGSEGV),
        (Fault.signal(signal.SIGTERM, 1, 0, 1), -signal.SIGTERM),
        (Fault.exit(1, 2, -1, status=7), 7),
    ],
)
def test_a_rank_ends_at_the_step_and_its_peers_are_told(fault, status):
    with no_residue():
        run = run_ranks(programs.reduce_often, 3, fault=fault)
    assert run[1].status == status and run[1].error is None and not run[1].returned
    assert run.steps == {None: 0, -1: STEPS}.get(fault.step, fault.step)
    for survivor in (run[0], run[2]):
        assert isinstance(survivor.error, nvcoll.Aborted) and "rank 1" in str(survivor.error), run
        assert survivor.ended_s > run.struck_s and not survivor.residue and survivor.status == 0
    assert not run.left


@pytest.mark.parametrize("count", [10, 100_000])
@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (Fault.kill(1, 4, None), -signal.SIGKILL),
        (Fault.segfault(1, 5, 0), -signal.SIGSEGV),
        (Fault.exit(1, 4, 0, status=7), 7),
    ],
)
def test_a_rank_ends_on_its_way_through_a_message_and_its_peers_are_told(fault, status, count):
    with no_residue():
        run = run_ranks(programs.exchange_often, 3, count, fault=fault.in_messages())
    assert run[1].status == status
    for survivor in (run[0], run[2]):
        assert isinstance(survivor.error, nvcoll.PeerLost) and survivor.error.rank == 1, run
        assert not survivor.residue


def test_a_call_fails_or_is_late_on_one_rank():
    run = run_ranks(programs.reduce_often, 3, fault=Fault.fail(1, 2, 1))
    assert [type(rank.error) for rank in run] == [nvcoll.Aborted] * 3 and run.steps == 1
    assert all("rank 1 failed" in str(rank.error) and "reduce_often" in rank.trace for rank in run)
    run = run_ranks(programs.reduce_often, 3, fault=Fault.delay(0.05, 1, 2, 1))
    assert [rank.value for rank in run] == [6, 6, 6] and run[0].ended_s > run.struck_s + 0.05
    assert not any(rank.residue for rank in run)


def test_a_fault_of_a_rank_that_does_not_exist_is_refused():
    with pytest.raises(nvcoll.InvalidArgument, match="there are 2 ranks"):
        run_ranks(programs.reduce_often, 2, fault=Fault.kill(2))


def test_a_stopped_rank_goes_on_when_its_peers_have_ended():
    run = run_ranks(programs.reduce_often, 3, fault=Fault.stop(1, 2, 2), call_timeout=0.2)
    assert [rank.was_stopped for rank in run] == [False, True, False]
    assert all(isinstance(rank.error, nvcoll.Timeout | nvcoll.Aborted) for rank in run), run
    assert run[1].ended_s > max(run[0].ended_s, run[2].ended_s)


def test_a_rank_gets_no_more_memory_or_descriptors():
    run = run_ranks(programs.allocate_later, 2, fault=Fault.out_of_memory(1))
    assert isinstance(run[1].error, MemoryError) and run[0].returned
    run = run_ranks(programs.split_later, 2, fault=Fault.out_of_descriptors(1))
    assert isinstance(run[1].error, OSError) and run[0].error is not None
    assert not run[1].residue


def test_a_fault_that_has_not_struck_is_an_error():
    for fault in (Fault.kill(1, 6), Fault.kill(1, 2, STEPS + 1)):
        with pytest.raises(AssertionError, match="has not struck: rank 0 returned 6"):
            run_ranks(programs.reduce_often, 3, fault=fault)


def test_a_call_of_a_thread_can_fail_and_its_process_cannot():
    def program(comm, fault):
        fault.arm(comm)
        return programs.reduce_often(comm)

    with pytest.raises(nvcoll.Aborted, match="rank 1 failed"):
        nvcoll.Node(3).run(program, Fault.fail(1, 2, 1))
    with pytest.raises(nvcoll.InvalidArgument, match="the rank is a thread"):
        nvcoll.Node(3).run(program, Fault.kill(1))


def test_what_ranks_leave_is_found():
    run = run_ranks(programs.leave_a_descriptor, 2)
    assert [rank.residue for rank in run] == [Residue(descriptors=1)] * 2
    run = run_ranks(programs.leave_a_process, 1)
    assert run.left == [run[0].value] and run[0].residue == Residue(processes=1)
    assert not is_running(run[0].value)


def test_what_a_block_leaves_is_found():
    with pytest.raises(AssertionError, match="descriptors=1, maps=0, threads=0, processes=0"), no_residue(0.1):
        left = os.dup(0)
    os.close(left)
    end = threading.Event()
    with pytest.raises(AssertionError, match="threads=1"), no_residue(0.1):
        threading.Thread(target=end.wait).start()
    end.set()


def test_late_ranks_are_killed_and_exits_are_told():
    run = run_ranks(programs.sleep, 2, timeout=0.3)
    assert all(rank.is_overdue and rank.status == -signal.SIGKILL for rank in run)
    assert "rank 1 had not ended in time, and was killed by signal 9 (SIGKILL)" in str(run)
    run = run_ranks(programs.exit_with_3, 2)
    assert [rank.status for rank in run] == [3, 3] and "rank 0 ended with status 3" in str(run)


def test_ranks_are_where_the_test_is(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NVCOLL_TEST", "here")
    places = [rank.value for rank in run_ranks(programs.place, 2)]
    assert [(rank, size, folder, value) for rank, size, _, folder, value in places] == [
        (rank, 2, str(tmp_path), "here") for rank in range(2)
    ]
    assert len({process for _, _, process, _, _ in places} | {os.getpid()}) == 3


def test_what_cannot_be_pickled_is_said():
    with pytest.raises(nvcoll.InvalidArgument, match="pass a function of a module"):
        run_ranks(lambda comm: None, 2)
    assert "which cannot be pickled" in str(run_ranks(programs.return_a_function, 1)[0].error)


def test_the_example_of_the_page_passes(tmp_path):
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "test_training.py").write_text(example)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_training.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr
