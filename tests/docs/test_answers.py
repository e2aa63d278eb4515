"""docs/predict/answers.md says what nvcoll says today, and what it concludes follows from that."""

import importlib.util
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import nvcoll

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "predict" / "answers.md").read_text()
NAMES = re.findall(r"\(\.\./pictures/([\w-]+)\.svg\)", PAGE)
GIB = 1 << 30


def loaded():
    spec = importlib.util.spec_from_file_location("make", DOCS.parent / "tools" / "pages" / "pictures" / "make.py")
    module = sys.modules["make"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make = loaded()


@pytest.fixture(scope="module")
def answers():
    return make.answered(PAGE)


def test_every_figure_and_output_of_the_page_is_what_nvcoll_says_today(answers):
    assert make.refreshed(PAGE, answers) == PAGE, "run: python tools/pages/pictures/make.py"


@pytest.mark.parametrize("page", make.WITH_OUTPUT, ids=lambda page: page.stem)
def test_every_output_of_the_other_pages_is_what_nvcoll_prints_today(page):
    assert make.with_outputs(page.read_text()) == page.read_text(), "run: python tools/pages/pictures/make.py"


def test_a_page_may_cut_lines_of_an_output_and_begins_again_at_a_word_of_it():
    whole = "one 1\ntwo 2\nthree 3\nthree 4\nfour 5"
    assert make.excerpt("one 0\n...\nthree 0\nthree 0\n...\n", whole) == "one 1\n...\nthree 3\nthree 4\n..."
    assert make.excerpt("one 0\n", whole) == whole
    with pytest.raises(ValueError, match="no line begins with `five`"):
        make.excerpt("one 0\n...\nfive 0\n", whole)


SVG = "{http://www.w3.org/2000/svg}"


def words(svg: str) -> list[str]:
    """All texts of a picture, its figures among them."""
    return ["".join(text.itertext()) for text in ET.fromstring(svg).iter(f"{SVG}text")]


@pytest.mark.parametrize("name", NAMES)
def test_every_picture_is_well_formed_and_shows_todays_figures(name, answers):
    svg = (DOCS / "pictures" / f"{name}.svg").read_text()
    root = ET.fromstring(svg)
    assert root.tag == f"{SVG}svg" and float(root.get("width")) > 0 and float(root.get("height")) > 0
    assert len(words(svg)) > 5
    assert words(svg) == words(answers[name].svg), "run: python tools/pages/pictures/make.py"


def test_every_picture_is_on_the_page_and_every_question_has_one():
    *questions, facts = PAGE.split("\n## ")[1:]
    assert {file.stem for file in (DOCS / "pictures").glob("*.svg")} == set(NAMES)
    assert len(NAMES) == len(questions) and facts.startswith("Facts\n")
    for section in questions:
        shown = ("\nnvcoll ", "\n$ ", "```python")
        assert "Trust:" in section and any(begin in section for begin in shown), section.splitlines()[0]


def test_a_changed_figure_makes_the_page_out_of_date(answers):
    changed = PAGE.replace(f"**{answers['wire-bytes'].figures[0]}**", "**1.7**")
    assert changed != PAGE and make.refreshed(changed, answers) == PAGE
    with pytest.raises(ValueError, match="figures for"):
        make.refreshed(PAGE.replace("## ", "## **", 1).replace("?\n", "**?\n", 1), answers)


def test_a_ring_of_eight_is_as_fast_on_the_mesh_as_on_the_switch_and_four_gpus_are_not():
    mesh, switch = nvcoll.fabric("dgx1-v100"), nvcoll.fabric("dgx2[0-7]")
    busbw = [one.nccl("all_reduce", GIB).chosen.busbw for one in (mesh, switch)]
    assert busbw[0] == pytest.approx(busbw[1], rel=0.01)
    schedule = make.program("rings_of_the_mesh").schedule(world_size=8)
    assert nvcoll.verify(schedule).steps == 6 * 8 * 14
    simulated = [one.simulate(schedule, GIB).time_us for one in (mesh, switch)]
    assert simulated[0] == pytest.approx(simulated[1], rel=0.02)
    measured = [make.busbw_measured(name) for name in ("v100_dgx1_8_blog2019", "v100_dgx2_12of16_seville")]
    for time in simulated:
        assert GIB * 1.75 / time / 1e3 == pytest.approx(sum(measured) / 2, rel=0.08)
    four = [one.among([0, 1, 2, 3]).nccl("all_reduce", GIB).chosen.busbw for one in (mesh, switch)]
    assert four[0] < four[1]


def test_the_switch_sends_less_than_a_ring_except_for_two():
    assert make.sent("nvswitch", "hgx-h100", 2) > make.sent("ring", "hgx-h100", 2)
    for n in (4, 8):
        assert make.sent("nvswitch", "hgx-h100", n) < make.sent("ring", "hgx-h100", n)


def predicted(name, nbytes=GIB):
    return nvcoll.fabric(name).predict("all_reduce", nbytes).time_us


def test_peers_beat_staging_and_nvlink_beats_both():
    for card in ("rtx4090", "rtx5090"):
        staged, peers, switch = (predicted(name) for name in (f"{card}-8-staged", f"{card}-8-p2p", "hgx-h100"))
        assert staged > 1.2 * peers > 5 * switch


def test_the_seven_machines_have_the_order_of_the_page_and_a_second_node_takes_longer():
    times = [predicted(name, make.GRADIENT) for _, name, _ in make.SEVEN]
    assert times[0] > times[1] and times[3:] == sorted(times[3:], reverse=True) and min(times[:3]) > max(times[3:])
    for (_, node, network), one in zip(make.TWO_NODES, times[-3:], strict=True):
        two = nvcoll.cluster(node, nodes=2, network=network).predict("all_reduce", make.GRADIENT).time_us
        assert one < two < 2 * one


def test_a_bridge_helps_large_calls_and_not_small_ones():
    names = ("rtx3090-2-bridge", "rtx4090-2-staged", "rtx4090-2-p2p")
    bridge, *others = (predicted(name) for name in names)
    assert all(other > 1.5 * bridge for other in others)
    small = [predicted(name, 1 << 10) for name in names]
    assert max(small) < 1.5 * min(small)


def test_nodes_are_bound_by_their_network_whichever_gpus_are_in_them_and_a_rack_is_not():
    nodes = [nvcoll.cluster(node, nodes=9, network="ib-ndr-8") for node in ("hgx-b200", "hgx-h100")]
    newer, older = (one.predict("all_reduce", GIB) for one in nodes)
    assert newer.time_us == pytest.approx(older.time_us, rel=0.05)
    assert "network" in newer.bottleneck and "network" in older.bottleneck
    rack = nvcoll.fabric("gb200-nvl72").predict("all_reduce", GIB)
    assert newer.time_us > 1.5 * rack.time_us and "network" not in rack.bottleneck


def test_the_page_says_validated_of_what_is():
    trusted = [nvcoll.fabric(name) for name in ("hgx-h100", "hgx-b200")]
    trusted += [nvcoll.cluster(node, nodes=n, network="ib-ndr-8") for node in ("hgx-h100", "hgx-b200") for n in (2, 9)]
    trusted += [nvcoll.fabric(name) for name in ("hgx-a100", "gb200-nvl72", "rtx4090-8-p2p", "rtx4090-2-staged")]
    doubtful = ("rtx3090-2-bridge", "dgx1-v100")
    assert all("not" not in one.predict("all_reduce", GIB).trust for one in trusted)
    assert all("not" in nvcoll.fabric(name).predict("all_reduce", GIB).trust for name in doubtful)


def test_the_ten_questions_are_short_and_each_has_a_command_and_a_public_thread():
    page = (DOCS / "predict" / "faq.md").read_text()
    _, *questions = page.split("\n## ")
    assert len(questions) == 10 and len(page.split()) <= 900
    for question in questions:
        assert "nvcoll " in question and "](https://github.com/" in question, question.splitlines()[0]
