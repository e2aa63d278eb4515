"""The page of a planned step: what it says, that it loads nothing, and that a browser draws it."""

import json
import re
import sys

import planned_page
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planned_page import CHROMIUM, FACTS, Reader, browse, inputs, one_f_one_b

import nvcoll
from nvcoll.draw import machine_drawing
from nvcoll.training.communication import traffic
from nvcoll.training.page import page, timed

EVIL = "</script><script>alert(1)</script><img src=https://x.example/a.png onerror=alert(2)>{{ 7*7 }}'\""

WIDTHS = (375, 1280)

CHARTS = ("time", "timeline", "memory", "sweep")


@pytest.fixture(scope="module")
def whole() -> str:
    given = inputs()
    machine = machine_drawing.svg(nvcoll.fabric("hgx-h100x64+ib-ndr-8"))
    timeline = one_f_one_b(4, 64, 0.0655, 0.1381)
    return page("llama3-70b on 512 H100", **given, timeline=timeline, machine_svg=machine, facts=FACTS)


def specs(text: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="specs">(.*?)</script>', text, re.DOTALL)[1])


def test_the_headline_has_step_interval_tokens_mfu_and_memory(whole):
    text = Reader(whole).text
    assert "Step 14.7 s 90 %: 12.4 s to 16.6 s" in text
    assert "Tokens per second and GPU 1,114" in text
    assert "MFU 49.6 % 491 TFLOP/s per GPU" in text
    assert "63.0 GB of 80 GB: fits" in text
    for name, value in FACTS:
        assert f"{name} {value}" in text


def test_every_part_of_the_time_is_a_row_with_seconds_and_share(whole):
    text = Reader(whole).text
    for row in ("matrix products 9.72 s 66.1 %", "attention 1.32 s 9.0 %", "pipeline bubble 620 ms 4.2 %"):
        assert row in text
    rows = specs(whole)["time"]["data"]["values"]
    assert [row["seconds"] for row in rows] == list(inputs()["price"]["parts"].values())


def test_memory_traffic_and_sweep_are_tables(whole):
    text = Reader(whole).text
    assert "activations 41.9 31.4 10.5" in text and "logits and loss – – 2.6" in text
    assert "all 63.0 51.9 32.5" in text
    assert "tensor 8 GPUs of one node 1,374 4.22 s 29 % 5.2 %" in text
    best = min((one for one in inputs()["sweep"] if one["fit"] != "too_large"), key=lambda one: one["seconds"])
    assert best["layout"].replace("  ", ", ") in text
    tables = [attrs for tag, attrs in Reader(whole).elements if tag == "th"]
    assert tables and all("scope" in attrs for attrs in tables)


def test_a_page_loads_nothing_and_allows_only_its_own_scripts(whole):
    reader = Reader(whole)
    assert [url for url in reader.loads if re.match(r"(https?:)?//", url or "")] == []
    assert not [tag for tag, _ in reader.elements if tag in ("link", "iframe", "object", "embed", "base")]
    policy = next(attrs["content"] for tag, attrs in reader.elements if attrs.get("http-equiv"))
    assert policy.startswith("default-src 'none'") and policy.count("sha256-") == 2
    assert "'unsafe-inline'" not in policy.split("script-src")[1]
    assert ("html", {"lang": "en"}) in reader.elements
    assert any(attrs.get("name") == "viewport" for _, attrs in reader.elements)


def evil_page() -> str:
    given = inputs()
    price, step = given["price"], given["step"]
    for role, other in zip(price["roles"], step["roles"], strict=True):
        role["name"] = other["name"] = f"{role['name']} {EVIL}"
        role["memory"][EVIL] = 1e9
    price["parts"][EVIL] = 0.1
    price["collectives"][0]["group"] = price["collectives"][0]["ranks"] = EVIL
    price["extrapolated"] = [EVIL]
    sweep = [{**one, "layout": EVIL} for one in given["sweep"][:5]]
    timeline = one_f_one_b(2, 2, 0.1, 0.2)
    timeline["stages"] = [f"{EVIL} {stage}" for stage in range(2)]
    timeline["spans"][0]["name"] = EVIL
    return page(EVIL, price, step=step, sweep=sweep, timeline=timeline, facts=[(EVIL, EVIL)])


def test_names_of_users_are_words_and_nothing_else():
    reader = Reader(evil_page())
    assert EVIL in "".join(reader.words)
    assert not [attrs for tag, attrs in reader.elements if tag == "img" or "onerror" in attrs]
    assert sum(tag == "script" for tag, _ in reader.elements) == 3
    assert "49" not in reader.text.split("Where the time goes")[0].replace("49.6", "").replace("491", "")


def test_a_page_needs_no_more_than_a_price():
    text = Reader(page("a step", inputs()["price"])).text
    assert "Timeline" not in text and "Communication" not in text and "Other layouts" not in text


def test_the_pareto_front_has_what_nothing_beats_and_what_fits(whole):
    rows = specs(whole)["sweep"]["data"]["values"]
    usable = [row for row in rows if row["fit"] != "too_large"]
    for row in rows:
        beaten = any(
            other["seconds"] <= row["seconds"] and other["memory_gb"] <= row["memory_gb"] and other is not row
            for other in usable
        )
        assert row["is_best"] == (row["fit"] != "too_large" and not beaten)


def test_traffic_counts_repetitions_in_layers_micro_batches_and_once():
    given = inputs()
    found = {one.name: one for one in traffic(given["price"], given["step"])}
    tensor = 8 * 20 * 64
    assert found["tensor"].seconds == pytest.approx(tensor * 0.000412)
    assert found["tensor"].gb == pytest.approx(tensor * 0.134217728)
    assert found["data"].seconds == pytest.approx(0.319) and not found["data"].is_in_node
    assert found["tensor"].is_in_node and found["tensor"].exposed_s == given["price"]["parts"]["tensor"]


def test_a_price_that_lacks_a_field_is_refused():
    price = inputs()["price"]
    del price["low_s"]
    with pytest.raises(nvcoll.InvalidArgument, match="lacks `low_s`: pass"):
        page("a step", price)


@pytest.mark.parametrize("name", ["altair", "jinja2", "vl_convert"])
def test_a_missing_library_is_named_with_the_command_that_installs_it(monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "nvcoll.training.charts", raising=False)
    with pytest.raises(nvcoll.InvalidArgument, match=rf"{name}.*pip install 'nvcoll\[page\]'"):
        page("a step", inputs()["price"])


@given(st.floats(1e-9, 1e7))
@settings(max_examples=100)
def test_a_time_is_read_back_to_three_digits(seconds):
    number, unit = timed(seconds).replace(",", "").split()
    factor = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}[unit]
    assert float(number) * factor == pytest.approx(seconds, rel=6e-3)


browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH: a browser draws the page")

PROBE = """<!doctype html><body style="margin:0"><iframe id="frame" style="border:0;height:6000px;width:{width}px">
</iframe><pre id="found"></pre><script id="text" type="application/json">{text}</script><script>
const frame = document.getElementById("frame");
frame.addEventListener("load", () => setTimeout(() => {{
  const page = frame.contentDocument, root = page.documentElement, found = {{width: root.scrollWidth, charts: {{}}}};
  for (const box of page.querySelectorAll("[data-chart]")) {{
    const drawn = box.querySelector("svg, canvas");
    const marks = box.querySelectorAll("svg path, svg rect").length;
    found.charts[box.dataset.chart] = drawn && {{right: drawn.getBoundingClientRect().right, marks}};
  }}
  found.paper = frame.contentWindow.getComputedStyle(page.body).backgroundColor;
  const label = page.querySelector(".mark-text.role-axis-label text");
  found.ink = label && label.getAttribute("fill");
  document.getElementById("found").textContent = JSON.stringify(found);
}}, 3000));
frame.srcdoc = JSON.parse(document.getElementById("text").textContent);
</script>"""


def drawn(tmp_path, text: str, width: int, *options: str) -> tuple[dict, list[str]]:
    """Draws a page in a frame, as browsers without a window have no less than 500 pixels; also returns complaints."""
    path = tmp_path / "probe.html"
    path.write_text(PROBE.format(width=width, text=json.dumps(text).replace("<", "\\u003c")))
    done = browse(path, f"--window-size={width + 20},6000", "--dump-dom", *options)
    found = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    return json.loads(found[1]), [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@browser
@pytest.mark.parametrize("width", WIDTHS)
def test_a_browser_draws_every_chart_within_the_width(tmp_path, whole, width):
    found, complaints = drawn(tmp_path, whole, width)
    assert complaints == []
    assert found["width"] == width
    assert sorted(found["charts"]) == sorted(CHARTS)
    for name, chart in found["charts"].items():
        assert chart is not None and 0.5 * width < chart["right"] <= width, name
        assert chart["marks"] >= 8, name


@browser
def test_dark_pages_have_light_text(tmp_path, whole):
    def light(colour: str) -> float:
        numbers = re.findall(r"\d+", colour) if colour.startswith("rgb") else bytes.fromhex(colour[1:])
        return sum(map(int, numbers[:3])) / 3

    found, complaints = drawn(tmp_path, whole, 1280, "--blink-settings=preferredColorScheme=0")
    assert complaints == [] and light(found["paper"]) < 60 and light(found["ink"]) > 190
    found, _ = drawn(tmp_path, whole, 1280, "--blink-settings=preferredColorScheme=1")
    assert light(found["paper"]) > 240 and light(found["ink"]) < 60


@browser
def test_a_browser_opens_the_file_itself_and_runs_no_script_of_names(tmp_path):
    path = tmp_path / "page.html"
    path.write_text(evil_page())
    done = browse(path, "--dump-dom")
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    assert done.stdout.count("<svg") >= 4 and "cannot be drawn" not in Reader(done.stdout).text


@browser
def test_a_long_timeline_is_drawn_as_pixels(tmp_path):
    given = inputs()
    timeline = one_f_one_b(8, 160, 0.05, 0.1)
    assert len(timeline["spans"]) > 2000
    text = page("many micro-batches", given["price"], timeline=timeline)
    path = tmp_path / "page.html"
    path.write_text(text)
    assert "<canvas" in browse(path, "--dump-dom").stdout


def test_the_inputs_of_these_tests_are_consistent():
    price = planned_page.inputs()["price"]
    assert sum(price["parts"].values()) == pytest.approx(price["seconds"])
