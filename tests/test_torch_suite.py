"""nvcoll passes the distributed test suite in torch's wheel, as far as gloo does; `tests/torch_suite/run.py` runs it.

Some minutes for each world size: only with ``NVCOLL_TORCH_SUITE=1``.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "torch_suite"
LIMIT_S = 1500
"""How long a world size may take. Chosen: six times what it takes on two cores."""

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.skipif(os.environ.get("NVCOLL_TORCH_SUITE") != "1", reason="minutes: set NVCOLL_TORCH_SUITE=1"),
    pytest.mark.timeout(LIMIT_S + 60),
]


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_nvcoll_passes_what_gloo_passes(world_size):
    baseline = FOLDER / "gloo-2.15.0.tsv"
    command = [FOLDER / "run.py", "--backend", "nvcoll", "--world-size", world_size, "--baseline", baseline]
    done = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
