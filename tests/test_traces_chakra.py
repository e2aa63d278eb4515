"""Execution traces of Chakra, in and out."""

import json
import re
from pathlib import Path

import pytest
from kineto_traces import of_two_layers

import nvcoll
from nvcoll.traces import chakra, kineto, opened
from nvcoll.training import WorkStep

pytest.importorskip("google.protobuf")
DOCS = Path(__file__).parents[1] / "docs"
COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7


def written(*nodes, metadata="1.0.0"):
    """A file of nodes: number, type, data dependencies, attributes and further fields."""
    kinds = chakra.messages()
    made = [kinds["GlobalMetadata"](version=metadata)]
    for number, kind, after, attributes, *more in nodes:
        node = kinds["Node"](id=number, name=f"node {number}", type=kind, data_deps=after, **(more[0] if more else {}))
        for name, value in attributes.items():
            field = "bool_val" if isinstance(value, bool) else "string_val" if isinstance(value, str) else "int64_val"
            node.attr.add(name=name, **{field: value})
        made.append(node)
    return b"".join(chakra._delimited(one.SerializeToString()) for one in made)


def ops_of(step, rank=0):
    return json.loads(step.to_json())["streams"]["ranks"][rank]["issued"]


def read(*files, **how):
    return chakra.read([(f"step.{rank}.et", data) for rank, data in enumerate(files)], "h100-sxm", **how)


def again(step, folder):
    """A step, written as Chakra and read again."""
    chakra.write(step, folder)
    return opened([folder]).steps[0]


def recorded(ops, gpus=16, **more):
    """A recorded step of one rank."""
    rank = {
        "rank": 0,
        "stands_for": 16,
        "name": "all",
        "issued": ops,
        "memory": {"allocator": {"allocated": 5, "reserved": 6}},
        **more,
    }
    row = {"schema": "nvcoll.step/1", "name": "by hand", "gpus": gpus, "tokens": 7, "model_flops": 8}
    row |= {
        "dtype": "bf16",
        "groups": {"shard": {"kind": "shard", "size": 8, "stride": 2}},
        "streams": {"gpu": "h100-sxm", "ranks": [rank]},
    }
    return WorkStep.from_json(json.dumps(row))


def test_the_step_of_the_documentation_comes_back(tmp_path):
    texts = re.findall(r"```json\n(.*?)```", (DOCS / "training-step.md").read_text(), re.DOTALL)
    step = WorkStep.from_json(next(text for text in texts if '"streams"' in text))
    back = again(step, tmp_path)
    there, here = (json.loads(one.to_json()) for one in (step, back))
    ops = [
        [op for op in row["streams"]["ranks"][0].pop("issued") if "bytes" in op or "m" in op] for row in (there, here)
    ]
    assert there == here and ops[0] == ops[1]


def test_order_of_streams_events_and_waits_of_the_processor_come_back(tmp_path):
    kernel = {"work": "move", "bytes": 100.0}
    step = recorded(
        [
            {"work": "host", "seconds": 1e-5},
            {"stream": 7, "name": "a", **kernel},
            {"stream": 7, "work": "record", "event": 1},
            {"stream": 7, "name": "b", **kernel},
            {"stream": 9, "work": "stream_wait", "event": 1},
            {"stream": 9, "name": "c", "work": "collective", "pattern": "all_gather", "bytes": 800.0, "group": "shard"},
            {"stream": 9, "work": "record", "event": 2},
            {"work": "host_wait", "for": {"event": 2}},
            {"work": "host_wait", "for": {"stream": 7}},
            {"stream": 7, "name": "d", **kernel},
            {"work": "host_wait", "for": "device"},
        ]
    )
    ops = ops_of(again(step, tmp_path))
    shown = [
        op.get("name") or (op["work"], op.get("stream", op.get("for", {}).get("event")), op.get("event")) for op in ops
    ]
    assert shown == [
        ("host", 0, None),
        "a",
        ("record", 7, 1),
        "b",
        ("record", 7, 2),
        ("stream_wait", 9, 1),
        "c",
        ("record", 9, 3),
        ("host_wait", 0, None),
        ("host_wait", 0, None),
        "d",
        ("record", 7, 6),
        ("host_wait", 0, None),
    ]
    assert [op["for"] for op in ops if op["work"] == "host_wait"] == [{"event": 3}, {"event": 2}, {"event": 6}]


def test_what_is_written_says_sizes_and_groups_as_simulators_read_them(tmp_path):
    more = {"work": "collective", "pattern": "all_gather", "bytes": 800.0, "group": "shard"}
    product = {"work": "gemm", "m": 16, "n": 32, "k": 64, "dtype": "bf16"}
    step = recorded(
        [{"stream": 1, **more}, {"work": "message", "way": "send", "bytes": 50.0, "peer": 3, "tag": 4}, product]
    )
    *files, groups = chakra.write(step, tmp_path)
    assert [file.name for file in files] == ["step.0.et"]
    assert json.loads(groups.read_text()) == {"1": [*range(0, 16, 2)]}
    _, nodes = chakra._parsed("x", files[0].read_bytes())
    gather, send, gemm = map(chakra._attributes, nodes)
    assert (gather["comm_type"], gather["comm_size"], gather["pg_name"], gather["is_cpu_op"]) == (2, 100, "1", False)
    assert (send["comm_src"], send["comm_dst"], send["comm_tag"], send["comm_size"]) == (0, 3, 4, 50)
    assert (gemm["num_ops"], gemm["tensor_size"]) == (2 * 16 * 32 * 64, 2 * (16 * 64 + 64 * 32 + 16 * 32))


def test_a_trace_of_the_profiler_becomes_one_of_chakra(tmp_path):
    step = kineto.read([("t.json", of_two_layers().document)], "h100-sxm").steps[0]
    back = again(step, tmp_path)
    assert ops_of(back) == ops_of(step)


def test_planned_steps_are_no_traces(tmp_path):
    step = nvcoll.training.plan("llama3-8b", on="hgx-h100", zero=3, global_batch=64).step
    with pytest.raises(nvcoll.InvalidArgument, match="was planned: only a recorded step is a trace"):
        chakra.write(step, tmp_path)


def test_traces_of_others_have_streams_groups_and_times():
    host, gpu = {"is_cpu_op": True, "tid": 1}, {"is_cpu_op": False}
    words = {"comm_type": 2, "comm_size": 100, "pg_name": "5", "stream": 20}
    data = written(
        (1, COMPUTE, [], host, {"duration_micros": 30}),
        (2, COMPUTE, [1], gpu | {"stream": 7}, {"duration_micros": 400}),
        (3, COLLECTIVE, [2], gpu | words),
        (4, COMPUTE, [3], gpu | {"stream": 7, "num_ops": 2_000_000, "tensor_size": 10}),
    )
    found = read(data, ranks_of={"5": [0, 2, 4, 6]})
    ops = ops_of(found.steps[0])
    assert [op["work"] for op in ops] == [
        "host",
        "timed",
        "record",
        "stream_wait",
        "collective",
        "record",
        "stream_wait",
        "gemm",
    ]
    numbers = ops[0]["seconds"], ops[1]["seconds"], ops[4]["bytes"], ops[7]["m"]
    assert numbers == pytest.approx((3e-5, 4e-4, 400, 100))
    step = json.loads(found.steps[0].to_json())
    assert step["gpus"] == 7 and step["groups"] == {"4 ranks": {"size": 4, "stride": 2}}
    assert any("square products" in note for note in found.notes)


def test_nodes_without_streams_compute_on_one_and_communicate_on_another():
    data = written(
        (1, COMPUTE, [], {"tensor_size": 100}),
        (2, COLLECTIVE, [], {"comm_type": 0, "comm_size": 100}),
        (3, COMPUTE, [2], {"tensor_size": 100}),
    )
    found = read(data, data)
    ops = ops_of(found.steps[0])
    assert [(op["work"], op.get("stream", 0)) for op in ops] == [
        ("move", 0),
        ("collective", 1),
        ("record", 1),
        ("stream_wait", 0),
        ("move", 0),
    ]
    assert json.loads(found.steps[0].to_json())["gpus"] == 2


def test_sends_and_receives_name_their_peers():
    first = written((1, SEND, [], {"comm_dst": 1, "comm_size": 64, "comm_tag": 3}))
    second = written((1, RECEIVE, [], {"comm_src": 0, "comm_size": 64, "comm_tag": 3}))
    step = read(first, second).steps[0]
    (send,), (receive,) = ops_of(step), ops_of(step, 1)
    assert (send["way"], send["peer"], receive["way"], receive["peer"]) == ("send", 1, "recv", 0)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (lambda: written((1, COMPUTE, [2], {}), (2, COMPUTE, [1], {})), "2 nodes wait for each other in a ring"),
        (lambda: written((1, COMPUTE, [], {}), (1, COMPUTE, [], {})), "2 nodes have 1 numbers"),
        (lambda: written((1, COMPUTE, [], {"tensor_size": 9}))[:-3], "is cut"),
        (lambda: written(), "has no nodes"),
        (lambda: written((1, COMPUTE, [], {})) + b"\x04\xff\xff\xff\xff", "no message of Chakra"),
    ],
)
def test_files_that_are_wrong_are_refused(data, said):
    with pytest.raises(nvcoll.InvalidArgument, match=said):
        read(data())


def test_two_files_of_one_rank_are_refused():
    data = written((1, COMPUTE, [], {"tensor_size": 9}))
    with pytest.raises(nvcoll.InvalidArgument, match="pass one file of each rank"):
        chakra.read([("a.1.et", data), ("b.1.et", data)], "h100-sxm")
