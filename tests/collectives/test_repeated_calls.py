"""Calls that look like earlier ones, which a communicator does not read anew."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nvcoll

pytestmark = pytest.mark.timeout(100)

DTYPES = ("i4", "f4", "f8", "u1")
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "scan")
OPS = (None, "sum", "max", np.maximum)


@st.composite
def calls(draw):
    """One call of every rank: collective, dtype, elements per part, whether `out` is given, op, root, shape."""
    name = draw(st.sampled_from(COLLECTIVES))
    op = draw(st.sampled_from(OPS)) if name in ("all_reduce", "reduce_scatter", "reduce", "scan") else None
    return {
        "name": name,
        "dtype": draw(st.sampled_from(DTYPES)),
        "part": draw(st.sampled_from([0, 1, 3])),
        "has_out": draw(st.booleans()) and name not in ("broadcast", "reduce"),
        "options": {} if op is None else {"op": op},
        "root": draw(st.integers(0, 1)),
        "is_packed": draw(st.sampled_from([True, True, True, False])),
    }


def contribution(rank, nth, count, dtype):
    return ((np.arange(count) * 7 + nth + 3 * rank) % 50).astype(dtype)


def expected_of(call, nth, rank):
    n, long = 2, 2 * call["part"]
    count = call["part"] if call["name"] == "all_gather" else long
    inputs = [contribution(r, nth, count, call["dtype"]) for r in range(n)]
    fold = np.add if call["options"].get("op", "sum") == "sum" else np.maximum
    mine = slice(rank * call["part"], (rank + 1) * call["part"])
    return {
        "all_reduce": lambda: fold(*inputs),
        "reduce": lambda: fold(*inputs) if rank == call["root"] else None,
        "scan": lambda: fold(*inputs) if rank else inputs[0],
        "reduce_scatter": lambda: fold(*inputs)[mine],
        "all_gather": lambda: np.concatenate(inputs),
        "all_to_all": lambda: np.concatenate([x[mine] for x in inputs]),
        "broadcast": lambda: inputs[call["root"]],
    }[call["name"]]()


@settings(deadline=None)
@given(st.lists(calls(), min_size=1, max_size=4), st.lists(st.integers(0, 3), min_size=1, max_size=12))
def test_calls_in_any_order_have_the_results_of_numpy(kinds, order):
    def program(comm):
        for nth, kind in enumerate(order):
            call = kinds[kind % len(kinds)]
            count = call["part"] if call["name"] == "all_gather" else 2 * call["part"]
            x = contribution(comm.rank, nth, count, call["dtype"])
            if not call["is_packed"]:
                x = np.repeat(x, 2)[::2]
            expected = expected_of(call, nth, comm.rank)
            options = dict(call["options"])
            if call["name"] in ("broadcast", "reduce"):
                options["root"] = call["root"]
            if call["has_out"]:
                options["out"] = np.zeros(len(expected), call["dtype"])
            result = getattr(comm, call["name"])(x, **options)
            if expected is None:
                assert result is None
                continue
            assert np.array_equal(result, expected) and result.dtype == expected.dtype
            if call["has_out"]:
                assert result is options["out"]
            elif call["name"] in ("all_reduce", "scan", "broadcast", "reduce"):
                assert result is x

    nvcoll.Node(2).run(program, timeout=60)


def read_only():
    x = np.ones(8, "f4")
    x.flags.writeable = False
    return {"x": x}


def overlapping():
    whole = np.ones(12, "f4")
    return {"x": whole[:8], "out": whole[4:]}


UNLIKE = {
    "read-only": (read_only, "read-only"),
    "overlapping": (overlapping, "overlap"),
    "byte order": (lambda: {"x": np.ones(8, ">f4")}, "byte order"),
    "objects": (lambda: {"x": np.ones(8, object)}, "dtype"),
    "out of another length": (lambda: {"x": np.ones(8, "f4"), "out": np.ones(9, "f4")}, "9 elements"),
    "out of another dtype": (lambda: {"x": np.ones(8, "f4"), "out": np.ones(8, "i4")}, "int32"),
    "unknown op": (lambda: {"x": np.ones(8, "f4"), "op": "maxi"}, "maxi"),
    "unknown algorithm": (lambda: {"x": np.ones(8, "f4"), "algorithm": "rings"}, "rings"),
}


@pytest.mark.parametrize("kind", UNLIKE)
def test_a_call_that_is_refused_is_refused_after_good_ones_of_its_outline(kind):
    make, words = UNLIKE[kind]

    def program(comm):
        for _ in range(3):
            comm.all_reduce(np.ones(8, "f4"), "max", algorithm="ring")
            comm.all_reduce(np.ones(8, "f4"))
            comm.all_reduce(np.ones(8, "f4"), out=np.ones(8, "f4"))
        with pytest.raises(nvcoll.InvalidArgument, match=words):
            comm.all_reduce(**make())
        assert comm.all_reduce(np.ones(8, "f4")).tolist() == [2] * 8

    nvcoll.Node(2).run(program, timeout=60)


def test_other_lengths_of_peers_are_a_mismatch_after_many_calls_alike():
    def program(comm):
        for _ in range(20):
            comm.all_reduce(np.ones(8, "f4"))
            comm.all_reduce(np.ones(9, "f4"))
        comm.all_reduce(np.ones(8 + comm.rank, "f4"))

    with pytest.raises(nvcoll.Mismatch):
        nvcoll.Node(2).run(program, timeout=60)


def test_more_kinds_of_calls_than_are_remembered_are_counted_alike():
    def program(comm):
        for _ in range(3):
            for count in range(1, 40):
                assert comm.all_reduce(np.full(count, comm.rank + 1, "i4")).tolist() == [3] * count

    node = nvcoll.Node(2)
    node.run(program, timeout=60)
    assert sum(row.times for row in node._call_counts.calls()) == 3 * 39
