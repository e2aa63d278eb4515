"""What a run in virtual time can be given: late and slow ranks, damaged links."""

import itertools
import signal

import pytest

import nvcoll
from nvcoll._nvcoll import algorithms

MIB = 1 << 20
REDUCTIONS = [row.name for row in algorithms() if row.collective == "all_reduce"]


def scheduled(name="ring", n=8, collective="all_reduce"):
    return nvcoll.schedule(collective, name, world_size=n)


def simulated(name="ring", fabric="hgx-h100", nbytes=4 * MIB, **inputs):
    return nvcoll.fabric(fabric).simulate(scheduled(name), nbytes, at_switch="ignore", **inputs)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_late_rank_delays_the_end_by_no_more_than_it_is_late(name):
    on_time, late = (simulated(name, starts=starts).time_us for starts in (None, {5: 40}))
    assert on_time <= late <= on_time + 40
    everybody = simulated(name, starts=[40] * 8)
    assert everybody.time_us == pytest.approx(on_time + 40)
    assert everybody.critical[0].reason == "entering" and everybody.critical[0].end_us == 40


def test_a_slower_link_takes_longer_both_ways_or_one_way():
    pair = ("gpu0", "nvswitch")
    healthy, both, one = (simulated("ring", damage=damage) for damage in ({}, {pair: 0.5}, {pair: 0.5, pair[::-1]: 1}))
    assert healthy.time_us < one.time_us <= both.time_us
    busy = {timeline: {row[:2]: row[3] for row in timeline.links} for timeline in (healthy, both, one)}
    for ends, is_slow in ((pair, (both, one)), (pair[::-1], (both,))):
        for timeline in (both, one):
            slower = busy[timeline][ends] / busy[healthy][ends]
            assert slower == pytest.approx(2 if timeline in is_slow else 1, rel=0.01)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_the_critical_path_has_no_gap_and_says_what_it_waited_for(name):
    timeline = simulated(name, starts={2: 5}, slowdowns={1: 2})
    pieces = timeline.critical
    assert pieces[0].start_us == 0 and pieces[-1].end_us == timeline.time_us
    assert all(piece.end_us == after.start_us for piece, after in itertools.pairwise(pieces))
    assert all(piece.start_us < piece.end_us and 0 <= piece.rank < 8 for piece in pieces)
    for piece in pieces:
        assert (piece.link is None) == (piece.reason not in ("link", "shared_link"))
        assert (piece.other is None) == (piece.reason not in ("entering", "signal", "memory", "shared_memory"))
        assert piece.link is None or " -> ".join(piece.link) in piece.words
        assert (piece.step is None) == (piece.queue is None) == piece.words.startswith(f"rank {piece.rank} leaves")
        assert piece.words in repr(piece)


CALLS = [
    ({"at_switch": "pray"}, "no treatment of steps at a switch is called `pray`: choose from refuse, ignore"),
    ({"starts": [0] * 7}, "starts has 7 numbers: the schedule is of 8 ranks"),
    ({"starts": {8: 1}}, "a rank of starts is 8"),
    ({"starts": {0: -1}}, "starts of rank 0 is -1: pass microseconds"),
    ({"starts": {0: float("nan")}}, "starts of rank 0 is nan"),
    ({"starts": {0: 1e30}}, "starts of rank 0 is 1e"),
    ({"starts": 3}, "starts is 3: pass microseconds, 0 or more, for every rank"),
    ({"starts": "12345678a"[1:]}, "starts of rank 0 is 2"),
    ({"slowdowns": {1: 0.5}}, "slowdowns of rank 1 is 0.5: pass a factor from 1"),
    ({"slowdowns": {1: float("inf")}}, "slowdowns of rank 1 is inf"),
    ({"slowdowns": {"gpu1": 2}}, "a rank of slowdowns is 'gpu1'"),
    ({"slowdowns": [1, 1, 1, 1, 1, 1, 1, None]}, "slowdowns of rank 7 is None"),
    ({"damage": {("gpu0", "nvswitch"): 1.5}}, "damage of gpu0 and nvswitch is 1.5"),
    ({"damage": {("gpu0", "nvswitch"): -1}}, "from 0 .cut. to 1"),
    ({"damage": {("gpu0", "nvswitch"): 1e-9}}, "damage of gpu0 and nvswitch is 1e-09"),
    ({"damage": {("gpu0", "gpu9"): 0}}, "no device of this fabric is called `gpu9`: did you mean gpu0"),
    ({"damage": {("gpu0", "gpu1"): 0}}, "no link goes from gpu0 to gpu1: from gpu0 they go to"),
    ({"damage": {"gpu0": 0}}, "damage must be a mapping from the names of two devices"),
    ({"damage": [("gpu0", "gpu1")]}, "damage must be a mapping"),
]


@pytest.mark.parametrize(("inputs", "message"), CALLS, ids=range(len(CALLS)))
def test_what_cannot_be_given_is_a_typed_error(inputs, message):
    with pytest.raises(nvcoll.InvalidArgument, match=message):
        nvcoll.fabric("hgx-h100").simulate(scheduled(), MIB, **inputs)


def test_a_long_run_ends_when_a_signal_handler_raises():
    class Enough(Exception):
        pass

    seen = []

    def handler(*_):
        seen.append(len(seen))
        # Without a look in between, a signal is seen once, after the run.
        if len(seen) == 2:
            raise Enough

    board, tree = nvcoll.fabric("hgx-h100"), scheduled("tree")
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    try:
        with pytest.raises(Enough):
            board.simulate(tree, 1 << 40, slice_bytes=3 << 20)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert board.simulate(tree, MIB).time_us > 0
