"""Timelines of training steps as traces: what a viewer relies on holds for any document."""

import json
from collections import defaultdict
from itertools import pairwise

import pytest
from command_line import cli
from hypothesis import given
from hypothesis import strategies as st

import nvcoll
from nvcoll.training import Machine, trace

NANOSECONDS = [
    [("F", 0, 0, 1000), ("F", 1, 1000, 2000), ("B", 0, 6500, 9000), ("B", 1, 10000, 12500)],
    [("F", 0, 1500, 2500), ("B", 0, 2500, 6000), ("F", 1, 6000, 7000), ("B", 1, 7000, 9500)],
]


def timeline():
    """Two micro-batches on two stages, 1F1B, 0.5 us a send; the JSON of Rust."""
    stages = []
    for rows in NANOSECONDS:
        spans = [
            {"pass": what, "micro_batch": number, "chunk": 0, "start_ps": 1000 * start, "end_ps": 1000 * end}
            for what, number, start, end in rows
        ]
        stages.append({"in_flight": [1], "pending": 0, "spans": spans})
    return {"stages": stages, "makespan": 12.5e-6, "step": 12.5e-6}


def of(document, phase):
    return [event for event in document["traceEvents"] if event["ph"] == phase]


def check_trace(document, traced):
    """Slices lie in threads of their stage and do not overlap, flows in the slices of their spans; counters add up."""
    assert traced == json.loads(json.dumps(traced))
    slices = of(traced, "X")
    assert [(one["name"], one["pid"]) for one in slices] == [(one["name"], one["stage"]) for one in document["spans"]]
    threads = {(one["pid"], one["tid"]): one["args"]["name"] for one in of(traced, "M") if one["name"] == "thread_name"}
    by_thread = defaultdict(list)
    for event, span in zip(slices, document["spans"], strict=True):
        assert threads[event["pid"], event["tid"]] == span["stream"]
        assert event["ts"] == pytest.approx(1e6 * span["start_s"], abs=1e-6)
        assert event["ts"] + event["dur"] == pytest.approx(1e6 * span["end_s"], abs=1e-5)
        by_thread[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for times in by_thread.values():
        assert all(end <= start + 1e-5 for (_, end), (start, _) in pairwise(sorted(times)))
    begins, ends = ({one["id"]: one for one in of(traced, phase)} for phase in "sf")
    timed = [send for send in document["sends"] if all(slices[send[key]]["dur"] for key in ("source", "target"))]
    assert len(begins) == len(ends) == len(timed) and begins.keys() == ends.keys()
    for number in begins:
        send = document["sends"][number]
        for event, key in ((begins[number], "source"), (ends[number], "target")):
            bound = slices[send[key]]
            assert (event["pid"], event["tid"]) == (bound["pid"], bound["tid"])
            assert bound["ts"] <= event["ts"] < bound["ts"] + bound["dur"]
        assert ends[number]["bp"] == "e" and begins[number]["name"] == ends[number]["name"] == send["name"]
    check_counters(document, traced)


def check_counters(document, traced):
    counters = defaultdict(list)
    for event in of(traced, "C"):
        assert event["pid"] == len(document["stages"])
        counters[event["name"]].append((event["ts"], *event["args"].values()))
    assert counters.keys() == {load["link"] for load in document["loads"]}
    for link, samples in counters.items():
        assert [ts for ts, _ in samples] == sorted({ts for ts, _ in samples})
        assert samples[-1][1] == pytest.approx(0, abs=1e-5)
        area = sum(load * (after - ts) for (ts, load), (after, _) in pairwise(samples))
        loads = [one for one in document["loads"] if one["link"] == link]
        wanted = sum(1e6 * one["load"] * (one["end_s"] - one["start_s"]) for one in loads)
        assert area == pytest.approx(wanted, rel=1e-6, abs=1e-3)


def test_the_timeline_of_a_pipeline_is_a_trace_with_its_sends(tmp_path):
    document = trace.of_pipeline(timeline(), send_s=0.5e-6, title="two stages")
    assert [span["name"] for span in document["spans"][:3]] == ["F 0", "F 1", "B 0"]
    assert len(document["sends"]) == len(document["loads"]) == 4
    trace.save(document, tmp_path / "step.json")
    traced = json.loads((tmp_path / "step.json").read_text())
    check_trace(document, traced)
    assert traced["otherData"] == {"title": "two stages"}
    processes = [one["args"]["name"] for one in of(traced, "M") if one["name"] == "process_name"]
    assert processes == ["stage 0", "stage 1", "links"]
    arrows = {(one["name"], one["pid"]) for one in of(traced, "s")}
    assert arrows == {("activation", 0), ("gradient", 1)}


def test_the_timeline_of_a_planned_step_is_a_trace():
    machine = Machine("hgx-h100")
    planned = machine.plan("llama3-8b", tp=2, pp=2, vp=2, global_batch=8)
    document = machine.timeline(planned.step)
    check_trace(document, trace.trace(document))
    assert document["title"] == planned.step.name
    assert len(document["spans"]) == 2 * 2 * 2 * 4 + 2 and len(document["sends"]) == 2 * 3 * 4
    assert max(span["end_s"] for span in document["spans"]) == pytest.approx(planned.seconds)


def test_nvcoll_plan_writes_the_trace_of_its_first_machine(tmp_path):
    file = tmp_path / "step.json"
    cli("plan", "llama3-8b", "--on", "hgx-h100", "--tp", "2", "--pp", "4", "--global-batch", "8", "--trace", str(file))
    assert len(of(json.loads(file.read_text()), "X")) == 4 * (2 * 8 + 1)


def test_a_document_takes_more_streams_sends_and_loads():
    document = trace.of_pipeline(timeline(), send_s=0.5e-6)
    span = {"stage": 1, "stream": "communication", "name": "all_reduce", "start_s": 1e-6, "end_s": 9e-6}
    offload = {"stage": 0, "stream": "offload", "name": "copy", "start_s": 0.0, "end_s": 1e-6, "args": {"bytes": 8}}
    document["spans"] += [span, offload]
    document["sends"].append({"name": "tensor", "source": 9, "target": 8})
    document["loads"].append({"link": "NVLink", "start_s": 0, "end_s": 2e-6, "load": 0.25})
    traced = trace.trace(document)
    check_trace(document, traced)
    assert [(one["tid"], one["name"]) for one in of(traced, "X")][-2:] == [(1, "all_reduce"), (2, "copy")]
    assert of(traced, "X")[-1]["args"] == {"bytes": 8}


@st.composite
def documents(draw):
    """Any document: streams of spans one after another, sends between any spans, loads at any time."""
    stages = draw(st.integers(1, 4))
    spans = []
    for stage in range(stages):
        for stream in draw(st.sets(st.sampled_from(("compute", "communication", "copy")))):
            at = 0.0
            for gap, time in draw(st.lists(st.tuples(*2 * [st.floats(0, 1e-2)]), max_size=5)):
                start, at = at + gap, at + gap + time
                row = {"stage": stage, "stream": stream, "name": f"{len(spans)}", "start_s": start, "end_s": at}
                spans.append(row)
    places = st.integers(0, max(0, len(spans) - 1))
    pairs = draw(st.lists(st.tuples(places, places), max_size=5 if spans else 0))
    sends = [{"name": "x", "source": source, "target": target} for source, target in pairs]
    times = st.tuples(st.sampled_from("ab"), *2 * [st.floats(0, 1e-2)], st.sampled_from((1, 0.5, 50.0)))
    loads = [
        {"link": link, "start_s": start, "end_s": start + time, "load": load}
        for link, start, time, load in draw(st.lists(times, max_size=6))
    ]
    names = [f"stage {stage}" for stage in range(stages)]
    return {"title": "", "stages": names, "spans": spans, "sends": sends, "loads": loads, "unit": "GB/s"}


@given(documents())
def test_any_document_is_a_trace(document):
    check_trace(document, trace.trace(document))


def test_a_timeline_without_spans_is_refused():
    empty = timeline()
    for stage in empty["stages"]:
        del stage["spans"]
    with pytest.raises(nvcoll.InvalidArgument, match="run the pipeline with spans"):
        trace.of_pipeline(empty)
