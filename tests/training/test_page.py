"""The page of a planned step: what it says, that it loads nothing, and that a browser draws it."""

import csv
import io
import json
import re
import sys

import pytest
from amounts import examples
from command_line import cli
from hypothesis import given, settings
from hypothesis import strategies as st
from planned_page import CHROMIUM, HOW, Reader, browse, changed, planned, swept

import nvcoll
from nvcoll.draw import machine_drawing
from nvcoll.training import Sweep, plan
from nvcoll.training.colours import OF_PART
from nvcoll.training.communication import busy, traffic
from nvcoll.training.page import of
from nvcoll.training.page_rows import timed
from nvcoll.training.prediction import PARTS, TITLES

EVIL = "</script><script>alert(1)</script><img src=https://x.example/a.png onerror=alert(2)>{{ 7*7 }}'\""

WIDTHS = (375, 1280)

CHARTS = ("time", "timeline", "memory", "sweep")


@pytest.fixture(scope="module")
def whole() -> str:
    prediction, timeline = planned()
    return of(prediction, timeline=timeline, sweep=swept())


def spoken(seconds: float) -> str:
    return timed(seconds).replace("\u00a0", " ")


def specs(text: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="specs">(.*?)</script>', text, re.DOTALL)[1])


def test_the_headline_has_step_interval_tokens_mfu_and_memory(whole):
    text, found = Reader(whole).text, planned()[0]
    assert f"Step {spoken(found.seconds)} 90 %: {spoken(found.low_s)} to {spoken(found.high_s)}" in text
    assert f"Tokens per second and GPU {found.tokens_per_second:,.0f}" in text
    assert f"MFU {100 * found.mfu:.1f} % {found.tflops:,.0f} TFLOP/s per GPU" in text
    assert f"{found.memory_gib:.1f} GiB of 79.18 GiB: fits" in text
    assert "model Llama 3 70B" in text and "machine hgx-h100x64+ib-ndr-8: 64 x" in text
    assert "TP 8, PP 4, DP 16, ZeRO 1, micro-batch 1, bf16, global batch 1,024 sequences of 8,192 tokens" in text


def test_every_part_of_the_time_is_a_row_with_seconds_and_share(whole):
    text, found = Reader(whole).text, planned()[0]
    shown = {name: time for name, time in found.parts.items() if time >= 5e-4 * found.seconds}
    assert {"gemm", "attention", "tensor", "bubble"} <= set(shown)
    for name, time in shown.items():
        assert f"{PARTS[name]} {spoken(time)} {100 * time / found.seconds:.1f} %" in text
    assert [row["seconds"] for row in specs(whole)["time"]["data"]["values"]] == list(shown.values())


def test_memory_traffic_and_sweep_are_tables(whole):
    text, found = Reader(whole).text, planned()[0]
    for part in found.memory[0].lines:
        cells = " ".join(f"{one.lines[part] / 2**30:.1f}" if part in one.lines else "–" for one in found.memory)
        assert f"{TITLES[part]} {cells}" in text
    assert re.search(r"logits and loss – – \d", text), "only the last stage has the loss, which is larger than a layer"
    assert f"all {' '.join(f'{one.gib:.1f}' for one in found.memory)}" in text
    assert re.search(r"tensor 8 GPUs of one node [\d,.]+ [\d.]+ s \d+ % \d+\.\d %", text)
    best = min((one for one in swept().candidates if one.fit != "too_large"), key=lambda one: one.seconds)
    assert f"{best.words.replace('  ', ', ')} {spoken(best.seconds)} {best.memory_gib:.1f} GiB" in text
    heads = [attrs for tag, attrs in Reader(whole).elements if tag == "th"]
    assert heads and all("scope" in attrs for attrs in heads)


def test_the_picture_of_the_machine_says_which_links_are_busy(whole):
    found = planned()[0]
    shares = busy(traffic(found), found.seconds, machine_drawing.families(found.machine))
    assert set(shares) == {"nvlink", "pcie", "network"} and shares["nvlink"] > shares["network"] > 0
    assert f"busy {100 * shares['nvlink']:.0f} % of the time" in whole
    assert 'opacity="0.25"' in whole and 'opacity="0.25"' not in machine_drawing.svg(found.machine)


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
    prediction, timeline = planned()
    first, *others = prediction.collectives
    named = {old: f"{old} {EVIL}" for old in (one.name for one in prediction.roles)}
    evil = changed(
        prediction,
        roles=[one._replace(name=named[one.name]) for one in prediction.roles],
        memory=[one._replace(role=named[one.role], lines={**one.lines, EVIL: 1e9}) for one in prediction.memory],
        parts={**prediction.parts, EVIL: 0.1},
        collectives=[changed(first, group=EVIL, ranks=EVIL), *others],
        extrapolated=(EVIL,),
        request={**prediction.request, "model": {"name": EVIL, "title": ""}},
    )
    rows = [changed(one, fit="too_large", memory_gib=100.0) for one in swept().candidates[:5]]
    names = [f"{EVIL} {stage}" for stage in range(4)]
    spans = [{**one, "name": EVIL} for one in timeline["spans"][:9]]
    return of(evil, sweep=Sweep(rows, {}), timeline={"stages": names, "spans": spans})


def test_names_of_users_are_words_and_nothing_else():
    reader = Reader(evil_page())
    assert EVIL in "".join(reader.words)
    assert not [attrs for tag, attrs in reader.elements if tag == "img" or "onerror" in attrs]
    assert sum(tag == "script" for tag, _ in reader.elements) == 3
    assert "{{ 7*7 }}" in reader.text and "No layout fits." in reader.text


def test_spans_come_through_csv_as_they_are(whole):
    def rows(text):
        spec = specs(text)["timeline"]
        return list(csv.DictReader(io.StringIO(spec["datasets"][spec["data"]["name"]])))

    assert [row["name"] for row in rows(evil_page())] == 9 * [EVIL]
    spans = planned()[1]["spans"]
    assert [(row["stage"], row["name"]) for row in rows(whole)] == [(f"stage {s['stage']}", s["name"]) for s in spans]
    assert {row["kind"] for row in rows(whole)} == {"forward", "backward", "once in a step"}
    prediction, timeline = planned(schedule="zero-bubble-1p")
    assert "weights" in {row["kind"] for row in rows(of(prediction, timeline=timeline))}


def test_a_page_needs_no_more_than_a_prediction():
    text = Reader(of(planned()[0])).text
    assert "Timeline" not in text and "Layouts" not in text and "Machines" not in text


def test_a_step_of_unknown_memory_and_tokens_says_nothing_of_them():
    prediction = changed(planned()[0], memory=None, fit=None, tokens_per_second=0.0, mfu=None)
    text = Reader(of(prediction, several=[prediction, planned()[0]])).text
    assert "Memory" not in text and "Tokens per second" not in text and "MFU" not in text
    assert "memory not known" in text


def test_layouts_that_need_far_more_memory_are_counted_and_not_drawn():
    row = changed(swept().candidates[0], memory_gib=661.0, fit="too_large")
    text = of(planned()[0], sweep=Sweep([row, row], {}))
    assert "sweep" not in specs(text)
    assert "2 of 2 layouts are not drawn: they need more than twice the memory. No layout fits." in Reader(text).text


def test_machines_stand_beside_each_other_before_the_best_in_detail():
    found = [planned()[0], plan("llama3-70b", on="hgx-h100x64+ib-ndr-1", tp=8, pp=4, **HOW)]
    page = of(found[0], several=found)
    text = Reader(page).text
    assert text.index("Machines") < text.index("vs best") < text.index("Where the time goes")
    for one in found:
        times = " ".join(spoken(time) for time in (one.seconds, one.computes_s, one.exposed_s))
        assert f"{one.machine.name} {one.words.replace('  ', ', ')} {times}" in text
    bars = specs(page)["machines"]["data"]["values"]
    assert {row["machine"] for row in bars} == {one.machine.name for one in found}


def test_lines_of_the_memory_have_different_colours():
    parts = [line for line in TITLES if line not in ("loss", "cache")]  # those of graphs, and of gradients
    assert len({OF_PART[part] for part in parts}) == len(parts)
    assert OF_PART["tensor"] != OF_PART["sends"]


@pytest.mark.parametrize(
    ("model", "how"),
    [("deepseek-v3", {"pp": 8, "ep": 32, "recompute": "full"}), ("llama3-8b", {"zero": 3}), ("gpt3-175b", {"tp": 16})],
)
def test_other_models_have_pages(model, how):
    found = plan(model, on="hgx-h100x64+ib-ndr-8", global_batch=1024, **how)
    text = Reader(of(found)).text
    assert f"Step {spoken(found.seconds)}" in text and "Communication" in text


def test_several_numbers_of_gpus_have_a_column():
    one = changed(swept().candidates[0], memory_gib=70.0, fit="tight")
    rows = [changed(one, gpus=gpus, seconds=9e5 / gpus) for gpus in (64, 128)]
    text = Reader(of(planned()[0], sweep=Sweep(rows, {}))).text
    layout = one.words.replace("  ", ", ")
    assert f"layout step memory GPUs fit {layout} 7,030 s 70.0 GiB 128 may fit {layout}" in text
    assert "Pareto front of each number of GPUs" in text


def test_the_pareto_front_has_what_nothing_beats_and_what_fits(whole):
    rows = specs(whole)["sweep"]["data"]["values"]
    assert f"{len(swept().candidates) - len(rows)} of {len(swept().candidates)} layouts are not drawn" in whole
    usable = [row for row in rows if row["fit"] != "too_large"]
    for row in rows:
        beaten = any(
            other["seconds"] <= row["seconds"] and other["memory_gib"] <= row["memory_gib"] and other is not row
            for other in usable
        )
        assert row["is_best"] == (row["fit"] != "too_large" and not beaten)


@pytest.mark.parametrize(("recompute", "times"), [("none", 8), ("full", 12)])
def test_traffic_counts_layers_micro_batches_and_what_is_computed_again(recompute, times):
    price = planned(recompute=recompute)[0]
    found = {one.name: one for one in traffic(price)}
    assert set(found) == {"tensor", "data", "pipeline"}
    # 20 layers, 64 micro-batches, two gathers and two reductions of 8192 x 8192 bf16 each way; a little in the head.
    assert found["tensor"].gb == pytest.approx(times * 20 * 64 * 2 * 8192**2 / 1e9, rel=1e-4)
    assert found["tensor"].exposed_s == price.parts["tensor"] < found["tensor"].seconds
    once = [one for one in price.collectives if one.pass_ == "once" and one.of == "first stage"]
    assert found["data"].seconds == pytest.approx(sum(one.seconds for one in once))
    assert found["tensor"].is_in_node and not found["data"].is_in_node and not found["data"].is_wide


def test_inside_nodes_collectives_take_the_fastest_links():
    found = [one for one in traffic(planned()[0]) if one.is_in_node]
    assert set(busy(found, 1.0, {"pcie", "socket"})) == {"pcie"}
    assert set(busy(found, 1.0, {"pcie", "xgmi"})) == {"xgmi"}
    assert busy(found, 1e-3, {"nvlink"}) == {"nvlink": 1.0}


def test_roles_of_one_name_are_refused():
    one = planned()[0]
    one = changed(one, roles=[role._replace(name="a stage") for role in one.roles])
    with pytest.raises(nvcoll.InvalidArgument, match="3 roles are called `a stage`: give"):
        of(one)


@pytest.mark.parametrize("name", ["altair", "jinja2", "vl_convert"])
def test_a_missing_library_is_named_with_the_command_that_installs_it(monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "nvcoll.training.charts", raising=False)
    with pytest.raises(nvcoll.InvalidArgument, match=rf"{name}.*pip install '\.\[page\]'"):
        of(planned()[0])


def test_the_command_writes_pages_of_a_step_and_of_the_best_of_a_sweep(tmp_path):
    how = ["plan", "llama3-8b", "--on", "hgx-h100", "--global-batch", "64", "--micro-batch", "1", "--recompute", "none"]
    cli(*how, "--tp", "8", "--html", str(tmp_path / "one.html"))
    cli(*how, "--sweep", "--html", str(tmp_path / "best.html"))
    one, best = (Reader((tmp_path / f"{name}.html").read_text()).text for name in ("one", "best"))
    assert "TP 8, DP 1" in one and "Timeline" in one and "Layouts" not in one
    assert re.search(r"best of [\d,]+ layouts Layouts", best) and "The fastest layouts" in best
    cli(*how, "--tp", "8", "--what-if", "pcie", "--html", str(tmp_path / "two.html"))
    assert "hgx-h100 with pcie" in Reader((tmp_path / "two.html").read_text()).text


@given(st.floats(1e-7, 1e7))
@settings(max_examples=examples(100))
def test_a_time_is_read_back_to_three_digits(seconds):
    number, unit = timed(seconds).replace(",", "").split("\u00a0")
    factor = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}[unit]
    assert float(number) * factor == pytest.approx(seconds, rel=0.06 if seconds < 1e-6 else 6e-3)


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
  const chart = page.querySelector("[data-chart=timeline] svg");
  const ticks = () => [...chart.querySelectorAll(".role-axis-label")][0].textContent;
  found.ticks = [ticks()];
  const place = chart.getBoundingClientRect();
  const at = (kind, across) => {{
    const clientX = place.left + across * place.width, clientY = place.bottom - 50;
    const of = {{clientX, clientY, bubbles: true, view: frame.contentWindow, pointerType: "mouse"}};
    page.elementFromPoint(clientX, clientY).dispatchEvent(new frame.contentWindow.PointerEvent("pointer" + kind, of));
  }};
  [["over", 0.3], ["move", 0.3], ["down", 0.3], ["move", 0.4], ["move", 0.5], ["up", 0.5]].forEach((one) => at(...one));
  setTimeout(() => {{
    found.ticks.push(ticks());
    document.getElementById("found").textContent = JSON.stringify(found);
  }}, 1000);
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
    assert found["ticks"][0] != found["ticks"][1], "a drag below the timeline zooms"


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
    prediction, timeline = planned(tp=1, pp=16, global_batch=4096)
    assert len(timeline["spans"]) > 2000
    path = tmp_path / "page.html"
    path.write_text(of(prediction, timeline=timeline))
    done = browse(path, "--dump-dom")
    assert "<canvas" in done.stdout and "CONSOLE" not in done.stderr
