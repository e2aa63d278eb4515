"""The watchdog of the tests: it ends what holds the GIL for ever, which pytest-timeout cannot."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
CONFTEST = (TESTS / "conftest.py").read_text()

DEADLOCK = """
import ctypes

import pytest


@pytest.mark.timeout(2)
def test_locks_a_mutex_twice_without_giving_the_gil_away():
    mutex, libc = ctypes.create_string_buffer(64), ctypes.PyDLL(None)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a mutex of zeros is an unlocked one on Linux")
def test_a_deadlock_on_the_gil_ends_and_says_where(tmp_path):
    soon = CONFTEST.replace("GRACE_S = 20", "GRACE_S = 1")
    assert soon != CONFTEST
    (tmp_path / "conftest.py").write_text(soon)
    (tmp_path / "test_deadlock.py").write_text(DEADLOCK)
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(tmp_path), str(tmp_path)]
    path = os.environ | {"PYTHONPATH": str(TESTS / "lib")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=tmp_path, env=path)
    assert done.returncode == 1
    assert "Timeout (0:00:03)!" in done.stderr and "test_locks_a_mutex_twice" in done.stderr
