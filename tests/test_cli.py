"""The command line, as a user types it."""

import json
import subprocess
import sys

import pytest

PROGRAM = [sys.executable, "-c", "from nvcoll.cli import main; main()"]


def nvcoll(*arguments, status=0):
    done = subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, timeout=100)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_bare_it_says_what_there_is_and_three_things_to_try():
    text = nvcoll()
    assert len(text.splitlines()) == 8 and text.count("nvcoll ") >= 5


def test_bench_prints_every_algorithm_beside_numpy_and_the_roofline_and_nothing_is_wrong():
    text = nvcoll("bench", "all_reduce", "-n", "3", "-b", "4K", "--rounds", "2")
    assert all(word in text for word in ("nvswitch", "ring", "tree", "numpy", "roofline", "why", "bits", "#wrong"))
    rows = json.loads(nvcoll("bench", "-n", "2", "-b", "1000", "--rounds", "2", "--json"))["rows"]
    assert rows[0]["wrong"] == 0 and len(rows[0]["seconds"]["ring"]) == 2


def test_bench_in_the_columns_of_nccl_tests():
    lines = nvcoll("bench", "-n", "2", "-b", "4K", "--rounds", "2", "--nccl").splitlines()
    data = [line for line in lines if not line.startswith("#")]
    assert len(data) == 1 and data[0].split()[:5] == ["4096", "1024", "float", "sum", "-1"]


def test_verify_proves_a_name_and_refutes_a_file(tmp_path):
    assert "proved" in nvcoll("verify", "all_reduce", "ring", "-n", "5")
    file = tmp_path / "mine.py"
    file.write_text(
        "import nvcoll\n"
        '@nvcoll.algorithm("all_reduce")\n'
        "def lazy(b):\n"
        "    b.copy(b.input(0, 0), into=[b.output(r, 0) for r in range(b.world_size)])\n"
    )
    text = nvcoll("verify", f"{file}:lazy", "-n", "2", status=1)
    assert "refuted" in text and "nvcoll show" in text


def test_show_prints_before_and_after_lowering_and_draws(tmp_path):
    file = tmp_path / "ring.svg"
    text = nvcoll("show", "all_reduce", "ring", "-n", "3", "--svg", str(file))
    assert "path mapped" in text and "path staged" in text and "staging0[r" in text
    assert file.read_text().count('class="step"') == 12


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("verify", "all_reduce", "rong"), "choose from nvswitch"),
        (("bench", "all_reduce", "-b", "lots"), "is not a size"),
        (("verify", "nothing.py:f"), "is not a file"),
        (("verify",), "name a collective"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_status_2(arguments, message):
    assert message in nvcoll(*arguments, status=2)
