"""nvcoll passes the distributed test suite in torch's wheel, as far as gloo does; `tests/torch/suite/run.py` runs it.

A run takes some minutes for each world size: only with ``--slow``. The other tests are of the runner, and
need no torch.
"""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "suite"
BASELINE = FOLDER / "gloo-2.15.0.tsv"
LIMIT_S = 1500
"""How long a world size may take. Chosen: twenty times what it takes on two cores."""

CHAINED = """Traceback (most recent call last):
  File "a.py", line 1, in f
ValueError: the cause

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "b.py", line 2, in g
    raise
RuntimeError: the error,

of   two lines
Exception raised from check at x.cpp:1 (most recent call first):
frame #0: c10::Error
"""


@pytest.fixture
def outcomes(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("outcomes")


@pytest.fixture
def expected(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("expected").EXPECTED


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_nvcoll_passes_what_gloo_passes(world_size):
    command = [FOLDER / "run.py", "--backend", "nvcoll", "--world-size", world_size, "--baseline", BASELINE]
    done = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


def test_the_baseline_fails_where_it_is_expected_to(outcomes, expected):
    baseline = outcomes.read(BASELINE)
    assert {one.case for one in baseline.values() if one.result == "failed"} == set(expected["gloo"])
    assert {case for case, _ in baseline} >= set(expected["nvcoll"])
    assert len(baseline) == 3 * 285


def test_a_table_is_read_as_it_was_written(outcomes, tmp_path):
    some = [
        outcomes.Outcome("test_a", 2, "passed"),
        outcomes.Outcome("test_a", 3, "passed"),
        outcomes.Outcome("test_a", 4, "failed", "rank 1: RuntimeError: no"),
        outcomes.Outcome("test_b", 2, "skipped", "world size", "mpi", 0.5, 1, {"0": "words"}),
    ]
    for ending in ("json", "tsv"):
        file = tmp_path / f"run.{ending}"
        outcomes.write(file, "gloo", "2.15.0", some)
        again = outcomes.read(file)
        assert [(*one.key, one.result, one.reason) for one in again.values()] == [
            (*one.key, one.result, one.reason) for one in some
        ]
    assert "test_a\t2,3\tpassed\n" in file.read_text()


def test_a_case_that_a_name_was_refused_is_what_it_is_under_the_next_name(outcomes):
    def skipped(reason):
        return outcomes.Outcome("test_a", 2, "skipped", reason)

    passed = outcomes.Outcome("test_a", 2, "passed")
    assert outcomes.merge(skipped("backend name"), passed) is passed
    assert outcomes.merge(skipped("world size"), passed) is passed
    assert outcomes.merge(skipped("backend name"), skipped("world size")).reason == "world size"
    assert outcomes.merge(skipped("world size"), skipped("gpu")).reason == "world size"


def test_the_line_of_an_error_is_the_last_exception_without_the_stack_of_cpp(outcomes):
    assert outcomes.line_of_error(CHAINED) == "RuntimeError: the error, of two lines"


@pytest.mark.parametrize(
    "words, reason",
    [
        ("Need at least 2 accelerator devices", "gpu"),
        ("Only Nccl supports CUDA reduce", "gpu"),
        ("https://github.com/pytorch/pytorch/issues/76428", "disabled upstream"),
        ("no torchvision", "dependency"),
        ("Skipped due to small world size.", "world size"),
        ("Only MPI supports CPU all_to_all", "backend name"),
    ],
)
def test_the_words_of_the_suite_give_the_reason_to_skip(outcomes, words, reason):
    assert outcomes.reason_of(words) == reason
