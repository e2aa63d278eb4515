"""Steps of training: the calls that tables count per step, and hints on buckets."""

import json
import os
import subprocess

import pytest
from command_line import LIMIT_S, PROGRAM

from nvcoll import fabric
from nvcoll.cost.buckets import bucket_hints
from nvcoll.cost.counts import CallKind, CountedCalls, Counts, packed, unpacked
from nvcoll.cost.price import Pricer
from nvcoll.cost.report import report_of

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="ranks are processes on Linux only")

TRAINING = """
import numpy as np, nvcoll
comm = nvcoll.init()
comm.broadcast(np.ones(1000, "f4"))
for step in range(5):
    for _ in range(3):
        comm.all_reduce(np.ones(1 << 18, "f4"))
    if step == 0:
        comm.barrier()
    nvcoll.step()
comm.all_reduce(np.ones(1 << 18, "f4"))
"""


@pytest.fixture
def table(tmp_path):
    def run(*options):
        (tmp_path / "script.py").write_text(TRAINING)
        words = [*PROGRAM, "run", "-n", "2", "--on", "hgx-h100", *options, str(tmp_path / "script.py")]
        return subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, check=True).stdout

    return run


def test_calls_between_the_first_mark_and_the_last_are_those_of_the_steps(table):
    found = json.loads(table("--json"))
    calls = {row["collective"]: (row["times"], row["in_steps"]) for row in found["calls"]}
    assert found["steps"] == 4
    assert calls == {"broadcast": (1, 0), "all_reduce": (16, 12), "barrier": (1, 0)}
    one = next(row["prices"][0]["time_us"] for row in found["calls"] if row["collective"] == "all_reduce")
    assert found["reports"][0]["step_us"] == pytest.approx(3 * one)


def test_the_table_has_a_column_and_a_line_for_the_step(table):
    text = table()
    assert "per step" in text and "\none step" in text and "the average of 4 steps after the first" in text


def counts(nbytes, calls, steps=10):
    """Returns counts of a program that makes some all_reduce in each step."""
    kind = CallKind("all_reduce", nbytes, "float32", "sum", "auto", None, tuple(range(8)), 1)
    return unpacked(packed([Counts([CountedCalls(kind, calls * steps, calls * steps, lambda: None)], 0, steps)]))


@pytest.mark.parametrize(
    ("nbytes", "calls", "words"),
    [(64 << 10, 400, "too small"), (1 << 30, 1, "larger than needed"), (32 << 20, 8, None), (4, 1, None)],
)
def test_hints_name_buckets_that_are_too_small_or_too_large(nbytes, calls, words):
    pricer = Pricer(fabric("hgx-h100"))
    report = report_of([counts(nbytes, calls)], [pricer])
    hints = list(bucket_hints(pricer, report.calls, 0, report.steps))
    assert hints == list(report.totals[0].hints)
    assert len(hints) == (words is not None) and all(words in hint for hint in hints)
