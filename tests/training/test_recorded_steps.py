"""Recorded steps in Python: price, timeline, trace and page serve them as they serve planned ones."""

import json
import pickle
import re
from itertools import pairwise
from pathlib import Path

import pytest
from planned_page import changed

import nvcoll
from nvcoll import training
from nvcoll._nvcoll import Issue, StepBuilder
from nvcoll.training import Report, page, trace

GUIDE = (Path(__file__).parents[2] / "docs" / "reference" / "training-step.md").read_text(encoding="utf-8")
MACHINE = "hgx-h100x2+ib-ndr-8"


def documented():
    """Returns the recorded step of the documentation."""
    blocks = re.findall(r"```json\n(.*?)```", GUIDE, re.DOTALL)
    return next(json.loads(block) for block in blocks if '"streams"' in block)


def stages():
    """Returns a step of two stages that send each other messages, with lines."""

    def rank(number, name, send_first):
        product = {"stream": 7, "name": "aten::mm", "line": 0, "work": "gemm", "m": 4096, "n": 4096, "k": 4096}
        product |= {"dtype": "bf16"}
        send, receive = (
            {"stream": 9, "line": 1, "work": "message", "way": way, "bytes": 5e7, "peer": 8 - number}
            for way in ("send", "recv")
        )
        order = [
            {"stream": 9, "work": "stream_wait", "event": 1},
            {"stream": 7, "work": "stream_wait", "event": 2},
            {"stream": 7, "work": "record", "event": 1},
            {"stream": 9, "work": "record", "event": 2},
        ]
        first = [product, order[2], order[0], send, receive, order[3], order[1], product]
        last = [receive, order[3], order[1], product, order[2], order[0], send]
        copy = {"stream": 3, "name": "batch", "work": "copy", "bytes": 1e6, "direction": "h2d"}
        ops = [copy, *(first if send_first else last), {"work": "host_wait", "for": "device"}]
        memory = {"allocated": 3e10, "reserved": 4e10, "parts": [{"name": "parameters", "bytes": 1e10}]}
        return {"rank": number, "stands_for": 8, "name": name, "issued": ops, "memory": {"allocator": memory}}

    ranks = [rank(0, "first stage", True), rank(8, "last stage", False)]
    step = documented() | {"name": "two stages", "model_flops": 1e15}
    step["streams"] = {"gpu": "h100-sxm", "lines": ["model.py:4 forward", "stage.py:9 send"], "ranks": ranks}
    return step


def predicted(step, machine=MACHINE):
    return training.Machine(machine).predict(training.WorkStep.from_json(json.dumps(step)))


def test_the_step_of_the_documentation_has_a_price():
    found = predicted(documented())
    assert found.is_recorded and found.step.is_recorded and found.fit == "fits"
    assert sum(found.parts.values()) == pytest.approx(found.seconds)
    assert found.flops_of == "recorded" and found.tokens_per_second > 0
    [gather] = found.collectives
    assert (gather.name, gather.group, gather.hides, gather.pass_) == ("all_gather", "shard", None, "streams")
    assert 0 < gather.exposed_s <= gather.seconds
    assert {line.line for line in found.lines} <= set(documented()["streams"]["lines"])
    assert found.to_dict()["lines"][0]["line"] == found.lines[0].line
    assert "fits" in repr(found)


@pytest.mark.parametrize(("part", "words"), [(1.0, r"nothing"), (0.5, r"all but [\d.]+ [um]s"), (0.0, "all")])
def test_collectives_say_how_much_of_them_hides(capsys, part, words):
    found = predicted(documented())
    one = changed(found.collectives[0], count=2.0, exposed_s=part * 2 * found.collectives[0].seconds)
    print(*Report("price", "", [], [changed(found, collectives=[one])]).lines(), sep="\n")
    assert re.search(rf"  {words}$", capsys.readouterr().out.rstrip())


def test_a_step_without_tokens_has_no_price_in_dollars():
    assert predicted(documented()).dollars(2.0) > 0
    with pytest.raises(nvcoll.InvalidArgument, match="not known how many tokens"):
        predicted(documented() | {"tokens": 0}).dollars(2.0)


def test_a_group_of_runs_costs_what_it_is_to_the_fabric_and_stages_between_its_runs_are_not_in_it():
    step = stages() | {"gpus": 32}
    machine = "hgx-h100x4+ib-ndr-8"
    prices = []
    for group in ({"size": 16, "stride": 1, "runs": 2, "apart": 16}, {"size": 16, "stride": 1}):
        reduce = {"stream": 9, "work": "collective", "pattern": "all_reduce", "bytes": 1e9, "group": "dp"}
        first, last = step["streams"]["ranks"]
        both = [{**first, "issued": [*first["issued"], reduce]}, last]
        again = step | {"groups": {"dp": group}, "streams": step["streams"] | {"ranks": both}}
        if "runs" not in group:
            with pytest.raises(nvcoll.InvalidArgument, match="rank 8 of the same group none"):
                predicted(again, machine)
            again["streams"]["ranks"] = [first | {"issued": [reduce]}]
        [price] = [one for one in predicted(again, machine).collectives if one.group == "dp"]
        prices.append((price.seconds, price.ranks))
    assert prices[0] == prices[1] and prices[0][1] == "8 GPUs each of 2 nodes"


@pytest.mark.parametrize("more", [{"runs": 3, "apart": 16}, {"runs": 2, "apart": 12}, {"runs": 2}, {"runs": 0}])
def test_runs_that_are_none_are_refused(more):
    groups = {"shard": {"size": 16, "stride": 1} | more}
    with pytest.raises(nvcoll.InvalidArgument, match="whole runs"):
        predicted(documented() | {"groups": groups})


def test_planned_steps_are_not_recorded():
    found = training.plan("llama3-8b", on="hgx-h100", zero=3, global_batch=64)
    assert not found.is_recorded and found.lines == [] and found.flops_of == "model"


def test_stages_wait_for_each_other_and_lines_say_where():
    found = predicted(stages())
    assert found.parts["sends"] > 0 and found.parts["gemm"] > 0
    assert found.mfu == pytest.approx(1e15 / found.seconds / 16 / 989.4e12, rel=0.01)
    waits = {line.line: line.exposed_s + line.waits_s for line in found.lines}
    assert waits["stage.py:9 send"] > 0
    assert {one.name for one in found.collectives} == {"send", "recv"}


def test_the_timeline_has_each_operation_in_the_order_of_issue():
    machine = training.Machine(MACHINE)
    step = training.WorkStep.from_json(json.dumps(stages()))
    timeline = json.loads(machine.pricer.timeline(step))
    assert timeline["period_ns"] == pytest.approx(machine.predict(step).seconds * 1e9, abs=2)
    for times, rank in zip(timeline["ranks"], stages()["streams"]["ranks"], strict=True):
        assert times["rank"] == rank["rank"]
        issued, start, end = (times[name] for name in ("issued_ns", "start_ns", "end_ns"))
        assert len(issued) == len(start) == len(end) == len(rank["issued"])
        assert issued == sorted(issued)
        assert all(a <= b for a, b in zip(start, end, strict=True))
        on_stream = [at for at, op in enumerate(rank["issued"]) if op["work"] != "host_wait"]
        assert all(issued[at] <= start[at] for at in on_stream)


def test_streams_are_a_trace_with_messages(tmp_path):
    machine = training.Machine(MACHINE)
    document = machine.timeline(training.WorkStep.from_json(json.dumps(stages())))
    assert document["stages"] == ["first stage", "last stage"]
    assert min(span["start_s"] for span in document["spans"]) == 0
    assert {span["stream"] for span in document["spans"]} == {"stream 3", "stream 7", "stream 9"}
    assert {span["args"]["kind"] for span in document["spans"]} == {"matrix products", "communication", "copies"}
    assert len(document["sends"]) == 2
    trace.save(document, tmp_path / "step.json")
    events = json.loads((tmp_path / "step.json").read_text())["traceEvents"]
    assert {event["name"] for event in events if event["ph"] == "X"} == {"aten::mm", "send", "recv", "batch"}


def test_the_operations_of_a_group_call_have_lanes_of_their_own():
    step = documented()
    calls = [
        {"stream": 9, "work": "collective", "pattern": "all_gather", "bytes": 1e8, "group": "shard", "together": 1}
    ]
    step["streams"]["ranks"][0]["issued"] = calls * 3
    document = training.Machine(MACHINE).timeline(training.WorkStep.from_json(json.dumps(step)))
    assert {span["stream"] for span in document["spans"]} == {"stream 9", "stream 9 (2)", "stream 9 (3)"}
    for before, span in pairwise(sorted(document["spans"], key=lambda span: (span["stream"], span["start_s"]))):
        assert before["stream"] != span["stream"] or before["end_s"] <= span["start_s"]


def test_a_page_shows_streams_and_lines_instead_of_stages():
    pytest.importorskip("altair")
    machine = training.Machine(MACHINE)
    found = machine.predict(training.WorkStep.from_json(json.dumps(stages())))
    text = page.of(found, timeline=machine.timeline(found.step))
    assert ">Streams<" in text and "Timeline of the pipeline" not in text
    assert "Lines of the script" in text and "stage.py:9 send" in text
    assert "first stage (rank 0 for 8)" in text and "h100-sxm" in text


def test_ranks_that_hang_are_an_error_with_lines():
    step = stages()
    first = step["streams"]["ranks"][0]["issued"]
    send, receive = (next(at for at, op in enumerate(first) if op.get("way") == way) for way in ("send", "recv"))
    first[send], first[receive] = first[receive], first[send]
    with pytest.raises(nvcoll.InvalidArgument, match=r"rank 0 waits at stage.py:9 send for rank 8 to send") as error:
        predicted(step)
    assert "rank 8" in str(error.value)


def test_the_builder_refuses_what_it_cannot_build():
    builder = StepBuilder("x", gpus=8, gpu="h100-sxm")
    rank = builder.rank(0, stands_for=8, name="all")
    for wrong, said in [
        (lambda: rank.collective(Issue(0), "all_reduce", 8, 3), "no group 3"),
        (lambda: rank.message(Issue(0), "send", 8, 1, group=3), "no group 3"),
        (lambda: rank.message(Issue(0), "throw", 8, 1), "throw"),
        (lambda: rank.gemm(Issue(0), 1, 1, 1, dtype="fp7"), "fp7"),
        (lambda: rank.collective(Issue(0), "all_scatter", 8, 0), "all_scatter"),
        (lambda: builder.group([], rank=0), "distinct ranks"),
        (lambda: builder.name_of(0), "no group 0"),
        (builder.finish, "work on each rank"),
    ]:
        with pytest.raises(nvcoll.InvalidArgument, match=said):
            wrong()
    rank.timed(Issue(7), 1e-3)
    assert builder.finish().flops() == 0 and rank.place(99) == -1


def test_a_step_is_equal_to_its_copy():
    step = training.WorkStep.from_json(json.dumps(documented()))
    other = training.WorkStep.from_json(json.dumps(stages()))
    assert pickle.loads(pickle.dumps(step)) == step != other and len({step, other, step}) == 2
