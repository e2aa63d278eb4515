"""Every Python program in the documentation runs when it is copied alone."""

import re
import runpy
from pathlib import Path

import pytest

from nvcoll._nvcoll import dtypes, ops
from nvcoll.cli import STATUSES
from nvcoll.text import environment

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md"))]


def programs(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


ALONE = [pytest.param(text, id=f"{page.stem}-{n}") for page in PAGES for n, text in enumerate(programs(page), 1)]


@pytest.mark.parametrize("program", ALONE)
def test_every_program_runs_alone(program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(program, {})


def test_the_pages_about_reproducibility_and_about_writing_algorithms_are_among_them():
    longest = {page.stem for page in PAGES if len(programs(page)) > 4}
    assert longest >= {"reproducibility", "writing-algorithms"}


def test_the_page_of_algorithms_is_what_the_registry_gives():
    maker = runpy.run_path(str(DOCS.parent / "tools" / "pages" / "algorithms.py"))
    assert (DOCS / "write" / "algorithms.md").read_text() == maker["page"](), "run: python tools/pages/algorithms.py"


def test_the_page_of_expected_numbers_is_what_predictions_give():
    maker = runpy.run_path(str(DOCS.parent / "tools" / "pages" / "expected.py"))
    assert (DOCS / "predict" / "expected.md").read_text() == maker["page"](), "run: python tools/pages/expected.py"


def test_the_page_of_json_is_what_the_schemas_say():
    maker = runpy.run_path(str(DOCS.parent / "tools" / "pages" / "schemas.py"))
    found, links = (DOCS / "reference" / "json.md").read_text(), maker["LINKS"].items()
    assert found == maker["page"](), "run: python tools/pages/schemas.py > docs/reference/json.md"
    assert all(f"[{words}]({link})" in found for words, link in links)


def test_environment_variables_are_those_of_the_table():
    page, root = (DOCS / "reference" / "environment.md").read_text(), DOCS.parent
    assert all(f"| `{row.name}` | {row.value} | {row.meaning} |" in page for row in environment.VARIABLES)
    folders = [root / "python", *(root / "rust").glob("*/src")]
    files = [file for folder in folders for ending in ("py", "rs") for file in folder.rglob(f"*.{ending}")]
    used = {name for file in files for name in re.findall(r"\"(NVCOLL_[A-Z_]+)\"", file.read_text())}
    names = [row.name for row in environment.VARIABLES] + list(environment.INTERNAL)
    assert used - {"NVCOLL_TEST_ALONE"} == set(names) and len(set(names)) == len(names)


def test_exit_statuses_are_those_of_the_command_line():
    page = (DOCS / "reference" / "exit-statuses.md").read_text()
    assert [int(status) for status in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)] == sorted(STATUSES)


def test_the_table_of_arithmetic_says_which_ops_every_dtype_has():
    text = (DOCS / "run" / "reproducibility.md").read_text()
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|.*\| ([^|]*) \|$", text, re.MULTILINE)
    said = {dtype: re.findall(r"`(\w+)`", has) for names, has in rows for dtype in re.findall(r"`(\w+)`", names)}
    for dtype in (row.name for row in dtypes()):
        assert said[dtype] == [row.name for row in ops() if dtype in row.dtypes], dtype
    first_cells = "".join(re.findall(r"^\| ([^|]*) \|", text, re.MULTILINE))
    assert [row.name for row in ops() if f"`{row.name}`" not in first_cells] == [], (
        "every op has a row that says what it means"
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target
