"""Execution traces of Chakra."""

import json
from pathlib import Path

import pytest

import nvcoll
from nvcoll.traces import chakra

pytest.importorskip("google.protobuf")
DOCS = Path(__file__).parents[2] / "docs"
COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7


def delimited(data):
    """A message after its length, 7 bits in each byte."""
    size, head = len(data), bytearray()
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*head, size]) + data


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
    return b"".join(map(delimited, (one.SerializeToString() for one in made)))


def ops_of(step, rank=0):
    return json.loads(step.to_json())["streams"]["ranks"][rank]["issued"]


def read(*files, **how):
    return chakra.read([(f"step.{rank}.et", data) for rank, data in enumerate(files)], "h100-sxm", **how)


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
    assert step["gpus"] == 7 and step["groups"] == {"dp": {"kind": "dp", "size": 4, "stride": 2}}
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
