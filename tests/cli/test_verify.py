"""`nvcoll verify`, `show` and `explain` of names, files and texts, and the commands that a violation prints."""

import os
import shlex

import pytest
from command_line import refused, run

import nvcoll


def test_verify_proves_names_files_and_text(mine, tmp_path):
    assert "proved" in run("verify", "all_reduce", "ring", "-n", "5")[0]
    assert "every element is (r0 + r1 + r2)" in run("verify", "all_reduce", "nvswitch", "-n", "3")[0]
    assert "order    own, of each chunk:" in run("verify", "all_reduce", "ring", "-n", "3")[0]
    assert "at the last rank every element is (r0 + r1)" in run("verify", "exscan", "-n", "3")[0]
    assert "order    none, chunks are copied:\nchunk 0  r1\n" in run("verify", "scatter", "-n", "3", "--root", "1")[0]
    assert "proved" in run("verify", f"{mine}:ring", "-n", "4", "--path", "staged", "--out-of-place")[0]
    text = tmp_path / "ring.txt"
    text.write_text(run("show", "all_reduce", "ring", "-n", "3", "--path", "staged")[0])
    assert "proved   all_reduce ring, 3 ranks, staged" in run("verify", str(text))[0]


def test_a_collective_beside_a_file_is_refused(mine):
    assert "is a whole algorithm: leave out `all_gather`" in refused("show", "all_gather", f"{mine}:ring")
    assert f"`{mine}:ring` is a whole algorithm: leave out `ring`" in refused("verify", f"{mine}:ring", "ring")


def test_what_moves_no_data_is_explained_in_a_sentence():
    text = run("explain", "barrier")[0]
    assert "auto chooses direct: it is the only algorithm, and no data is moved" in text
    assert run("show", "barrier")[0]


def test_a_violation_names_both_steps_what_is_missing_and_a_command_that_shows_them(tmp_path):
    text = tmp_path / "racy.txt"
    ring = run("show", "all_reduce", "ring", "-n", "2", "--path", "mapped")[0]
    text.write_text(ring.replace("after r1.enter r1.q0.0", "after r1.enter"))
    refuted = run("verify", str(text), status=1)[0].splitlines()
    assert [line.split()[0] for line in refuted] == ["refuted", "step", "step", "missing", "show"]
    assert refuted[1].split()[1] == "r0.q1.0" and refuted[2].split()[1] == "r1.q0.0"
    assert refuted[3].split()[1:] == ["r0.q1.0", "after", "r1.q0.0"]
    shown = run_printed(refuted[4])
    assert all(line.split(maxsplit=1)[1] in " ".join(shown.split()) for line in refuted[1:3])


@pytest.mark.parametrize(
    "options", [(), ("--path", "staged"), ("--out-of-place",), ("--path", "staged", "--out-of-place")]
)
def test_the_command_that_a_violation_prints_works_when_typed(mine, options):
    refuted = run("verify", f"{mine}:lazy", "-n", "3", *options, status=1)[0].splitlines()
    assert [line.split()[0] for line in refuted] == ["refuted", "step", "missing", "show"]
    assert refuted[2].endswith("the contributions of r1, r2")
    step = refuted[1].split(maxsplit=1)[1]
    assert step in " ".join(run_printed(refuted[3]).split())


def run_printed(line):
    label, program, *arguments = shlex.split(line)
    assert (label, program) == ("show", "nvcoll")
    return run(*arguments)[0]


def test_the_commands_that_verify_and_bench_print_keep_the_parameters(mine):
    refuted = run("verify", f"{mine}:grouped(per_node=2, missing=1)", "-n", "4", status=1)[0].splitlines()
    assert "grouped(per_node=2,missing=1)" in run_printed(refuted[-1]).splitlines()[0]
    stdout, stderr = run("bench", "-n", "4", "-b", "1K", "-a", f"{mine}:grouped(per_node=2, missing=1)", status=1)
    command = shlex.split(stderr.splitlines()[-1].removeprefix("nvcoll: see "))
    assert stdout == "" and command[0] == "nvcoll", "what is refuted is not timed"
    why = run(*command[1:], status=1)[0]
    assert "refuted" in why and "grouped(per_node=2,missing=1)" in why


def test_the_command_that_says_why_names_the_root(tmp_path):
    file = tmp_path / "rooted.py"
    file.write_text('import nvcoll\n@nvcoll.algorithm("broadcast")\ndef lazy(b):\n    pass\n')
    stderr = run("bench", "broadcast", "-n", "3", "-b", "1K", "-r", "1", "-a", f"{file}:lazy", status=1)[1]
    command = shlex.split(stderr.splitlines()[-1].removeprefix("nvcoll: see "))
    assert command[-2:] == ["--root", "1"]
    assert "it must be r1" in run(*command[1:], status=1)[0]


def test_show_prints_before_and_after_lowering_with_dependencies_and_draws(tmp_path):
    file = tmp_path / "ring.svg"
    before, stderr = run("show", "all_reduce", "ring", "-n", "3", "--svg", str(file))
    after, pushed = (run("show", "all_reduce", "ring", "-n", "3", "--path", path)[0] for path in ("staged", "pushed"))
    assert "path mapped" in before and "path staged" in after and "staging0[r" in after and "staging" not in before
    assert "path pushed" in pushed
    assert "after r0.enter r0.q1.1" in before and "@2" in after
    assert before.endswith("waits 5 on the longest chain\n")
    assert file.read_text().count('class="step"') == 12 and str(file) in stderr


def test_a_terminal_that_knows_only_ascii_gets_question_marks():
    text, _ = run("verify", "all_reduce", "ring", "-n", "128", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert "(? r0 + r1" in text


def test_a_long_expression_is_shortened():
    assert max(map(len, run("verify", "all_reduce", "ring", "-n", "128")[0].splitlines())) < 200


def test_show_and_verify_take_a_root():
    shown = run("show", "broadcast", "direct", "-n", "3", "--root", "2")[0]
    assert "output[r0].0 = input[r2].0" in shown and "root 2" in shown
    proved = run("verify", "gather", "-n", "5", "--root", "3")[0]
    assert "gather direct, 5 ranks, root 3, mapped, in place" in proved
    assert "all_reduce has no root" in refused("verify", "all_reduce", "--root", "3")


def test_explain_says_when_the_tuning_table_is_of_another_processor():
    text = run("explain", "all_reduce", "-n", "2", "-b", "4K")[0]
    tuned, cpu = nvcoll.Node(1).tuning["machine"], nvcoll._nvcoll.machine()["cpu"]
    is_own = cpu is not None and str(tuned).startswith(f"{cpu},")
    assert ("note        the tuning table is of another CPU" in text) == (not is_own)
