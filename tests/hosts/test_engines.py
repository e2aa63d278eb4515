"""Engines between hosts: what they promise, tried between processes of this machine."""

import os
import shutil
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "lib" / "engine_programs.py"
RANKS = 3


def run_gloo(program):
    if find_spec("torch") is None:
        pytest.skip("torch is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    base = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "NVCOLL_WORLD_SIZE": str(RANKS)}
    command = [sys.executable, PROGRAM, program]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    ranks = [subprocess.Popen(command, env=base | {"NVCOLL_RANK": str(rank)}, **pipes) for rank in range(RANKS)]
    try:
        return [(each.communicate(timeout=100)[0], each.returncode) for each in ranks]
    finally:
        for each in ranks:
            each.kill()


def run_mpi(program):
    mpirun = shutil.which("mpirun")
    if find_spec("mpi4py") is None or mpirun is None:
        pytest.skip("mpi4py and an MPI are not installed")
    version = subprocess.run([mpirun, "--version"], capture_output=True, text=True, timeout=60).stdout
    more = ["--allow-run-as-root", "--oversubscribe"] if "Open MPI" in version or "Open-MPI" in version else []
    command = [mpirun, *more, "-n", str(RANKS), sys.executable, PROGRAM, program]
    environment = os.environ | {"NVCOLL_BETWEEN": "mpi"}
    found = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment)
    if found.stdout.count("right") == RANKS:
        return [("right", 0)] * RANKS  # launchers complain of ranks that end without MPI_Finalize
    return [(found.stdout + found.stderr, found.returncode)]


@pytest.mark.parametrize("run", [run_gloo, run_mpi], ids=["gloo", "mpi"])
@pytest.mark.parametrize("program", ["messages", "exchanges", "close_ends_waits", "late", "interrupted"])
def test_engine_keeps_its_promises(run, program):
    for output, status in run(program):
        assert "right" in output and status == 0, output


def test_gloo_tells_the_end_of_a_process():
    ends = run_gloo("killed")
    assert ends[1][1] == -9
    for output, status in (ends[0], ends[2]):
        assert "right" in output and status == 0, output
