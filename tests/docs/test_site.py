"""The site of the documentation: it is built without warnings, its search finds every page, it uses no network."""

import importlib
import json
import re
from pathlib import Path

import pytest

commands = pytest.importorskip("mkdocs.commands.build")
config = pytest.importorskip("mkdocs.config")
ROOT = Path(__file__).parents[2]
REFERENCE = "nvcoll", "nvcoll.testing", "nvcoll.training"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    commands.build(config.load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True))
    return folder


def test_search_finds_every_page(site):
    entries = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    found = {entry["location"].partition("#")[0] for entry in entries}
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "CONTRIBUTING.md"]
    assert found >= {f"{page.relative_to(ROOT).with_suffix('')}/" for page in pages} | {""}
    assert any(entry["title"] == "GB200 NVL72" and "all_to_all" in entry["text"] for entry in entries)


def test_no_page_loads_anything_from_the_network(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        loaded = re.findall(r"<(?:script|img|iframe)[^>]*\ssrc=\"?([^\"\s>]+)", page.read_text())
        loaded += re.findall(r"<link[^>]*rel=\"?(?:stylesheet|preconnect)[^>]*", page.read_text())
        assert loaded and not [one for one in loaded if "//" in one], page


def test_every_public_name_is_in_the_reference_with_what_it_says_and_search_finds_it(site):
    entries = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    found = {entry["location"].partition("#")[2]: entry["text"] for entry in entries}
    names = [f"{module}.{name}" for module in REFERENCE for name in importlib.import_module(module).__all__]
    names.remove("nvcoll.__version__")
    assert [name for name in names if not found.get(name)] == []
    assert {"nvcoll.Node.all_reduce", "nvcoll.Communicator.all_reduce", "nvcoll.Fabric.predict"} <= set(found)


def test_every_page_is_in_the_navigation(site):
    named = set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    assert named >= {page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").rglob("*.md")}


def test_the_page_of_expected_numbers_loads_its_search_box_and_each_machine_is_a_row_that_it_finds(site):
    page = (site / "docs" / "predict" / "expected" / "index.html").read_text()
    assert (site / "docs" / "table-search.js").is_file()
    assert re.search(r"<script src=\"?[./]*/table-search.js", page) and 'id="table-search"' in page
    tables = re.findall(r"<th>machine</th>\s*<th>collective</th>(.*?)</table>", page, re.DOTALL)
    found = {name for table in tables for name in re.findall(r"<td><code>(.*?)</code>", table)}
    assert {"mi325x-8", "mi250x-8", "h200-nvl-8-bridge", "rtx6000d-8-p2p", "gb10-1x2+roce-100-2"} <= found
