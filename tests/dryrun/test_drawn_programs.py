"""Functions of torch, and programs of them that are drawn: the virtual GPU gives shapes and values of a CPU."""

import json
import os

from dryrun_children import PATIENT, Children

pytestmark = PATIENT

PROGRAMS = max(200, int(os.environ.get("NVCOLL_EXAMPLES", "0")))
"""The night draws more: about 400 a second."""


def lines_of(tmp_path, script, *arguments):
    [(out, run, _)] = Children(tmp_path).run(script, *arguments)
    assert run.status == "counted", out
    return json.loads(next(line for line in out.splitlines() if line.startswith("{")))


def test_functions_and_their_gradients_have_the_values_of_a_cpu(tmp_path):
    counts = lines_of(tmp_path, "functions.py")
    assert counts["wrong"] == {} and counts["functions"] > 70


def test_drawn_programs_have_the_shapes_and_values_of_a_cpu(tmp_path):
    counts = lines_of(tmp_path, "drawn_programs.py", str(PROGRAMS), "0")
    assert counts["wrong"] == [] and counts["operators"] > 6 * PROGRAMS
    assert 0 < counts["refused"] < counts["operators"] // 20, "few shapes follow from what does not exist"
