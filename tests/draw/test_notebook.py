"""Schedules, proofs and predictions in a notebook."""

import html
import re
import xml.etree.ElementTree as ET

import pytest

import nvcoll
from nvcoll._nvcoll import algorithms
from nvcoll.draw import drawing, notebook

EVIL = "<script>alert('1')</script>&\"</table>"


def named(name, world_size=2):
    b = nvcoll.Builder("all_reduce", world_size)
    ranks = range(world_size)
    b.fold([b.input(r, 0) for r in ranks], into=[b.output(r, 0) for r in ranks])
    return b.finish(name)


def cells(page):
    """Reads the table of a page; whatever is not well-formed raises."""
    root = ET.fromstring(page)
    return {row.find("th").text or "": row.find("td").text for row in root.iter("tr")}


def test_a_schedule_is_a_table_and_its_picture():
    schedule = nvcoll.schedule("all_reduce", "tree", world_size=6, path="staged")
    table = cells(schedule._repr_html_())
    assert [table[key] for key in ("collective", "algorithm", "ranks", "path")] == ["all_reduce", "tree", "6", "staged"]
    assert (table["aliasing"], table["steps"]) == ("in place", str(len(schedule.steps)))
    moved, waits = schedule.cost()
    assert table["a rank moves"].startswith(f"{moved:.2f} times") and "the busiest" in table["a rank moves"]
    assert table["waits"] == f"{waits} on the longest chain"
    assert drawing.svg(schedule) in schedule._repr_html_() and schedule._repr_svg_() == drawing.svg(schedule)


def test_a_proof_says_what_was_proved_in_which_order_and_how_long_it_took():
    schedule = nvcoll.schedule("all_reduce", "ring", world_size=5, in_place=False)
    proof = nvcoll.verify(schedule)
    assert proof.schedule is schedule
    table = cells(proof._repr_html_())
    said = ("collective", "algorithm", "ranks", "path", "aliasing", "order", "steps")
    assert [table[key] for key in said] == [
        *("all_reduce", "ring", "5", "mapped", "out of place", "own", str(proof.steps))
    ]
    assert [table[f"chunk {c}"] for c in range(3)] == [proof.expression(c) for c in range(3)]
    assert table[""] == "… and so on, 5 chunks" and re.fullmatch(r"\d+\.\d\d ms", table["time"])


def test_in_rank_order_one_expression_stands_for_all():
    proof = nvcoll.verify(nvcoll.schedule("all_reduce", "nvswitch", world_size=3))
    table = cells(proof._repr_html_())
    assert (table["order"], table["every element"]) == ("rank", "(r0 + r1 + r2)") and "chunk 0" not in table


def test_a_prediction_is_a_table_whose_numbers_have_units():
    found = nvcoll.fabric("hgx-h100").predict("all_reduce", "1M")
    shown = cells(found._repr_html_())
    assert "1 MiB on hgx-h100" in found._repr_html_() and shown["accuracy"] == found.trust
    assert re.fullmatch(r"[\d.,]+ us \(90 %: [\d.,]+ to [\d.,]+ us\)", shown["time"])
    assert all(re.fullmatch(r"[\d.,]+ us", shown[f"of the time: {name}"]) for name, _ in found.parts)


@pytest.mark.parametrize(("collective", "algorithm"), [(row.collective, row.name) for row in algorithms()])
@pytest.mark.parametrize("world_size", [1, 4, 64])
def test_everything_in_the_registry_can_be_shown(collective, algorithm, world_size):
    schedule = nvcoll.schedule(collective, algorithm, world_size=world_size, path="staged")
    assert cells(schedule._repr_html_())["algorithm"] == cells(nvcoll.verify(schedule)._repr_html_())["algorithm"]
    assert (schedule._repr_svg_() is None) == (world_size == 64)


@pytest.mark.parametrize("name", [EVIL.replace(" ", ""), "a\x01b\ud7ffc\uffffd"])
def test_what_the_user_named_is_text_and_never_markup(name):
    schedule = named(name)
    proof = nvcoll.verify(schedule)
    shown = re.sub("[\x01\uffff]", "\ufffd", name)
    for page in (schedule._repr_html_(), proof._repr_html_()):
        assert cells(page)["algorithm"] == shown and "<script" not in page
        assert html.escape(shown) in page
    for page in (schedule._repr_html_(), schedule._repr_svg_()):
        assert shown in "".join(ET.fromstring(page).itertext())


@pytest.mark.parametrize("name", ["", "two words", "a\tb", "a#b"])
def test_a_name_that_the_text_form_could_not_read_back_is_refused(name):
    with pytest.raises(nvcoll.InvalidArgument, match="it must be one word"):
        named(name)


def test_three_hundred_thousand_steps_are_a_summary():
    schedule = nvcoll.schedule("all_reduce", "ring", world_size=400)
    assert schedule.step_count == 2 * 400 * 399 > 300_000
    page = schedule._repr_html_()
    assert len(page) < 5_000 and "<svg" not in page and "Not drawn" in page and schedule._repr_svg_() is None
    assert cells(page)["steps"] == "319,200"


def test_the_largest_picture_is_less_than_a_megabyte():
    sizes = []
    for collective, algorithm in ((row.collective, row.name) for row in algorithms()):
        for path in ("mapped", "staged"):
            for world_size in range(notebook.MOST_RANKS, 1, -1):
                schedule = nvcoll.schedule(collective, algorithm, world_size=world_size, path=path)
                if (picture := schedule._repr_svg_()) is not None:
                    sizes.append(len(picture))
                    break
    assert 10_000 < max(sizes) < 1_000_000


def test_a_long_expression_and_a_long_name_are_shortened():
    proof = nvcoll.verify(nvcoll.schedule("all_reduce", "ring", world_size=128))
    assert len(proof._repr_html_()) < 5_000
    assert len(named("a" * 5_000)._repr_html_().split("<svg")[0]) < 7_000


def test_the_rules_of_a_picture_stay_in_the_picture():
    schedules = [nvcoll.schedule("all_reduce", name, world_size=4, path="staged") for name in ("ring", "nvswitch")]
    for picture in map(drawing.svg, schedules):
        root = ET.fromstring(picture)
        assert root.get("class") == drawing.CLASS
        rules = re.findall(r"([^{}]+)\{[^{}]*\}", root.find(".//{*}style").text)
        assert len(rules) == 4 and all(drawing.CLASS in rule for rule in rules)
        for name in re.findall(r"url\(#([^)]+)\)", picture):
            assert f'id="{name}"' in picture and name.startswith(drawing.CLASS)


def luminance(colour):
    channels = [int({"white": "#ffffff"}.get(colour, colour)[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_words_can_be_read_on_every_ground():
    """WCAG 2.1 asks for a contrast of 4.5 between text and what is behind it."""
    for ground in (*drawing.COLOURS.values(), drawing.PAPER, drawing.BAND):
        light, dark = sorted((luminance(ground), luminance(drawing.INK)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, ground
