"""Tests lie in folders by what they test, and CONTRIBUTING.md names each folder."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_no_test_lies_outside_a_folder():
    assert [path.name for path in TESTS.glob("*.py")] == ["conftest.py"]


def test_every_folder_is_in_the_table():
    page = (TESTS.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = page.partition("## Where is the test of X")[2].partition("\n## ")[0]
    named = {name for row in re.findall(r"^\| (`.*?) \|", table, re.M) for name in re.findall(r"`(\w+)`", row)}
    assert named - {"tests"} == {path.parent.name for path in TESTS.glob("*/*.py")}
