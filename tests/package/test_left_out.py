"""A run of the tests ends with what it left out, why, and which command runs it."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
CONFTEST = (TESTS / "conftest.py").read_text()

TEXT = """
import pytest

@pytest.mark.skipif(True, reason="torch is not installed")
def test_by_mark(): pass

def test_by_import():
    raise pytest.skip.Exception("could not import 'torch.distributed': No module named 'torch'")

def test_of_a_browser():
    pytest.skip("no chromium on PATH")

@pytest.mark.slow
def test_for_minutes(): pass
"""


def run(folder, *options):
    (folder / "tests" / "ranks").mkdir(parents=True)
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "tests" / "ranks" / "test_here.py").write_text(TEXT)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", folder, *options, folder]
    path = os.environ | {"PYTHONPATH": str(TESTS / "lib")}
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=100, cwd=folder, env=path)
    return done.stdout


def test_tests_of_a_package_that_is_not_installed_are_named_with_the_command_that_runs_them(tmp_path):
    output = run(tmp_path)
    assert "skipped 2: torch is not installed: pip install '.[torch]' && pytest tests/ranks\n" in output
    assert "skipped 1: no chromium on PATH\n" in output
    assert "left out 1 that take minutes: pytest --slow\n" in output


def test_slow_tests_run_when_they_are_asked_for(tmp_path):
    output = run(tmp_path, "--slow")
    assert "left out" not in output and "1 passed" in output
