"""``nvcoll run``: the script as python would run it, then the table."""

import json
import os
import subprocess
import sys

import pytest

SCRIPT = """
import sys
import numpy as np
import nvcoll
for _ in range(3):
    nvcoll.Node(4).all_reduce(np.ones((4, 256), dtype="f4"), algorithm="ring")
"""

SHOW = """
import json, sys
def annotated(x: int): ...
main = sys.modules["__main__"]
told = [sys.argv, sys.path[0], __name__, __file__, main.__file__, vars(main) is globals(), sys.flags.safe_path]
print(json.dumps([*told, sorted(globals()), str(annotated.__annotations__), annotated.__code__.co_filename]))
"""


def run(*arguments, status=0, cwd=None, python=(sys.executable, "-m", "nvcoll", "run")):
    done = subprocess.run([*python, *map(str, arguments)], capture_output=True, text=True, timeout=100, cwd=cwd)
    assert done.returncode == status, done.stderr
    return done


def script_of(tmp_path, text):
    script = tmp_path / "script.py"
    script.write_text(text)
    return script


def test_the_table_has_every_call_of_every_node_on_every_machine(tmp_path):
    found = tmp_path / "found.json"
    script = script_of(tmp_path, SCRIPT + "print('done')\n")
    text = run("--on", "hgx-h100,pcie4-8-staged", "--save", found, script).stdout
    assert text.startswith("done\n") and "\nhgx-h100  " in text and "\npcie4-8-staged  " in text
    document = json.loads(found.read_text())
    (row,) = document["calls"]
    assert (row["collective"], row["nbytes"], row["algorithm"], row["times"]) == ("all_reduce", 1024, "ring", 3)
    assert [total["machine"] for total in document["reports"]] == ["hgx-h100", "pcie4-8-staged"]


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["alone", "a rank"])
def test_the_script_sees_what_python_shows_it(tmp_path, options):
    script = script_of(tmp_path, SHOW)
    os.symlink(script, tmp_path / "link.py")
    (tmp_path / "elsewhere").mkdir()
    for arguments in ([script, "a", "-n", "3", "--on", "b", "-h"], ["../link.py"]):
        ours, theirs = (
            json.loads(run(*arguments, cwd=tmp_path / "elsewhere", python=python).stdout.splitlines()[0])
            for python in ((sys.executable, "-m", "nvcoll", "run", *options), (sys.executable,))
        )
        assert ours == theirs


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("sys.exit()", 0),
        ("sys.exit(7)", 7),
        ("sys.exit(256 + 5)", 5),
        ("sys.exit('it is over')", 1),
        ("raise KeyError('lost')", 1),
        ("nvcoll.Node(0)", 1),
        ("def broken(:", 1),
    ],
)
def test_status_and_traceback_are_those_of_python_and_the_table_comes_after(tmp_path, end, status):
    script = script_of(tmp_path, SCRIPT + end + "\n")
    ours, theirs = run(script, status=status), run(script, status=status, python=(sys.executable,))
    assert ours.stderr == theirs.stderr
    assert f"of {script.name} would cost\n" in ours.stdout


def test_an_interrupted_script_has_its_table(tmp_path):
    text = run(script_of(tmp_path, SCRIPT + "raise KeyboardInterrupt\n"), status=130)
    assert "all_reduce" in text.stdout and text.stderr.rstrip().endswith("KeyboardInterrupt")


def test_calls_of_threads_that_outlive_the_script_are_in_the_table(tmp_path):
    late = "import threading, time\ndef late():\n    time.sleep(0.3)\n    nvcoll.Node(2).scan(np.ones((2, 4)))\n"
    assert "scan" in run(script_of(tmp_path, SCRIPT + late + "threading.Thread(target=late).start()\n")).stdout


def test_a_script_that_makes_no_collective_is_told_so(tmp_path):
    lines = run(script_of(tmp_path, "print(1)\n")).stdout.splitlines()
    assert lines[-2] == "no collectives were made" and "not validated" not in lines
    assert lines[-1].startswith("note        nvcoll run sees the collectives of nvcoll only")


def test_json_stands_behind_the_output_of_the_script_and_no_file_is_called_dash(tmp_path):
    script = script_of(tmp_path, SCRIPT + "print('done')\n")
    text = run("--json", script, cwd=tmp_path).stdout
    assert text.startswith("done\n")
    assert json.loads(text.removeprefix("done\n"))["calls"][0]["times"] == 3
    assert "-" in run("--json", "-", cwd=tmp_path, status=2).stderr and not (tmp_path / "-").exists()


def test_nodes_without_ranks_are_named(tmp_path):
    script = script_of(tmp_path, SCRIPT.replace("Node(4)", "Node(8)").replace("(4, 256)", "(8, 256)"))
    text = run("--on", "hgx-h100x2+ib-ndr-8", script).stdout
    assert "note        hgx-h100x2+ib-ndr-8: 8 ranks fill 1 of 2 nodes, 1 node idle\n" in text
    assert "idle" not in run("--on", "hgx-h100[0-3]x2+ib-ndr-8", script).stdout
    assert "idle" not in run("--on", "hgx-h100", script).stdout


def test_a_machine_that_is_too_small_has_a_dash_and_the_reason(tmp_path):
    more = SCRIPT.replace("Node(4)", "Node(12)").replace("(4, 256)", "(12, 256)")
    text = run("--on", "hgx-h100,dgx2", script_of(tmp_path, more)).stdout
    of = {line.split()[0]: line.split() for line in text.splitlines() if line.startswith(("hgx-h100  ", "dgx2  "))}
    assert of["hgx-h100"][1:] == ["-"] * 3 and float(of["dgx2"][1]) > 0 and of["dgx2"][-1] == "1.00x"
    assert "3 calls without an answer, not in the total: hgx-h100 has 8 GPUs" in text
    assert "accuracy    hgx-h100," not in text and "accuracy    dgx2," in text


def test_a_forked_child_prints_no_report(tmp_path):
    fork = "import os\nchild = os.fork()\nif child:\n    os.waitpid(child, 0)\nprint('parent' if child else 'child')\n"
    text = run(script_of(tmp_path, SCRIPT + fork)).stdout
    assert text.count("would cost") == 1 and text.count("child\n") == 1 and text.count("parent\n") == 1


@pytest.mark.parametrize(("end", "status"), [("", 0), ("sys.exit(7)", 7), ("raise KeyError", 1)])
@pytest.mark.parametrize("close", ["sys.stdout.close()", "import os; os.close(1)"])
def test_a_script_that_closes_its_output_has_its_table_and_keeps_its_status(tmp_path, close, end, status):
    done = run(script_of(tmp_path, f"{SCRIPT}{close}\n{end}\n"), status=status)
    assert "would cost" in done.stdout and done.stderr.count("Traceback") == (end == "raise KeyError")


def test_an_option_behind_the_script_is_the_scripts_and_that_is_said(tmp_path):
    script = script_of(tmp_path, SCRIPT)
    text = run(script, "--on", "hgx-a100", "--deep").stdout
    assert "note        --on went to the script: options of nvcoll run stand before it" in text
    assert "hgx-a100" not in text and "went to the script" not in run(script, "--deep").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.py"], "nowhere.py"),
        (["--on", "hgx-h900", "nowhere.py"], "hgx-h900"),
        (["--gpu", "h200", "nowhere.py"], "`gpu` is for files"),
        (["--launch", "slowly", "nowhere.py"], "no launch is called `slowly`"),
        (["--save", "no/such/folder.json", __file__], "no/such/folder.json"),
        ([], "script"),
    ],
)
def test_what_cannot_be_run_is_one_line(arguments, message):
    error = run(*arguments, status=2).stderr
    assert message in error.lower() and len(error.splitlines()) == 1
