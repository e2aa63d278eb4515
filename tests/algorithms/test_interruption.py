"""Signals stop what takes long in the core: building, lowering, proving and costing for many ranks."""

import signal
import subprocess
import sys

import pytest

import nvcoll

RANKS = 500
"""The ranks of a ring that is built, lowered or proved in seconds; a signal comes much earlier."""


class SignalCameError(Exception):
    """The error of the signal handler; no other code raises it."""


@pytest.fixture
def raising_signal():
    """Starts a signal every 20 ms, whose handler raises an error."""

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


WAIT = """
import contextlib, os, signal, sys, threading, time
import numpy as np
import nvcoll

ranks, algorithm, end = int(sys.argv[1]), "ring", sys.argv[3]
if sys.argv[2] == "by_schedule":
    algorithm = nvcoll.schedule("all_reduce", "ring", world_size=ranks)

def call(timeout=None):
    arrays = [np.ones(1, np.float32) for _ in range(ranks)]
    nvcoll.Node(ranks, workers=1).all_reduce(arrays, "sum", algorithm=algorithm, timeout=timeout)

def prove():
    with contextlib.suppress(nvcoll.Timeout):
        call(timeout=60)

prover = threading.Thread(target=prove)
prover.start()
time.sleep(0.3)
if end == "signal":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the parent ignores it
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    signal.setitimer(signal.ITIMER_REAL, 0.02)
try:
    call(timeout=0.05 if end == "deadline" else None)
except (KeyboardInterrupt, nvcoll.Timeout) as error:
    print(type(error).__name__, "while the other thread proves" if prover.is_alive() else "afterwards")
    sys.stdout.flush()
    os._exit(0)  # the proof goes on for seconds
"""
"""Waits for the proof of another thread, which takes seconds, and does not wait for its end."""


@pytest.mark.parametrize("algorithm", ["by_name", "by_schedule"])
@pytest.mark.parametrize(("end", "error"), [("signal", "KeyboardInterrupt"), ("deadline", "Timeout")])
def test_a_signal_or_a_deadline_ends_the_wait_for_the_proof_of_another_thread(algorithm, end, error):
    words = [sys.executable, "-c", WAIT, str(RANKS), algorithm, end]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=100)
    assert ended.stdout == f"{error} while the other thread proves\n", ended.stderr


def test_what_is_proved_and_too_large_to_run_is_told():
    @nvcoll.algorithm("all_reduce")
    def star(b, *, chunks=16):
        for chunk in b.chunks(chunks):
            b.channel(chunk)
            b.fold([b.input(rank, chunk) for rank in range(2)], into=[b.output(rank, chunk) for rank in range(2)])

    assert nvcoll.verify(star(chunks=16).schedule(2)).cannot_run is None
    told = nvcoll.verify(star(chunks=17).schedule(2)).cannot_run
    assert told == "rank 0 has 17 queues, 16 are possible: use fewer channels"
