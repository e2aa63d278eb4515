"""Signals stop what takes long in the core: building, lowering, proving and costing for many ranks."""

import signal

import pytest

import nvcoll

RANKS = 700
"""A ring of so many is built, lowered or proved in seconds, and a signal comes much earlier."""


class SignalCameError(Exception):
    """What the handler of the signal raises; no other code raises it."""


@pytest.fixture
def raising_signal():
    """A signal every 20 ms of which the handler raises, from the call of the fixture on."""

    def handler(_number, _frame):
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise SignalCameError

    before = signal.signal(signal.SIGALRM, handler)
    yield lambda: signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def ring():
    return nvcoll.schedule("all_reduce", "ring", world_size=RANKS)


@pytest.mark.parametrize(
    "work",
    [
        lambda ring: nvcoll.schedule("all_reduce", "ring", world_size=RANKS),
        lambda ring: ring.lower("staged"),
        lambda ring: ring.lower("pushed", channels=1, slots=8),
        lambda ring: nvcoll.verify(ring),
    ],
    ids=["build", "lower_staged", "lower_pushed", "verify"],
)
def test_a_signal_stops_work_of_the_core_and_what_its_handler_raises_arrives(ring, raising_signal, work):
    raising_signal()
    with pytest.raises(SignalCameError):
        work(ring)


def test_what_is_proved_and_too_large_to_run_is_told():
    @nvcoll.algorithm("all_reduce")
    def star(b, *, chunks=16):
        for chunk in b.chunks(chunks):
            b.channel(chunk)
            b.fold([b.input(rank, chunk) for rank in range(2)], into=[b.output(rank, chunk) for rank in range(2)])

    assert nvcoll.verify(star(chunks=16).schedule(2)).cannot_run is None
    told = nvcoll.verify(star(chunks=17).schedule(2)).cannot_run
    assert told == "rank 0 has 17 queues, 16 are possible: use fewer channels"


def test_a_text_of_too_many_chunks_is_refused_by_the_parser():
    text = "schedule all_reduce h world_size 2 chunks_per_part 4294967295 path mapped aliasing in_place\n"
    with pytest.raises(nvcoll.BuildError, match="chunks_per_part is 4294967295: from 1 to 65536 are possible here"):
        nvcoll.Schedule.parse(text)
