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


def test_every_program_that_a_page_or_a_script_names_is_there():
    root = TESTS.parent
    pages = [*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("data/*/*.md"), *root.glob(".ci/*")]
    named = {
        (page.relative_to(root).as_posix(), path)
        for page in pages
        if page.name != "CHANGELOG.md"
        for path in re.findall(r"(?<![\w/.-])(?:tests|tools|benches|examples)/[\w/]+\.py\b", page.read_text("utf-8"))
    }
    assert len(named) > 50
    assert [(page, path) for page, path in sorted(named) if not (root / path).is_file()] == []
