"""What ranks do to try an engine between hosts: ``engine_programs.py PROGRAM``, with the variables of a launcher."""

import os
import signal
import sys
import threading
import time

import numpy as np

from nvcoll.hosts import opening
from nvcoll.hosts.carrier import Late, Lost, Stopped
from nvcoll.ranks.job import settings

TAG = 300


def around(engine):
    """The ranks before and after this one."""
    return (engine.rank - 1) % engine.size, (engine.rank + 1) % engine.size


def filled(length, rank):
    return (np.arange(length) * 31 + rank).astype(np.uint8)


def messages(engine):
    """All lengths arrive, also read-only, empty, shorter than the receive, from any rank, and in order."""
    before, after = around(engine)
    for length in (0, 1, 60_000, 60_001, 1_000_003):
        x, got = filled(length, engine.rank), np.zeros(length, np.uint8)
        x.flags.writeable = False
        requests = [engine.irecv(got, before, TAG), engine.isend(x, after, TAG)]
        engine.poke(requests)
        engine.wait(requests, time.monotonic() + 30)
        assert (got == filled(length, before)).all(), length
    longer, first, second = np.zeros(64, np.uint8), np.zeros(8, np.uint8), np.zeros(8, np.uint8)
    sent = [engine.isend(filled(8, k), after, tag) for k, tag in ((1, TAG), (2, TAG + 1), (3, TAG))]
    engine.wait([engine.irecv(x, before, tag) for x, tag in ((longer, TAG), (first, TAG))], None)
    engine.wait([engine.irecv(second, None, TAG + 1), *sent], None)
    assert [x[0] for x in (longer, first, second)] == [1, 3, 2] and not longer[8:].any()


def exchanges(engine):
    """Bytes of several lengths, more than once."""
    for turn in range(2):
        own = [bytes([rank]) * (rank * 3 + turn) for rank in range(engine.size)]
        assert engine.exchange(own[engine.rank]) == own


def ended_waits(engine, peer):
    """The ends, by `close`, of waits that nobody answers: for control, for any rank, for a rank, for a send."""
    ends = []

    def wait(request):
        try:
            engine.wait([request], None)
        except (Stopped, Lost, Late) as error:
            ends.append(error)

    requests = [engine.irecv(np.zeros(64, np.uint8), rank, tag) for rank, tag in ((None, 0), (None, TAG), (peer, TAG))]
    requests.append(engine.isend(np.zeros(1 << 20, np.uint8), peer, TAG + 1))
    threads = [threading.Thread(target=wait, args=(request,), daemon=True) for request in requests]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    engine.close("rank 7 fell asleep")
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    return ends


def close_ends_waits(engine):
    """`close` ends the waits of this process, and later calls."""
    ends = ended_waits(engine, around(engine)[1])
    found = [str(each) for each in ends if isinstance(each, Stopped)]
    assert set(found) == {"rank 7 fell asleep"} and len(found) >= 2, ends  # a peer may have closed before
    for call in (engine.isend, engine.irecv):
        try:
            call(np.zeros(1, np.uint8), around(engine)[1], TAG)
        except Stopped:
            continue
        raise AssertionError("a closed engine makes calls")


def late(engine):
    """A rank that is late with data can still tell the others."""
    told = np.zeros(16, np.uint8)
    posted = engine.irecv(told, None, 0)
    if engine.rank == 0:
        try:
            engine.wait([engine.irecv(np.zeros(1, np.uint8), 1, TAG)], time.monotonic() + 0.2)
        except Late:
            text = np.frombuffer(b"rank 1 is late..", np.uint8)
            engine.wait([engine.isend(text, rank, 0) for rank in range(1, engine.size)], time.monotonic() + 30)
        engine.close("late")
    else:
        engine.wait([posted], time.monotonic() + 30)
        assert bytes(told) == b"rank 1 is late.."


def killed(engine):
    """The end of a process ends the waits for it, and later `close` the others."""
    if engine.rank == 1:
        os.kill(os.getpid(), 9)
    for call in ("irecv", "isend"):
        try:
            engine.wait([getattr(engine, call)(np.zeros(1 << 20, np.uint8), 1, TAG)], time.monotonic() + 30)
        except Lost as error:
            assert error.peer == 1
        else:
            raise AssertionError("a dead rank answers")
    assert len(ended_waits(engine, 2 - engine.rank)) >= 3


def interrupted(engine):
    """Ctrl-C ends a wait of the main thread, while another thread waits for control."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    control = engine.irecv(np.zeros(8, np.uint8), None, 0)
    threading.Thread(target=lambda: engine.wait([control], None), daemon=True).start()
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        engine.wait([engine.irecv(np.zeros(8, np.uint8), around(engine)[0], TAG)], None)
    except KeyboardInterrupt:
        return
    raise AssertionError("the wait is over")


if __name__ == "__main__":
    place = settings()
    engine = opening.engine(place.rank, place.world_size, place.has_mpi, str(place.several_hosts), 60)
    engine.exchange(b"")
    engine.connect(True)
    globals()[sys.argv[1]](engine)
    print("right", flush=True)
    if sys.argv[1] in ("messages", "exchanges"):
        engine.exchange(b"over")
        engine.close(None)
        if "nvcoll.hosts.mpi" in sys.modules:
            sys.modules["nvcoll.hosts.mpi"].end(False)
    else:
        time.sleep(1)  # peers see nothing of this rank's end before theirs
        os._exit(0)
