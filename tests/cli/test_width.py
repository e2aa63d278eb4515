"""What commands print fits the terminal: no line is longer than its columns."""

import os

import pytest
from command_line import file_of_mine, run

from nvcoll.text.tables import fitted, labelled

CLUSTERS = "hgx-h100x4+ib-ndr-8,rtx4090-8-stagedx2+ib-ndr-8"

SCRIPT = """
import numpy as np
import nvcoll
nvcoll.Node(4).all_reduce(np.ones((4, 256), dtype="f4"), algorithm="two_level(outer=halving_doubling)")
nvcoll.Node(4).scan(np.ones((4, 256), dtype="f4"))
nvcoll.Node(16).all_reduce(np.ones((16, 256), dtype="f4"))
"""


def printed(columns, *arguments):
    return run(*arguments, env={**os.environ, "COLUMNS": str(columns)})[0].splitlines()


@pytest.mark.parametrize("columns", [80, 60])
@pytest.mark.parametrize(
    "arguments",
    [
        ("bench", "-n", "3", "-b", "1K", "-e", "1M", "-f", "4", "--rounds", "2"),
        ("bench", "-n", "2", "-b", "1K", "--rounds", "1", "-a", "auto"),
        ("compare", "--on", f"hgx-h100,{CLUSTERS}", "-b", "1K", "-e", "16M", "-f", "16"),
        ("predict", "all_reduce", "-b", "1G", "--on", f"hgx-h100,{CLUSTERS}"),
        ("predict", "all_reduce", "-b", "1M", "-e", "1G", "-f", "8", "--on", CLUSTERS),
        ("plan", "llama3-8b", "--tp", "2", "--pp", "2"),
        ("plan", "llama3-8b", "--on", f"hgx-h100,{CLUSTERS}", "--zero", "3", "--dollars-per-gpu-hour", "2"),
        ("plan", "llama3-8b", "--sweep", "--pp", "1"),
        ("algorithms",),
        ("explain", "all_reduce", "-n", "4"),
        ("info",),
        ("fabric",),
        ("fabric", "dgx1-v100"),
        ("fabric", "dgx2[0-8]x2+ib-edr-4"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_no_line_is_longer_than_the_terminal(columns, arguments):
    lines = printed(columns, *arguments)
    assert len(lines) > 4 and [line for line in lines if len(line) > columns] == []


def test_no_line_of_the_report_of_a_script_is_longer_than_the_terminal(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    lines = printed(80, "run", "--on", f"hgx-h100,dgx2,{CLUSTERS}", str(script))
    assert [line for line in lines if len(line) > 80] == []
    heads = [line for line in lines if line.startswith("collective ")]
    assert len(heads) >= 2 and " hgx-h100 " in heads[0] and heads[0].endswith(" dgx2"), "two machines in a table"


def test_a_pipe_has_no_width(tmp_path):
    text = run("compare", "--on", "hgx-h100", "-b", "1K")[0]
    assert "two_level(outer=halving_doubling)" in text and "left out" not in text


def test_columns_that_are_left_out_are_named_and_those_that_matter_stay(tmp_path):
    lines = printed(80, "predict", "all_reduce", "-b", "1G", "--on", "hgx-h100,hgx-a100")
    head = next(line for line in lines if line.startswith("machine"))
    assert all(name in head for name in ("machine", "NCCL picks", "time", "90 % interval", "vs best"))
    assert any("left out: description" in line for line in lines)


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (("compare", "ring,tree", "--on", "hgx-h100", "-b", "1M", "-e", "4M"), ["ring", "tree"]),
        (("predict", "all_reduce", "-b", "1G", "--on", "hgx-h100,rtx4090-8-staged"), ["90 % interval", "vs best"]),
        (("plan", "llama3-8b", "--on", "hgx-h100,hgx-a100", "--zero", "3"), ["MFU", "vs best"]),
        (("fabric",), ["8 x H100, PCIe 5"]),
    ],
    ids=["compare", "predict", "plan", "fabric"],
)
def test_a_narrow_table_keeps_what_was_asked(columns, arguments, asked):
    text = "\n".join(printed(columns, *arguments))
    kept, _, _ = text.partition("(column")
    assert [words for words in asked if words not in kept.replace("\n", " ")] == []


def test_a_last_column_of_text_is_wrapped_before_a_column_is_left_out():
    rows = [["a", "1", "one two three four five six seven eight nine"]]
    found = list(fitted(["name", "n", "text"], rows, left=["name", "text"], optional=["n"], width=40))
    assert found == ["name  n  text", "a     1  one two three four five six", "         seven eight nine"]


def test_every_cell_of_a_turned_table_is_there():
    headings = ["size", "a long heading", "another"]
    rows = [[f"{size} KiB", f"{size}.5 microseconds and a half", f"{size}%"] for size in range(20)]
    lines = list(fitted(headings, rows, width=40))
    assert max(map(len, lines)) <= 40 and lines[0].startswith("size  ")
    words = " ".join(lines).split()
    assert all(cell.split()[0] in words for row in rows for cell in row)
    assert list(fitted(headings, rows, width=80))[1].split()[:3] == ["0", "KiB", "0.5"]


def test_the_least_important_columns_go_first_and_only_as_many_as_needed():
    headings, rows = ["name", "x" * 20, "y" * 20, "z"], [["a", "1", "2", "3"]]
    optional = ["x" * 20, "y" * 20]
    assert next(iter(fitted(headings, rows, optional=optional, width=60))).split() == headings
    head, row, *note = fitted(headings, rows, optional=optional, width=40)
    assert head.split() == ["name", "y" * 20, "z"] and row.split() == ["a", "2", "3"]
    assert (
        " ".join(note).split()
        == f"(column left out: {'x' * 20}; the terminal is 40 characters wide, `| cat` shows all)".split()
    )


def test_a_sentence_is_indented_behind_its_label():
    assert list(labelled("note", "one two three four five six seven eight", 40)) == [
        "note        one two three four five six",
        "            seven eight",
    ]
    assert list(labelled("note", "one", 40)) == ["note        one"]


def test_a_word_that_is_wider_than_the_terminal_is_broken(tmp_path):
    mine = file_of_mine(tmp_path)
    lines = printed(60, "bench", "-n", "2", "-b", "1K", "--rounds", "1", "-a", f"{mine}:ring")
    assert max(map(len, lines)) <= 60
