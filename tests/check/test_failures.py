"""Runs that failed: the verdict is sick, and a line of NCCL names the cause. A run without rows says that it began."""

import pytest
from check_logs import predicted

from nvcoll.check import formats, odds
from nvcoll.check.ailments import AILMENTS, FAILURES
from nvcoll.check.verdict import CANNOT_TELL, SICK, among

HEADER = "# nThread 1 nGpus 1 minBytes 1024 maxBytes 8388608 step: 2(factor) warmup iters: 5 iters: 20"
FAILED = "node1: Test NCCL failure common.cu:1126 'unhandled system error (run with NCCL_DEBUG=INFO for details) / '"
WARNINGS = [
    ("one-gpu-each", "misc/nvmlwrap.cc:183 NCCL WARN nvmlDeviceGetHandleByPciBusId() failed: Not Found"),
    ("old-release", "[0] NCCL INFO ncclMaxSharedMem 82240 exceeds device/fn maxSharedMem 79856"),
    ("old-release", "NCCL WARN Cuda failure 'CUDA driver version is insufficient for CUDA runtime version'"),
    ("memory-lock", "NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory"),
    ("no-route", "misc/ibvwrap.cc:187 NCCL WARN Call to ibv_modify_qp failed with error Network is unreachable"),
    ("link-down", "NCCL WARN NET/IB : Got completion from peer 10.0.35.1<49189> with status=12 opcode=0 len=0"),
    ("shm-full", "NCCL WARN Error: failed to extend /dev/shm/nccl-WU88OE to 9637892 bytes"),
    ("shm-full", "include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device"),
    ("hosts-apart", "NCCL WARN socketPollConnect: Connect to 10.0.0.4<56849> returned 113(No route to host)"),
    ("hosts-apart", "NCCL WARN Bootstrap : no socket interface found"),
    ("unlike-ranks", "NCCL WARN NET/Socket : message truncated : receiving 696320 bytes instead of 32768"),
    ("unlike-ranks", "socket.c:446 NCCL WARN socketFinalizeAccept: wrong type 3 != 4"),
    ("link-down", "Device 0 marked as failed. Initiating recovery? Yes (recv comm=0x1)"),
    ("stub-driver", "misc/strongstream.cc:60 NCCL WARN Cuda failure 'CUDA driver is a stub library'"),
    ("shared-gpu", "init.cc:497 NCCL WARN Duplicate GPU detected : rank 2 and rank 0 both on CUDA device 1000"),
]


def verdict_on(text):
    logs = formats.read("log", text)
    return among([odds.judged(log, odds.found([log]), None) for log in logs])[0]


@pytest.mark.parametrize(("key", "line"), WARNINGS)
def test_a_line_of_nccl_names_why_a_run_failed(key, line):
    found = verdict_on(f"{HEADER}\nnode1:1:2 [0] {line}\n{FAILED}\n")
    assert (found.verdict, found.reasons[0]) == (SICK, "the run failed: `unhandled system error`")
    assert [one.ailment.key for one in found.suspects] == [key] and found.suspects[0].ailment.confirm


def test_each_failure_has_a_line_that_is_tried():
    assert {one.key for one in FAILURES} == {key for key, _ in WARNINGS} | {"fault-of-release", "queue-pair"}


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("queue-pair", "NCCL WARN NET/IB : mlx5_3:1 async fatal event on QP (0x732d78661238): invalid request"),
        ("fault-of-release", " 2097152 32768 float none -1 n0: Test CUDA failure x.cu:389 'an illegal memory access'"),
        ("link-down", "#bytes #iterations BW average[Gb/sec]\n65536 5000 389\n Completion with error at client"),
        ("no-route", "NCCL WARN Call to ibv_modify_qp failed with error No such device"),
    ],
)  # fmt: skip
def test_a_run_fails_also_by_other_words_and_inside_of_a_row(key, line):
    found = verdict_on(line)
    assert found.verdict == SICK and found.suspects[0].ailment.key == key


def test_no_command_to_run_next_has_a_gap():
    assert not [one.confirm for one in (*AILMENTS, *FAILURES) if "..." in one.confirm]


def test_what_torch_raises_is_a_failure():
    text = "DistBackendError: NCCL error in: /c10d/NCCLUtils.hpp:275, invalid usage (run with NCCL_DEBUG=WARN)"
    found = verdict_on(f"{text}\nLast error:\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA device 10\n")
    assert found.verdict == SICK and found.suspects[0].ailment.key == "shared-gpu"


def test_a_run_that_failed_after_healthy_sizes_is_sick():
    found = verdict_on(f"{predicted()}\n{FAILED}\n")
    assert found.verdict == SICK and found.rows and "failed" in found.reasons[0]


def test_a_warning_alone_is_no_failure():
    line = "node1:1:2 [0] NCCL WARN Could not find a path for pattern 4, falling back to simple order"
    assert verdict_on(f"{line}\n{predicted()}").verdict != SICK


def test_a_run_that_printed_no_size_is_said_to_have_begun():
    found = verdict_on(f"{HEADER}\n#       size         count      type   redop\n")
    assert found.verdict == CANNOT_TELL and "hangs" in found.reasons[0]
