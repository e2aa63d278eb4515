"""The gate of predictions: a figure that moved is printed, and fails unless a commit gives the reason."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "prices.py"
COMMAND = "predict all_reduce -b 1G --on hgx-h100"
AUTHOR = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "NVCOLL_"))} | AUTHOR

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(folder, *arguments):
    subprocess.run(["git", *arguments], cwd=folder, env=ENVIRONMENT, check=True, capture_output=True, timeout=60)


def judged(file, *arguments):
    command = [sys.executable, str(TOOL), "--file", str(file), *arguments]
    run = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=120)
    assert not run.stderr
    return run.returncode, run.stdout


def commit(file, message):
    git(file.parent, "add", ".")
    git(file.parent, "commit", "--quiet", "--allow-empty", "-m", message)


def made_other(file, factor):
    """Writes another time than nvcoll predicts, as if a constant had changed since."""
    lines = file.read_text().splitlines()
    name, time = lines[-1].split()
    file.write_text("\n".join([*lines[:-1], f"    {name} {float(time) * factor:.6g}"]) + "\n")


@pytest.fixture
def file(tmp_path):
    """A repository whose only command is priced."""
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch", "main")
    (folder / "constants.txt").write_text("first")
    (folder / "prices.txt").write_text(f"# Collectives\n{COMMAND}\n")
    assert judged(folder / "prices.txt", "--write")[0] == 0
    commit(folder / "prices.txt", "First prices")
    return folder / "prices.txt"


def test_prices_that_did_not_move_pass(file):
    commit(file, "Another change")
    status, text = judged(file)
    assert status == 0 and "no figure moved" in text


def test_a_figure_that_moved_is_printed_and_needs_a_reason(file):
    made_other(file, 0.9)
    commit(file, "Base")
    git(file.parent, "checkout", "--quiet", "-b", "mine")
    (file.parent / "constants.txt").write_text("changed")
    status, text = judged(file)
    assert status == 1 and "prices.txt is not what nvcoll predicts" in text
    assert COMMAND in text and "hgx-h100/1073741824/time_us" in text and "1.1111" in text

    status, text = judged(file, "--write")
    assert status == 0 and "on a line `Prices-move: REASON`" in text
    commit(file, "A change without a word")
    status, text = judged(file)
    assert status == 1 and "1.1111" in text and "is not what nvcoll predicts" not in text

    commit(file, "A word\n\nPrices-move: the switch folds\n")
    status, text = judged(file)
    assert status == 0 and "1.1111" in text and "announced: the switch folds" in text


def test_a_small_move_is_printed_and_needs_no_reason(file):
    made_other(file, 0.99)
    commit(file, "Base")
    judged(file, "--write")
    commit(file, "A change without a word")
    status, text = judged(file)
    assert status == 0 and "1.0101" in text


def test_a_figure_that_is_gone_needs_a_reason_and_a_new_one_does_not(file):
    file.write_text(file.read_text() + "predict broadcast -b 1M --on hgx-h100\n")
    assert judged(file)[0] == 1, "a command has no figures yet"
    judged(file, "--write")
    commit(file, "One more command")
    assert judged(file)[0] == 0
    file.write_text("\n".join(file.read_text().splitlines()[:-2]) + "\n")
    commit(file, "One command less")
    status, text = judged(file)
    assert status == 1 and "none" in text


def test_a_shallow_clone_compares_what_its_tree_has(file, tmp_path):
    commit(file, "Another change")
    git(tmp_path, "clone", "--quiet", "--depth", "1", f"file://{file.parent}", "shallow")
    shallow = tmp_path / "shallow" / "prices.txt"
    status, text = judged(shallow)
    assert status == 0 and "beside prices.txt of this tree" in text
    made_other(shallow, 0.9)
    assert judged(shallow)[0] == 1
