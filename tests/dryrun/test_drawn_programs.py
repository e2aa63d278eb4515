"""Programs of torch operators that are drawn: the virtual GPU gives the shapes and the values that a CPU gives."""

import json
import os

from dryrun_children import PATIENT, Children

pytestmark = PATIENT

PROGRAMS = max(200, int(os.environ.get("NVCOLL_EXAMPLES", "0")))
"""The night draws more: about 400 a second."""


def test_drawn_programs_have_the_shapes_and_values_of_a_cpu(tmp_path):
    [(out, run, _)] = Children(tmp_path).run("drawn_programs.py", str(PROGRAMS), "0")
    assert run.status == "counted", out
    counts = json.loads(next(line for line in out.splitlines() if line.startswith('{"programs"')))
    assert counts["wrong"] == [] and counts["operators"] > 6 * PROGRAMS
    assert 0 < counts["refused"] < counts["operators"] // 20, "few shapes follow from what does not exist"
