"""``nvcoll serve --sweep`` and its page: values of options, the Pareto front, and that a browser draws it."""

import json
import re

import pytest
from command_line import cli, refused
from planned_page import CHROMIUM, Reader, browse

from nvcoll.serving import layouts
from nvcoll.serving.report import pareto

SWEEP = ("serve", "llama3-8b", "--on", "hgx-h100,l40s-8-p2p", "--pp", "1", "--sweep", "concurrency=1,4,16")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "servers.html"
    cli(*SWEEP, "--dollars-per-gpu-hour", "2", "--html", str(path))
    return path


def specs(text: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="specs">(.*?)</script>', text, re.DOTALL)[1])


def test_each_value_of_a_sweep_has_a_row_of_its_best_layout():
    rows = [line.split() for line in cli(*SWEEP).stdout.splitlines() if line.startswith(("hgx-", "l40s-"))]
    at = cli(*SWEEP).stdout.splitlines()[2].split().index("requests")
    assert at == 2 and len(rows) == 6
    assert [row[0] for row in rows] == 3 * ["hgx-h100"] + 3 * ["l40s-8-p2p"]


def test_options_of_a_sweep_combine():
    words = (
        "serve",
        "llama3-8b",
        "--tp",
        "1",
        "--sweep",
        "n=1,2",
        "--sweep",
        "in=512,1024",
        "--sweep",
        "precision=bf16,fp8",
    )
    found = json.loads(cli(*words, "--pp", "1", "--json").stdout)["found"]
    assert {(one["gpus"], one["load"]["input"], one["precision"]) for one in found} == {
        (gpus, tokens, weights) for gpus in (1, 2) for tokens in (512, 1024) for weights in ("bf16", "fp8")
    }


def test_nothing_beats_what_is_on_the_front():
    found = [one for load in (1, 8, 64) for one in layouts("llama3-8b", on="hgx-h100", concurrency=load, pp=1)[0]]
    front = pareto(found)
    for one in found:
        beaten = any(
            other.tpot_s <= one.tpot_s and other.tokens_per_second >= one.tokens_per_second
            for other in front
            if other is not one
        )
        assert beaten != (one in front)


def test_fewer_requests_than_servers_leave_servers_idle():
    found, _ = layouts("llama3-8b", on="hgx-h100", concurrency=1, pp=1)
    alone = {one.words: one for one in found}
    assert 8 * alone["TP 1, x 8"].tokens_per_second == pytest.approx(1 / alone["TP 1, x 8"].tpot_s, rel=0.1)
    assert found[0].words == "TP 8"


def test_the_page_has_all_layouts_and_the_first_in_detail(page):
    text = page.read_text()
    reader = Reader(text)
    found = json.loads(cli(*SWEEP, "--json").stdout)["found"]
    points = specs(text)["servers"]["data"]["values"]
    assert len(points) == len(found) and {one["machine"] for one in points} == {"hgx-h100", "l40s-8-p2p"}
    assert [one["is_best"] for one in points] == [one["is_on_front"] for one in found]
    assert [one["is_chosen"] for one in points] == [True] + [False] * (len(found) - 1)
    assert sum(tag == "tr" for tag, _ in reader.elements) > len(found)
    assert "dollars a million tokens" in reader.text and "First token (TTFT)" in reader.text
    assert [url for url in reader.loads if re.match(r"(https?:)?//", url or "")] == []


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH: a browser draws the page")
@pytest.mark.parametrize("width", [500, 1280])
def test_a_browser_draws_both_charts_and_sorts(page, width):
    probe = """<script>setTimeout(() => {
      const table = document.querySelector("table.sortable"), head = [...table.tHead.rows[0].cells];
      const at = head.findIndex((one) => one.textContent === "TPOT");
      const values = () => [...table.tBodies[0].rows].map((row) => Number(row.cells[at].dataset.value));
      head[at].querySelector("button").click();
      const up = values();
      head[at].querySelector("button").click();
      const boxes = [...document.querySelectorAll("[data-chart]")];
      const charts = boxes.map((box) => box.querySelectorAll("svg path").length);
      const found = { up, down: values(), charts, width: document.documentElement.scrollWidth };
      document.body.innerHTML = `<pre id="found">${JSON.stringify(found)}</pre>`;
    }, 3000);</script>"""
    path = page.with_name(f"probe-{width}.html")
    path.write_text(re.sub(r'<meta http-equiv="Content-Security-Policy".*?>', "", page.read_text()) + probe)
    done = browse(path, f"--window-size={width},3000", "--dump-dom")
    found = json.loads(re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)[1])
    assert found["up"] == sorted(found["up"]) and found["down"] == sorted(found["up"], reverse=True)
    assert len(found["charts"]) == 2 and min(found["charts"]) >= 8 and found["width"] <= width
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--sweep", "speed=1,2"), "--sweep speed=1,2: pass NAME=VALUE,VALUE with a name of concurrency"),
        (("--sweep", "concurrency"), "pass NAME=VALUE,VALUE"),
        (("--sweep", "concurrency=1,many"), "`concurrency` takes numbers"),
        (("--sweep", "precision=fp8,fp6"), "--precision fp6 is unknown"),
        (("--sweep", "rate=1,2", "--concurrency", "4"), "pass one of them"),
    ],
)
def test_a_sweep_that_cannot_be_is_refused(words, says):
    assert says in refused("serve", "llama3-8b", *words)
