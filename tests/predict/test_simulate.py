"""Schedules in virtual time as Python sees them; what the times must be is tested in Rust."""

import pytest

import nvcoll

KIB, MIB = 1 << 10, 1 << 20


def ring(n=8):
    return nvcoll.schedule("all_reduce", "ring", world_size=n)


def test_a_timeline_says_when_ranks_end_and_what_links_moved():
    board = nvcoll.fabric("hgx-h100")
    timeline = board.simulate(ring(), 64 * MIB)
    assert len(timeline.end_us) == 8 and timeline.time_us == max(timeline.end_us) > board.floor("all_reduce", 64 * MIB)
    assert [row[:2] for row in timeline.links] == [row[:2] for row in board.links]
    # A ring sends 2 (n-1)/n of the buffer from each GPU.
    assert max(nbytes for _, _, nbytes, _ in timeline.links) == 2 * 7 * 64 * MIB // 8
    assert all(0 <= busy <= timeline.time_us for *_, busy in timeline.links)
    assert "of the time is" in timeline.bottleneck and timeline.spans is None
    assert len(repr(timeline).splitlines()) == 1 and "hgx-h100" in repr(timeline)


def test_the_same_call_takes_the_same_time_and_spans_change_nothing():
    board = nvcoll.fabric("hgx-h100")
    plain, with_spans = (board.simulate(ring(), MIB, slice_bytes=32 << 10, spans=spans) for spans in (False, True))
    assert plain.end_us == with_spans.end_us and plain.tiles == 4
    ranks, starts, ends = zip(*((rank, start, end) for rank, *_, start, end in with_spans.spans), strict=True)
    assert set(ranks) == set(range(8)) and 0 < max(ends) <= plain.time_us, "leaving comes after the last step"
    assert all(start <= end for start, end in zip(starts, ends, strict=True))


def test_protocols_and_dtypes_are_told_apart():
    board = nvcoll.fabric("hgx-h100")
    small, large = (
        {name: board.simulate(ring(), nbytes, protocol=name).time_us for name in ("ideal", "simple", "ll", "ll128")}
        for nbytes in (KIB, 256 * MIB)
    )
    assert len({*small.values()}) == len({*large.values()}) == 4, "each protocol has a time of its own"
    assert min(large, key=large.get) == "ideal" and small["ideal"] < small["simple"]
    assert small["ll"] < small["ll128"] < small["simple"], "flags in the data save waits"
    assert large["ll128"] < large["ll"], "a flag in each 8 bytes takes half of the bandwidth, one in 128 little"
    for dtype in ("float16", "float64", "uint8"):
        same = board.simulate(ring(), MIB, dtype=dtype, protocol="ideal")
        assert same.end_us == board.simulate(ring(), MIB, protocol="ideal").end_us, "bytes alone decide the time"
    with pytest.raises(nvcoll.InvalidArgument, match="multiple of 8"):
        board.simulate(ring(), 12, dtype="float64")


def test_fewer_ranks_than_gpus_take_the_first():
    board = nvcoll.fabric("hgx-h100")
    four = board.simulate(ring(4), MIB)
    assert len(four.end_us) == 4 and four.end_us == nvcoll.fabric("hgx-h100[0-3]").simulate(ring(4), MIB).end_us
    used = {name for source, target, nbytes, _ in four.links if nbytes for name in (source, target)}
    assert {name for name in used if name.startswith("gpu")} == {"gpu0", "gpu1", "gpu2", "gpu3"}


@pytest.mark.parametrize("launch", [None, "process_per_gpu", "single_process"])
@pytest.mark.parametrize("protocol", ["simple", "ll128", "ll"])
def test_several_sizes_are_the_runs_of_each_with_its_slice(protocol, launch):
    board, sizes, slices = nvcoll.fabric("hgx-h100x2+ib-ndr-8"), [0, 4, 64 * MIB, 12, MIB], [4, 4, MIB, 4, 1000]
    how = {"protocol": protocol, "launch": launch}
    together = board.simulate(ring(16), iter(sizes), slice_bytes=slices, **how)
    alone = [board.simulate(ring(16), one, slice_bytes=part, **how) for one, part in zip(sizes, slices, strict=True)]
    assert [(one.end_us, one.tiles, one.links, one.bottleneck) for one in together] == [
        (one.end_us, one.tiles, one.links, one.bottleneck) for one in alone
    ]
    assert board.simulate(ring(16), [], **how) == []
    with pytest.raises(nvcoll.InvalidArgument, match="slice_bytes has 2 numbers for 5 sizes"):
        board.simulate(ring(16), sizes, slice_bytes=[4, 4], **how)


def test_an_algorithm_by_name_or_written_in_python_is_its_schedule_for_all_gpus():
    board = nvcoll.fabric("hgx-a100-4")

    @nvcoll.algorithm("all_gather")
    def mine(b):
        for c in b.chunks(1):
            b.copy(b.input(c, c), into=[b.output(r, c) for r in range(b.world_size)])

    for given, collective, schedule in [
        ("ring", "all_reduce", nvcoll.schedule("all_reduce", "ring", world_size=4)),
        ("direct", "all_to_all", nvcoll.schedule("all_to_all", "direct", world_size=4)),
        (mine, None, mine.schedule(4)),
        (mine, "all_gather", mine.schedule(4)),
    ]:
        timeline = board.simulate(given, MIB, collective=collective)
        assert timeline.end_us == board.simulate(schedule, MIB).end_us and len(timeline.end_us) == 4


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda one: one.simulate(ring(16), MIB), "16 ranks"),
        (lambda one: one.simulate("ring", MIB), "does not name its collective"),
        (lambda one: one.simulate("rang", MIB, collective="all_reduce"), "rang"),
        (lambda one: one.simulate("ring", MIB, collective="all_redoce"), "no collective is called `all_redoce`"),
        (lambda one: one.simulate(7, MIB), "a schedule, an algorithm or a name"),
        (lambda one: one.simulate(ring(), MIB, collective="all_gather"), "is for all_reduce"),
        (lambda one: one.simulate(ring(), [MIB, 6]), "multiple of 4"),
        (lambda one: one.simulate(ring(), 6), "multiple of 4"),
        (lambda one: one.simulate(ring(), -4), "nbytes is -4"),
        (lambda one: one.simulate(ring(), MIB, dtype="float5"), "no dtype is called `float5`"),
        (lambda one: one.simulate(ring(), MIB, protocol="tcp"), "no protocol is called `tcp`"),
        (lambda one: one.simulate(ring(), MIB, slice_bytes=0), "slice_bytes is 0"),
        (lambda one: one.simulate(ring(), MIB, launch="graph"), "CUDA graph"),
        (lambda one: one.simulate(ring(), MIB, launch="slowly"), "no launch is called `slowly`"),
        (lambda one: one.simulate(ring(), MIB, launch="framework", protocol="ideal"), "`ideal`"),
        (lambda one: one.simulate(ring(), 1 << 40, slice_bytes=1024), "slice_bytes above 1024"),
        (lambda one: one.simulate(ring(), 1 << 56, slice_bytes=1), "slice_bytes above 1"),
    ],
)
def test_what_cannot_be_simulated_is_a_typed_error(call, message):
    with pytest.raises(nvcoll.InvalidArgument, match=message):
        call(nvcoll.fabric("hgx-h100"))


def test_a_launched_call_has_what_it_takes_to_start_and_late_ranks_enter_after_it():
    board = nvcoll.fabric("hgx-h100")
    parts = dict(board.predict("all_reduce", MIB, algorithm="Ring", protocol="Simple").parts)
    timeline = board.simulate(ring(), MIB, launch="process_per_gpu")
    first = timeline.critical[0]
    started = sum(parts[name] for name in ("start-up", "channels", "fill"))
    assert (first.reason, first.start_us, first.end_us) == ("starting", 0, pytest.approx(started, rel=1e-6))
    late = board.simulate(ring(), MIB, launch="process_per_gpu", starts={3: 100})
    assert late.critical[1].reason == "entering" and late.critical[1].end_us == pytest.approx(started + 100)
    one_process = board.simulate(ring(), 8, protocol="ll", launch="single_process")
    predicted = board.predict("all_reduce", 8, launch="single_process").time_us
    assert one_process.end_us == pytest.approx([predicted] * 8, rel=1e-9)
