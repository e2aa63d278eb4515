"""A drawing shows every step and every wait of a schedule, in an order in which they can run."""

import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field

import pytest

import nvcoll
from nvcoll._nvcoll import algorithms
from nvcoll.draw import drawing

SVG = "{http://www.w3.org/2000/svg}"


@dataclass
class Step:
    """As much of a step as a drawing looks at."""

    rank: int
    queue: int
    index: int
    dst: list[str]
    src: list[str]
    after: list[str] = field(default_factory=list)

    @property
    def sources(self):
        return [(*read(view), None) for view in self.src]

    @property
    def destinations(self):
        return [read(view) for view in self.dst]

    @property
    def waits(self):
        found = [re.fullmatch(r"r(\d+)\.q(\d+)\.(\d+)", wait) for wait in self.after]
        return [tuple(map(int, one.groups())) for one in found if one]

    is_final: bool = False
    at_switch: bool = False


def read(view: str) -> tuple[int, str, int, int]:
    """Returns rank, buffer, first chunk and end of a view that is written as text."""
    found = re.match(r"(\w+)\[r(\d+)\]\.(\d+)(?:\.\.(\d+))?", view)
    return int(found[2]), found[1], int(found[3]), int(found[4] or int(found[3]) + 1)


@dataclass
class Schedule:
    """As much of a schedule as a drawing looks at."""

    steps: list[Step]
    world_size: int = 2
    collective: str = "all_reduce"
    algorithm: str = "by_hand"
    path: str = "mapped"


RING = Schedule(
    [
        Step(1, 0, 0, ["output[r1].0"], ["input[r0].0*s0", "input[r1].0*s1"], ["r0.enter"], is_final=True),
        Step(0, 1, 0, ["output[r0].0"], ["output[r1].0"], ["r1.enter", "r1.q0.0"]),
        Step(0, 0, 0, ["output[r0].1"], ["input[r1].1*s1", "input[r0].1*s0"], ["r1.enter"], is_final=True),
        Step(1, 1, 0, ["output[r1].1"], ["output[r0].1"], ["r0.enter", "r0.q0.0"]),
    ]
)


def drawn(schedule) -> ET.Element:
    return ET.fromstring(drawing.svg(schedule))


def of_class(root: ET.Element, name: str) -> list[ET.Element]:
    return [element for element in root.iter() if element.get("class") == name]


def boxes(root: ET.Element) -> dict[str, dict[str, float]]:
    """Each step's place, and the left, right, top and bottom of its box."""
    found = {}
    for group in of_class(root, "step"):
        title, frame = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        x, y, width, height = (float(frame.get(name)) for name in ("x", "y", "width", "height"))
        found[title.text.split()[0]] = {"left": x, "right": x + width, "top": y, "bottom": y + height}
    return found


def words(root: ET.Element) -> str:
    return " ".join(text.text or "" for text in root.iter(f"{SVG}text"))


def test_every_step_is_a_box_and_every_wait_for_a_step_an_arrow():
    root = drawn(RING)
    assert len(of_class(root, "rank")) == 2
    assert set(boxes(root)) == {"r1.q0.0", "r0.q1.0", "r0.q0.0", "r1.q1.0"}
    assert len(of_class(root, "wait")) == 2
    assert "all_reduce by_hand, 2 ranks, mapped" in words(root)


def test_arrows_lead_from_the_end_of_a_box_to_the_beginning_of_a_later_one():
    root = drawn(RING)
    found = boxes(root)
    ends = {tuple(float(part) for part in re.findall(r"[\d.]+", arrow.get("d"))) for arrow in of_class(root, "wait")}
    for before, after in (("r1.q0.0", "r0.q1.0"), ("r0.q0.0", "r1.q1.0")):
        assert found[before]["right"] <= found[after]["left"]
        assert any(
            end[0] == found[before]["right"]
            and found[before]["top"] < end[1] < found[before]["bottom"]
            and abs(end[-2] - found[after]["left"]) <= 1
            and found[after]["top"] < end[-1] < found[after]["bottom"]
            for end in ends
        )


def test_colours_tell_folds_copies_and_publishing_apart_and_the_legend_names_what_occurs():
    publish = Step(0, 2, 0, ["staging0[r0].0"], ["input[r0].0"], ["r1.q3.0@2"])
    root = drawn(Schedule([*RING.steps, publish]))
    fills = [group.find(f"{SVG}rect").get("fill") for group in of_class(root, "step")]
    assert fills == [drawing.COLOURS[kind] for kind in ("fold", "copy", "fold", "copy", "publish")]
    for name in ("fold", "copy", "publish", "completes the reduction", "waits for"):
        assert name in words(root)
    assert "not drawn: 1 waits for an earlier tile" in words(root)
    assert "publish" not in words(drawn(RING)) and "a switch" not in words(drawn(RING))


def test_queues_that_overlap_in_time_get_lines_of_their_own():
    steps = [Step(0, q, i, [f"output[r0].{q}"], [f"input[r0].{q}"]) for q in range(3) for i in range(2)]
    root = drawn(Schedule(steps, world_size=1))
    found = boxes(root)
    assert len({(box["left"], box["top"]) for box in found.values()}) == 6
    assert len({box["top"] for box in found.values()}) == 3
    assert len(of_class(root, "queue")) == 3, "steps of one queue are joined"


def test_many_views_are_shortened_in_the_box_and_written_out_in_its_title():
    views = [f"input[r{rank}].2*s{rank}" for rank in range(8)]
    step = Step(0, 0, 0, [f"output[r{rank}].2" for rank in range(8)], views, at_switch=True)
    root = drawn(Schedule([step], world_size=8))
    assert "output[r0-r7].2 = input[r0].2 + … + input[r7].2" in words(root)
    assert " + ".join(views) in root.find(f".//{SVG}g[@class='step']/{SVG}title").text


def test_ranges_of_ranks_and_chunks_are_written_alike_in_a_box():
    views = [f"output[r{rank}].2..5" for rank in range(4)]
    root = drawn(Schedule([Step(0, 0, 0, views, ["input[r0].2..5"])], world_size=4))
    assert "output[r0-r3].2-4 = input[r0].2-4" in words(root)
    alone = drawn(Schedule([Step(0, 0, 0, ["output[r0].2..5"], ["input[r0].2..5"])]))
    assert "output[r0].2-4 = input[r0].2-4" in words(alone)


def test_a_cycle_of_waits_is_drawn_with_a_red_arrow():
    cycle = [
        Step(0, 0, 0, ["output[r0].0"], ["input[r0].0"], ["r1.q0.0"]),
        Step(1, 0, 0, ["output[r1].0"], ["input[r1].0"], ["r0.q0.0"]),
    ]
    arrows = of_class(drawn(Schedule(cycle)), "wait")
    assert sorted(arrow.get("stroke") for arrow in arrows) == sorted([drawing.INK, drawing.ALARM])


def test_a_schedule_without_steps_is_an_empty_picture():
    assert not of_class(drawn(Schedule([])), "step")


@pytest.mark.parametrize("path", ["mapped", "staged"])
@pytest.mark.parametrize(("collective", "algorithm"), [(row.collective, row.name) for row in algorithms()])
def test_no_two_boxes_of_a_registered_schedule_overlap(collective, algorithm, path):
    schedule = nvcoll.schedule(collective, algorithm, world_size=4, path=path)
    root = drawn(schedule)
    found = list(boxes(root).values())
    assert len(found) == len(schedule.steps)
    for i, a in enumerate(found):
        for b in found[:i]:
            assert (
                a["right"] <= b["left"] or b["right"] <= a["left"] or a["bottom"] <= b["top"] or b["bottom"] <= a["top"]
            )
    expected = sum(bool(re.fullmatch(r"r\d+\.q\d+\.\d+", wait)) for step in schedule.steps for wait in step.after)
    assert len(of_class(root, "wait")) == expected
    width, height = float(root.get("width")), float(root.get("height"))
    assert all(box["right"] <= width and box["bottom"] <= height for box in found)


@pytest.mark.parametrize("collective", [row.collective for row in algorithms()])
def test_no_line_of_text_ends_outside_the_picture(collective):
    for world_size in (1, 4):
        root = ET.fromstring(drawing.svg(nvcoll.schedule(collective, "auto", world_size=world_size)))
        for line in root.findall(f"{SVG}text"):
            glyph = 9.5 if line.get("font-size") == "16" else 6.2
            assert float(line.get("x")) + glyph * len(line.text) <= float(root.get("width")), line.text
