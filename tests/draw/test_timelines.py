"""Timelines as traces and as pictures."""

import json
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest

import nvcoll
from nvcoll._nvcoll import algorithms
from nvcoll.draw import timelines

MIB = 1 << 20
SVG = "{http://www.w3.org/2000/svg}"


def simulated(name="ring", n=4, nbytes=8 * MIB, spans=True, **inputs):
    schedule = nvcoll.schedule("all_reduce", name, world_size=n)
    return nvcoll.fabric("hgx-h100").simulate(schedule, nbytes, spans=spans, **inputs)


NAMES = [row.name for row in algorithms() if row.collective == "all_reduce"]


@pytest.mark.parametrize("name", NAMES)
def test_a_trace_has_every_step_once_within_the_time(name, tmp_path):
    timeline = simulated(name)
    timeline.save_trace(tmp_path / "trace.json")
    document = json.loads((tmp_path / "trace.json").read_text())
    assert document == json.loads(json.dumps(timeline.trace()))
    events = [event for event in document["traceEvents"] if event["ph"] == "X"]
    assert all(event["ts"] >= 0 and event["ts"] + event["dur"] <= timeline.time_us + 1e-6 for event in events)
    steps = [event for event in events if event["pid"] < 4]
    places = [(event["args"]["step"].split()[0], event["args"]["tile"]) for event in steps]
    expected = {
        (f"r{step.rank}.q{step.queue}.{step.index}", tile) for step in timeline.steps for tile in range(timeline.tiles)
    }
    assert len(places) == len(set(places)) and set(places) == expected
    for event in steps:
        assert event["args"]["step"].startswith(f"r{event['pid']}.q{event['tid']}.")


def test_a_trace_names_its_processes_and_holds_the_critical_path_and_the_links():
    timeline = simulated()
    document = timeline.trace()
    named = {event["args"]["name"] for event in document["traceEvents"] if event["name"] == "process_name"}
    assert named == {"rank 0", "rank 1", "rank 2", "rank 3", "critical path", "links"}
    path = [event for event in document["traceEvents"] if event["ph"] == "X" and event["pid"] == 4]
    assert [event["args"]["words"] for event in path] == [piece.words for piece in timeline.critical]
    links = document["otherData"]["links"]
    assert sum(link["bytes"] for link in links) == sum(row[2] for row in timeline.links)


@pytest.mark.parametrize("name", NAMES)
def test_counters_say_when_bytes_are_on_links(name):
    timeline = simulated(name)
    counted = {}
    for event in timeline.trace()["traceEvents"]:
        if event["ph"] == "C":
            counted.setdefault(event["name"], []).append((event["ts"], event["args"]["steps"]))
    used = {f"{source} -> {target}": busy for source, target, nbytes, busy in timeline.links if nbytes}
    assert counted.keys() == used.keys()
    for link, changes in counted.items():
        busy = sum(after - at for (at, steps), (after, _) in pairwise(changes) if steps)
        assert changes[-1][1] == 0 and all(steps >= 0 for _, steps in changes)
        assert busy == pytest.approx(used[link])


def test_without_spans_there_is_no_trace_and_no_picture(tmp_path):
    timeline = simulated(spans=False)
    for call in (timeline.trace, timeline.to_svg, lambda: timeline.save_trace(tmp_path / "none.json")):
        with pytest.raises(nvcoll.InvalidArgument, match="spans=True"):
            call()
    assert timeline._repr_svg_() is None and not list(tmp_path.iterdir())
    with pytest.raises(FileNotFoundError):
        simulated().save_trace(tmp_path / "no" / "trace.json")


def of_class(root, name):
    return [element for element in root.iter() if element.get("class") == name]


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_has_a_bar_for_every_step_and_a_row_for_every_rank(name):
    timeline = simulated(name, nbytes=256 * MIB, slice_bytes=1 << 40)
    root = ET.fromstring(timeline._repr_svg_())
    assert len(of_class(root, "rank")) == len(of_class(root, "leave")) == 4
    bars = of_class(root, "step")
    counts = [bar.find(f"{SVG}title").text for bar in bars]
    joined = sum(int(words.split()[0]) - 1 for words in counts if "steps from" in words)
    assert len(bars) + joined == len(timeline.steps)
    left, right = timelines.LEFT, timelines.LEFT + timelines.PLOT
    for bar in bars:
        assert left <= float(bar.get("x")) <= right
        assert float(bar.get("x")) + float(bar.get("width")) <= right + 0.5


def test_bars_of_a_queue_come_one_after_the_other_and_are_few_however_many_tiles():
    timeline = simulated(nbytes=64 * MIB, slice_bytes=4096)
    assert timeline.tiles == 4096
    lines = timelines.bars(timeline, narrow=timeline.time_us / 900)
    assert all(len(line) < 2000 for line in lines.values())
    assert sum(bar.count for line in lines.values() for bar in line) == len(timeline.spans)
    assert all(before.end <= after.start for line in lines.values() for before, after in pairwise(line))


def test_two_timelines_are_on_one_clock():
    ring, switch = simulated("ring", 8, 64 * MIB), simulated("nvswitch", 8, 64 * MIB)
    alone, both = ET.fromstring(ring.to_svg()), ET.fromstring(ring.to_svg(switch))
    leaves = [float(line.get("x1")) for line in of_class(both, "leave")]
    assert leaves[:8] == [float(line.get("x1")) for line in of_class(alone, "leave")], "the longer one sets the clock"
    per_us = timelines.PLOT / ring.time_us
    expected = [timelines.LEFT + end * per_us for end in ring.end_us + switch.end_us]
    assert leaves == pytest.approx(expected, abs=0.01)
    words = " ".join(text.text or "" for text in both.iter(f"{SVG}text"))
    assert "all_reduce ring" in words and "all_reduce nvswitch" in words and "hgx-h100" in words
    with pytest.raises(TypeError):
        ring.to_svg("switch")
    with pytest.raises(nvcoll.InvalidArgument, match="no timeline"):
        timelines.svg([])


@pytest.mark.parametrize("total", [0.0, 1e-6, 0.37, 1.0, 99.0, 1234.5, 7e8])
def test_the_clock_has_some_marks_within_the_time(total):
    marks = timelines.marks(total)
    assert marks[0] == 0 and marks[-1] <= total and len(marks) <= 12
    assert total == 0 or len(marks) >= 4


def test_what_takes_no_time_can_be_drawn():
    ET.fromstring(simulated(nbytes=0, protocol="ideal").to_svg())
    barrier = nvcoll.schedule("barrier", "direct", world_size=2)
    timeline = nvcoll.fabric("hgx-h100").simulate(barrier, 0, spans=True)
    ET.fromstring(timeline.to_svg())
    assert timeline.trace()["traceEvents"]
