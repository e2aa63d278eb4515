"""Processes that tests start: which run, and whether they end. Every wait has a limit, which only a failure reaches."""

import gc
import os
import subprocess
import sys
import textwrap
import time

from nvcoll.testing.residue import children, residue

__all__ = ["children", "is_running", "open_things", "results", "start", "wait_for_ends", "wait_until"]

PATIENCE_S = 60
"""How long a process is given to do what it does at once. Chosen."""

WAIT_S = 120
"""How long the ranks of a job may take. Chosen."""


def wait_until(is_so) -> None:
    """Waits until something is so; fails if it never is."""
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, "it has not happened"
        time.sleep(0.01)


def wait_for_ends(processes) -> None:
    """Waits until all these processes have ended."""
    wait_until(lambda: not any(is_running(one) for one in processes))


def start(world_size: int, program: str, name: str, stdin: bool = False) -> list[subprocess.Popen]:
    """Starts a program as the ranks of a job; it finds `nvcoll`, `np` and some modules of Python."""
    head = "import gc, os, signal, sys, time\nimport numpy as np\nimport nvcoll\n"
    environment = {**os.environ, "NVCOLL_WORLD_SIZE": str(world_size), "NVCOLL_JOB": f"{name}-{os.getpid()}"}
    return [
        subprocess.Popen(
            [sys.executable, "-c", head + textwrap.dedent(program)],
            env={**environment, "NVCOLL_RANK": str(rank)},
            stdin=subprocess.PIPE if stdin else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world_size)
    ]


def results(processes: list[subprocess.Popen]) -> list[tuple[int, str, str]]:
    """Returns exit status, output and errors of each rank."""
    try:
        texts = [process.communicate(timeout=WAIT_S) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return [(process.returncode, *text) for process, text in zip(processes, texts, strict=True)]


def open_things(_comm: object = None) -> tuple[int, int]:
    """Counts the descriptors of this process, and what it maps of memory that ranks share: the fewest of some looks.

    A guard of a rank opens a file for a moment now and then, and so does a thread that asks what a peer does.
    """
    gc.collect()
    looks = []
    for _ in range(10):
        looks.append(residue()[:2])
        time.sleep(0.005)
    descriptors, mappings = zip(*looks, strict=True)
    return min(descriptors), min(mappings)


def run_script(prelude: str, script: str) -> None:
    """Runs a script in a process of its own; it says nothing.

    Scripts fork while they have threads, of which Python warns from 3.12 on.
    """
    text = textwrap.dedent(prelude) + textwrap.dedent(script)
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", text]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and done.stderr == "", done.stderr


def is_running(process: int) -> bool:
    """Says whether a process exists and has not ended."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False
