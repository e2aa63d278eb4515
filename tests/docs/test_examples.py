"""The examples run, and say what they promise; .ci/run trains with data_parallel.py."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def output_of(*command):
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_report_of_a_run_prints_the_same_table_by_itself_and_by_the_command():
    script = str(EXAMPLES / "tensor_parallel.py")
    by_itself = output_of(script, "--on", "hgx-h100", "pcie4-8-staged")
    by_command = output_of("-m", "nvcoll", "run", "--on", "hgx-h100,pcie4-8-staged", script, "--on")
    assert by_itself in by_command
    for words in (
        "1 MiB  float16 sum",
        "32 MiB in 12 calls  float32 avg",
        "4 B  float32 avg",
        "2 x 4",
        "4 x 2",
    ):
        assert words in by_itself
