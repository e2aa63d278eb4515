"""Types of the extension: names that are misspelt are errors for mypy, before a program runs."""

import ast
import inspect
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from nvcoll import _nvcoll

PROGRAM = """
import numpy as np
import nvcoll

x = np.zeros((2, 3), dtype="f4")
node = nvcoll.Node(2)
node.all_reduce(x, "sum", path="mapped")
nvcoll.fabric("hgx-h100").predict("all_reduce", 8, launch="framework")
nvcoll.predict("all_reduce", 8, on="hgx-h100").time_us
nvcoll.predict("all_reduce", [8, 16], on="hgx-h100")["time_us"]
"""

TYPOS = """
node.all_reduce(x, "summ")
node.all_reduce(x, root=1)
node.all_reduce(x, path="mappd")
nvcoll.fabric("hgx-h100").predict("all_reduce", 8).microseconds
nvcoll.predict("all_reduce", [8, 16], on="hgx-h100").time_us
"""


def test_typos_are_errors_of_types_and_correct_calls_are_not(tmp_path):
    if find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    file = tmp_path / "program.py"
    file.write_text(PROGRAM + TYPOS)
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), "--no-error-summary", str(file)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path).stdout
    first = PROGRAM.count("\n") + 2
    wrong = {
        int(line.split(":")[1]) for line in told.splitlines() if line.startswith("program.py:") and "error:" in line
    }
    assert wrong == set(range(first, first + len(TYPOS.split("\n")) - 2)), told


def test_static_methods_have_their_own_words_in_the_stub():
    stub = ast.parse(Path(_nvcoll.__file__).with_name("_nvcoll.pyi").read_text())
    classes = [one for one in stub.body if isinstance(one, ast.ClassDef)]
    methods = [(of, one) for of in classes for one in of.body if isinstance(one, ast.FunctionDef)]
    static = [
        (of, one) for of, one in methods if "staticmethod" in [getattr(by, "id", "") for by in one.decorator_list]
    ]
    for of, one in static:
        if one.name.startswith("_"):
            continue  # the stub has no words for what is not public
        assert ast.get_docstring(one) == inspect.getdoc(getattr(getattr(_nvcoll, of.name), one.name)), one.name
    assert len(static) > 5
