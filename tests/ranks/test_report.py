"""What a node counts of its calls, and what a report and a clock make of that."""

import gc
import html
import json
import threading
import weakref
from collections import Counter

import numpy as np
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_threads import in_threads

import nvcoll
from nvcoll._nvcoll import collectives

RANKS = 4
BOARD = "hgx-h100"


def counted(node):
    """Returns how often each kind of call was made."""
    rows = node.report(on=BOARD).calls
    return {
        (row.collective, row.nbytes, row.dtype, row.op, row.algorithm, row.ranks, row.grouped): row.times
        for row in rows
    }


def kind(collective, nbytes, *, dtype="float32", op=None, algorithm="auto", ranks=range(RANKS), grouped=1):
    return collective, nbytes, dtype, op, algorithm, tuple(ranks), grouped


def ones(count, dtype="f4", ranks=RANKS):
    return np.ones((ranks, count), dtype=dtype)


def test_every_collective_is_counted_with_the_bytes_of_its_longest_buffer():
    node, called = nvcoll.Node(RANKS), {}
    for name, folds in ((row.name, row.folds) for row in collectives()):
        if name == "barrier":
            continue
        arrays = ones(12) if name != "scatter" else np.ones(12, dtype="f4")
        getattr(node, name)(arrays)
        longest = 4 * 12 * (RANKS if name in ("all_gather", "gather") else 1)
        called[kind(name, longest, op=None if folds == "nothing" else "sum")] = 1
    node.barrier()
    called[kind("barrier", 0, dtype=None)] = 1
    assert counted(node) == called


def test_tables_of_counts_count_the_longest_buffer_of_a_rank():
    node = nvcoll.Node(2)
    node.all_gather([np.ones(1, "f8"), np.ones(5, "f8")])
    node.all_to_all([np.ones(3, "f8"), np.ones(9, "f8")], counts=[[1, 2], [8, 1]])
    node.reduce_scatter(np.ones((2, 5), "f8"), counts=[5, 0])
    assert [(row.collective, row.nbytes) for row in node.report(on=BOARD).calls] == [
        ("all_gather", 48),
        ("all_to_all", 72),
        ("reduce_scatter", 40),
    ]


@st.composite
def programs(draw):
    """Draws what a node is asked for: calls, plans that run some times, groups that are launched some times."""
    call = st.tuples(
        st.sampled_from(["all_reduce", "broadcast", "scan"]),
        st.integers(0, 40),
        st.sampled_from(["f4", "f8", "i4"]),
        st.sampled_from([None, "direct", "ring"]),
    )
    one = st.tuples(st.sampled_from(["call", "plan"]), st.lists(call, min_size=1, max_size=1), st.integers(1, 3))
    group = st.tuples(st.just("group"), st.lists(call, min_size=1, max_size=5), st.integers(1, 3))
    return draw(st.lists(st.one_of(one, group), max_size=8))


def options(collective, algorithm):
    known = {"all_reduce": {"ring": "ring"}, "broadcast": {"direct": "direct"}, "scan": {"direct": "direct"}}
    return known[collective].get(algorithm)


@settings(max_examples=examples(40))
@given(programs())
def test_counts_are_exactly_what_was_called(program):
    node, called, names = nvcoll.Node(RANKS), Counter(), {"f4": "float32", "f8": "float64", "i4": "int32"}
    for how, calls, times in program:
        asked, grouped = [], {}
        for collective, count, dtype, algorithm in calls:
            algorithm = options(collective, algorithm)
            asked.append((collective, ones(count, dtype), algorithm))
            key = (collective, names[dtype], algorithm or "auto")
            grouped.setdefault(key, []).append(count * np.dtype(dtype).itemsize)
        if how == "call":
            for _ in range(times):
                for collective, arrays, algorithm in asked:
                    getattr(node, collective)(arrays, algorithm=algorithm)
        elif how == "plan":
            plan = node.plan(asked[0][0], asked[0][1], algorithm=asked[0][2])
            for _ in range(times):
                plan.run()
        else:
            with node.group() as group:
                for collective, arrays, algorithm in asked:
                    getattr(node, collective)(arrays, algorithm=algorithm)
            for _ in range(times - 1):
                group.run()
        for (collective, dtype, algorithm), nbytes in grouped.items():
            op = None if collective == "broadcast" else "sum"
            what = kind(collective, sum(nbytes), dtype=dtype, op=op, algorithm=algorithm, grouped=len(nbytes))
            called[what] += times
    assert counted(node) == dict(called)


def test_ranks_that_call_for_themselves_are_counted_once_and_groups_of_them_apart():
    node = nvcoll.Node(RANKS)

    def program(comm):
        x = np.ones(8, "f4")
        for _ in range(3):
            comm.all_reduce(x)
        comm.barrier()
        row, other = comm.split(comm.rank // 2), comm.split(0, key=-comm.rank)
        for _ in range(2):
            row.all_reduce(x, "max")
        other.broadcast(x, root=1)
        with row.group() as group:
            row.all_reduce(x)
            row.all_reduce(np.ones(2, "f4"))
        group.run()
        comm.all_to_all(np.ones(4, "f4"), counts=[1] * RANKS)  # ranks tell each other their rows first: not counted

    node.run(program)
    expected = {
        kind("all_reduce", 32, op="sum"): 3,
        kind("barrier", 0, dtype=None): 1,
        kind("broadcast", 32, ranks=(3, 2, 1, 0)): 1,
        kind("all_to_all", 16): 1,
    }
    for ranks in ((0, 1), (2, 3)):
        expected[kind("all_reduce", 32, op="max", ranks=ranks)] = 2
        expected[kind("all_reduce", 40, op="sum", ranks=ranks, grouped=2)] = 2
    assert counted(node) == expected
    assert next(row.root for row in node.report(on=BOARD).calls if row.collective == "broadcast") == 1


def test_the_order_of_rows_does_not_depend_on_which_group_calls_first():
    def collectives(first):
        node, turn = nvcoll.Node(4), threading.Event()

        def program(comm):
            half = comm.split(comm.rank % 2)
            if comm.rank % 2 != first:
                assert turn.wait(60)
            (half.all_reduce if comm.rank % 2 else half.scan)(np.ones(4))
            if comm.rank == first:
                turn.set()

        node.run(program)
        return [row.collective for row in node.report(on="hgx-h100").calls]

    assert collectives(0) == collectives(1) == ["scan", "all_reduce"]


def test_threads_that_call_in_groups_at_once_lose_no_count():
    node, calls = nvcoll.Node(RANKS), 200

    def program(comm):
        communicators = [comm.split(0) for _ in range(3)]

        def repeat(one):
            for _ in range(calls):
                one.all_reduce(np.ones(4, "f4"))

        in_threads(*(lambda one=one: repeat(one) for one in (comm, *communicators)))

    node.run(program)
    assert counted(node) == {kind("all_reduce", 16, op="sum"): 4 * calls}


def test_a_call_that_failed_is_not_counted():
    node = nvcoll.Node(RANKS)
    with pytest.raises(nvcoll.InvalidArgument):
        node.all_reduce(np.ones((3, 4), "f4"))
    with pytest.raises(ZeroDivisionError), node.group():
        node.all_reduce(ones(4))
        raise ZeroDivisionError

    def program(comm):
        if comm.rank == 1:
            raise ZeroDivisionError
        comm.all_reduce(np.ones(4, "f4"))

    with pytest.raises(ZeroDivisionError):
        node.run(program)
    plan = node.plan("all_reduce", ones(4))
    with pytest.raises(nvcoll.InvalidArgument):
        plan.run(timeout=-1)
    assert counted(node) == {} and node.report(on=BOARD).totals[0].time_us == 0
    plan.run()
    assert counted(node) == {kind("all_reduce", 16, op="sum"): 1}


def test_the_users_algorithm_has_its_own_name():
    node = nvcoll.Node(RANKS)

    @nvcoll.algorithm("broadcast")
    def mine(b):
        for c in b.chunks(1):
            b.copy(b.input(b.root, c), into=[b.output(r, c) for r in range(b.world_size)])

    node.broadcast(ones(4), algorithm=mine)
    assert [row.algorithm for row in node.report(on=BOARD).calls] == ["mine"]


def test_a_price_is_that_of_the_library_and_says_which_answer_it_is():
    node = nvcoll.Node(8, on=BOARD)
    node.all_reduce(ones(1 << 18, ranks=8))
    node.scan(ones(1 << 10, ranks=8))
    node.barrier()
    node.all_reduce(ones(0, ranks=8))
    predicted, simulated, barrier, nothing = (row.prices[0] for row in node.report().calls)
    board = nvcoll.fabric(BOARD)
    assert (predicted.way, predicted.time_us) == (
        "predicted",
        board.predict("all_reduce", 1 << 20).time_us,
    )
    assert predicted.low_us < predicted.time_us < predicted.high_us
    assert predicted.trust == board.predict("all_reduce", 1 << 20).trust
    assert (simulated.way, simulated.low_us) == ("simulated schedule", None) and "scan" in simulated.why
    assert (barrier.way, barrier.time_us) == ("predicted", board.predict("all_reduce", 4).time_us)
    assert (nothing.way, nothing.time_us) == ("nothing crosses", 0)
    alone = nvcoll.Node(1, on=BOARD)
    alone.all_reduce(ones(4, ranks=1))
    assert alone.clock_us == 0


def test_a_launch_is_that_of_predictions_in_the_report_and_in_the_clock():
    node, board = nvcoll.Node(8, on=BOARD, launch="framework"), nvcoll.fabric(BOARD)
    node.all_reduce(ones(1 << 10, ranks=8))
    node.barrier()
    node.scan(ones(1 << 10, ranks=8))
    for launch in ("process_per_gpu", "single_process", "framework"):
        report = node.report(launch=launch)
        prices = [row.prices[0].time_us for row in report.calls]
        predicted = [board.predict("all_reduce", nbytes, launch=launch).time_us for nbytes in (1 << 12, 4)]
        scan = board.simulate(node._call_counts.calls()[2].schedule, 1 << 12, dtype="float32", launch=launch)
        assert prices == [*predicted, scan.time_us] and f"launched {launch}" in str(report)
        assert json.loads(report.to_json())["launch"] == report.launch == launch
        assert node.report(on=[BOARD], launch=launch) == report
    assert node.clock_us == node.report().totals[0].time_us == report.totals[0].time_us
    assert node.clock_us > node.report(launch="process_per_gpu").totals[0].time_us


def test_a_group_of_ranks_is_priced_on_its_own_gpus():
    two = nvcoll.cluster(BOARD, nodes=2, network="ib-ndr-8")
    node = nvcoll.Node(16)

    def program(comm):
        inner, outer = comm.split(comm.rank // 8), comm.split(comm.rank % 8)
        for one in (inner, outer):
            one.all_reduce(np.ones(1 << 16, "f4"))

    node.run(program)
    report = node.report(on=two)
    of = {row.ranks: row.prices[0].time_us for row in report.calls}
    for ranks, microseconds in of.items():
        assert microseconds == two.among(ranks).predict("all_reduce", 1 << 18).time_us
    assert report.totals[0].time_us == pytest.approx(of[tuple(range(8))] + of[0, 8])
    assert "2 x 8" in str(report) and "8 x 2" in str(report), "groups that cost the same are one line"


def test_the_clock_is_the_sum_over_the_calls_of_the_busiest_rank():
    node = nvcoll.Node(RANKS, on=BOARD)
    assert node.clock_us == 0
    node.all_reduce(ones(1000))
    first = node.clock_us
    plan = node.plan("all_reduce", ones(1000))
    plan.run()
    assert node.clock_us == pytest.approx(2 * first) and first > 0

    def program(comm):
        pair = comm.split(comm.rank // 2)
        for _ in range(1 + comm.rank // 2):
            pair.all_reduce(np.ones(1000, "f4"))

    node.run(program)
    report = node.report()
    prices = {row.ranks: row.prices[0].time_us for row in report.calls}
    assert node.clock_us == pytest.approx(2 * prices[0, 1, 2, 3] + 2 * prices[2, 3])
    assert node.clock_us == report.totals[0].time_us


@pytest.mark.parametrize(
    ("on", "message"),
    [
        ("hgx-h900", "hgx-h900"),
        ("4xv100", None),
        (3, "`on` is a int"),
        ([3], "`on` is a int"),
        ([], "names no machine"),
        (None, "names no machine"),
        ("hgx-a100-4", "has 4 GPUs, and the node has 8 ranks"),
    ],
)
def test_a_machine_that_cannot_be_is_a_typed_error(on, message):
    with pytest.raises(nvcoll.InvalidArgument, match=message):
        nvcoll.Node(8).report(on=on)
    if isinstance(on, str):
        with pytest.raises(nvcoll.InvalidArgument, match=message):
            nvcoll.Node(8, on=on)


def test_a_node_without_a_machine_has_no_clock():
    with pytest.raises(nvcoll.InvalidArgument, match="on='hgx-h100'"):
        _ = nvcoll.Node(2).clock_us


def test_text_html_and_json_tell_the_same():
    node = nvcoll.Node(8)
    for _ in range(5):
        node.all_reduce(ones(1 << 10, ranks=8), "max", algorithm="ring")
    node.scan(ones(7, ranks=8))
    report = node.report(on=[BOARD, "pcie4-8-staged"])
    text, page, document = str(report), html.unescape(report._repr_html_()), json.loads(report.to_json())
    for word in ("all_reduce", "4 KiB", "float32 max", "ring", "28 B", BOARD, "pcie4-8-staged", "total", "simulated"):
        assert word in text and word in page, word
    assert [row["times"] for row in document["calls"]] == [5, 1]
    assert [total["machine"] for total in document["reports"]] == [BOARD, "pcie4-8-staged"]
    for at, total in enumerate(document["reports"]):
        spent = sum(row["times"] * row["prices"][at]["time_us"] for row in document["calls"])
        assert total["time_us"] == pytest.approx(spent)
    empty = nvcoll.Node(2).report(on=BOARD)
    assert empty.calls == () and str(empty) == "no collectives were made"


def test_a_report_and_its_counts_keep_no_node_and_no_array():
    node = nvcoll.Node(2, on=BOARD)
    x = np.ones((2, 3), "f4")
    node.all_reduce(x)
    with node.group() as group:
        node.all_reduce(x)
    report, call_counts, _ = node.report(), node._call_counts, node.clock_us
    gone = [weakref.ref(node), weakref.ref(x)]
    del node, x, group
    gc.collect()
    assert [one() for one in gone] == [None, None]
    assert report.calls[0].times == 2 and call_counts.calls()[0].times == 2
