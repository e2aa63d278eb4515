"""Sends and receives between ranks that are threads or processes."""

import asyncio
import threading
import time
from functools import partial

import numpy as np
import pytest
from amounts import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from process_ranks import Job
from processes import results, start

import nvcoll

SIZES = [0, 1, 8, 104, 105, 4096, 16384, 16385, 65536, 65537, 300_000, 2 << 20, 5 << 20]
"""Bytes around every limit of the protocol: inside a frame, without an offer, a piece, a chunk."""


def on_ranks(world_size, program):
    """Runs a function of a module on ranks that are threads, then on ranks that are processes."""
    threads = nvcoll.Node(world_size).run(program, timeout=60)
    with Job(world_size) as job:
        return threads, job.run(program)


def exchange_all_sizes(comm):
    right, left = (comm.rank + 1) % comm.world_size, (comm.rank - 1) % comm.world_size
    for nbytes in SIZES:
        for is_symmetric in (False, True):
            make = comm.empty if is_symmetric else np.empty
            x, out = make(nbytes, "u1"), make(nbytes, "u1")
            x[:] = (np.arange(nbytes) * 7 + comm.rank) % 251
            out[:] = 255
            message = comm.sendrecv(x, right, out, left, tag=nbytes)
            assert (message.source, message.tag, message.count) == (left, nbytes, nbytes)
            assert np.array_equal(out, (np.arange(nbytes) * 7 + left) % 251)
    return comm.rank


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_a_ring_of_messages_of_every_size_arrives(world_size):
    assert on_ranks(world_size, exchange_all_sizes) == ([*range(world_size)],) * 2


def failure(comm, call):
    """Returns the name and the message of the exception of a call."""
    try:
        call()
    except Exception as error:
        return type(error).__name__, str(error)
    return "none", ""


def wrong_length(comm, sent, source):
    if comm.rank == 0:
        return failure(comm, lambda: [comm.send(np.zeros(sent, "f4"), 1, tag=7), comm.barrier()])
    return failure(comm, lambda: comm.recv(np.zeros(8), source, tag=7))


@pytest.mark.parametrize(("sent", "source"), [(12, 0), (12_000, None)])
def test_a_message_of_another_length_or_dtype_is_refused_with_both_sides(sent, source):
    for aborted, mismatch in on_ranks(2, partial(wrong_length, sent=sent, source=source)):
        says = f"rank 0 sent {sent} float32 with tag 7, and rank 1 receives it into an array of 8 float64"
        assert mismatch[0] == "Mismatch" and says in mismatch[1]
        says = "rank 1 received a message from rank 0 with tag 7, and its array does not fit it"
        assert aborted[0] == "Aborted" and says in aborted[1]


def late(comm):
    if comm.rank == 0:
        x = np.zeros(1)
        for tag in (3, 5, 3):
            comm.send(x, 1, tag=tag)
        return failure(comm, lambda: comm.recv(x))
    return failure(comm, lambda: comm.recv(np.zeros(1), 0, tag=7, timeout=0.3))


def test_a_timeout_says_which_message_is_missing_and_which_are_there():
    for aborted, timeout in on_ranks(2, late):
        assert (
            timeout[0] == "Timeout" and "recv of 1 float64 from rank 0 with tag 7 timed out after 0.3 s" in timeout[1]
        )
        assert "rank 0 has not sent a message with tag 7; messages with tags 3, 5 wait to be received" in timeout[1]
        assert aborted == ("Aborted", "rank 1 timed out: the call was aborted")


def late_sender(comm):
    if comm.rank == 0:
        return failure(comm, lambda: comm.send(np.zeros(10_000), 1, tag=2, timeout=0.3))
    return failure(comm, comm.barrier)


def test_a_timeout_of_a_send_names_the_receiver():
    for timeout, aborted in on_ranks(2, late_sender):
        assert timeout[0] == "Timeout" and "rank 1 has not received a message with tag 2" in timeout[1]
        assert aborted == ("Aborted", "rank 0 timed out: the call was aborted")


def calls_after_a_timeout(comm):
    if comm.rank == 0:
        x = np.zeros(3)
        calls = [lambda: comm.recv(x, 1, timeout=0.2), lambda: comm.recv(x, 1, timeout=60), lambda: comm.irecv(x, 1)]
        return [failure(comm, call) for call in (*calls, lambda: comm.all_reduce(x))]
    return [failure(comm, lambda: comm.recv(np.zeros(3), 0))]


def test_calls_after_a_timeout_say_that_an_earlier_call_has_timed_out():
    for first, second in on_ranks(2, calls_after_a_timeout):
        assert [kind for kind, _ in first] == ["Timeout"] + 3 * ["Aborted"]
        assert {text for _, text in first[1:]} == {"rank 0 timed out in an earlier call: the call was aborted"}
        assert second == [("Aborted", "rank 0 timed out: the call was aborted")]


def polled(comm, work):
    end = time.monotonic() + 60
    while not work.done():
        assert time.monotonic() < end, "it is in flight"
    return type(work.exception()).__name__


def awaited(comm, work):
    async def program():
        try:
            await asyncio.wait_for(work, 60)
        except nvcoll.Error as error:
            return type(error).__name__

    return asyncio.run(program())


def late_in_flight(comm, wait):
    if comm.rank == 0:
        return wait(comm, comm.irecv(np.zeros(3), 1, timeout=0.2)), comm.rank
    return failure(comm, lambda: comm.recv(np.zeros(3), 0))[0], comm.rank


@pytest.mark.parametrize("wait", [polled, awaited])
def test_a_receive_that_is_polled_or_awaited_ends_at_its_deadline(wait):
    for ranks in on_ranks(2, partial(late_in_flight, wait=wait)):
        assert ranks == [("Timeout", 0), ("Aborted", 1)]


def isend_at_the_end(comm):
    if comm.rank == 0:
        comm.isend(np.arange(300_000.0), 1)
        return 0.0
    time.sleep(0.3)
    x = np.zeros(300_000)
    comm.recv(x, 0)
    return float(x.sum())


def test_sends_in_flight_are_made_before_a_rank_ends():
    expected = [0.0, float(np.arange(300_000.0).sum())]
    assert nvcoll.Node(2).run(isend_at_the_end, timeout=60) == expected
    program = """
    sys.path[:0] = ["tests/collectives", "tests/lib"]
    from test_messages import isend_at_the_end
    print(isend_at_the_end(nvcoll.init(timeout=60)))
    """
    assert [out for _, out, _ in results(start(2, program, "isend"))] == [f"{one}\n" for one in expected]


def test_ranks_that_end_with_sends_that_nobody_receives_end():
    program = """
    comm = nvcoll.init(timeout=60)
    comm.isend(np.ones(1 << 20), 1 - comm.rank)
    comm.barrier()
    """
    for status, _, errors in results(start(2, program, "unreceived")):
        assert status == 0 and "send of 1048576 float64 to rank" in errors


def returned(comm):
    if comm.rank == 0:
        x = np.zeros(2)
        comm.recv(x, 1)  # it was sent before rank 1 returned
        return failure(comm, lambda: comm.recv(x, 1, tag=9))
    comm.send(np.ones(2), 0)
    return None


def test_a_rank_that_returned_is_named_and_what_it_sent_before_arrives():
    error = nvcoll.Node(2).run(returned, timeout=60)[0]
    says = "the program of rank 1 returned, and rank 0 called recv of 2 float64 from rank 1 with tag 9"
    assert error[0] == "Mismatch" and says in error[1]


def refusals(comm):
    x = np.zeros((4, 4))
    calls = [
        lambda: comm.send(x, 2),
        lambda: comm.recv(x, -1),
        lambda: comm.send(x, 0, tag=-1),
        lambda: comm.recv(x, tag=2**31),
        lambda: comm.recv(np.broadcast_to(x, (2, 4, 4))),
        lambda: comm.sendrecv(x[:3], 0, x[2:3], 0),
        lambda: comm.send([1, 2], 0),
    ]
    return [failure(comm, call) for call in calls]


def test_arguments_that_cannot_be_used_are_named():
    for answers in on_ranks(1, refusals):
        assert {name for name, _ in answers[0]} == {"InvalidArgument"}, answers
        words = ["dst", "src", "tag", "tag", "`x`", "any tag overlap", "`x`"]
        assert all(word in message for word, (_, message) in zip(words, answers[0], strict=True)), answers


def strided_and_itself(comm):
    x = np.arange(60_000.0).reshape(200, 300)
    out = np.zeros((300, 200)).T
    comm.sendrecv(x[::2, ::3], comm.rank, out[::2, ::3], comm.rank)
    assert np.array_equal(out[::2, ::3], x[::2, ::3]) and not out[1::2].any() and not out[:, 1::3].any()
    comm.send(x[0, :5], comm.rank)
    comm.recv(out[0, :5], comm.rank)
    assert np.array_equal(out[0, :5], x[0, :5])
    return failure(comm, lambda: comm.send(x, comm.rank))


def test_strided_arrays_and_messages_to_itself():
    for answers in on_ranks(1, strided_and_itself):
        assert answers[0][0] == "InvalidArgument" and "waits for itself" in answers[0][1]


def isend_and_irecv(comm):
    n, peers = 300_000, [rank for rank in range(comm.world_size) if rank != comm.rank]
    x, outs = np.full(n, comm.rank), {peer: np.empty(n, "i8") for peer in peers}
    works = {peer: comm.irecv(outs[peer], peer, tag=peer) for peer in peers}
    sends = [comm.isend(x, peer, tag=comm.rank) for peer in peers]
    total = comm.all_reduce(np.ones(4))  # it moves messages while it waits
    messages = {peer: work.wait() for peer, work in works.items()}
    assert [work.wait() for work in sends] == [None] * len(peers) and all(work.done() for work in sends)
    assert all((outs[peer] == peer).all() and messages[peer].source == peer for peer in peers)
    return float(total[0])


def test_sends_and_receives_that_return_at_once_go_on_beside_a_collective():
    assert on_ranks(3, isend_and_irecv) == ([3.0] * 3,) * 2


def works_in_asyncio(comm):
    async def main():
        x, out = np.full(50_000, comm.rank), np.empty(50_000, "i8")
        message, _ = await asyncio.gather(*map(awaited, [comm.irecv(out), comm.isend(x, 1 - comm.rank, tag=4)]))
        return int(out[-1]), message.tag

    async def awaited(work):
        return await work

    return asyncio.run(main())


def test_works_of_messages_can_be_awaited():
    assert on_ranks(2, works_in_asyncio) == ([(1, 4), (0, 4)],) * 2


def waits_and_arrays_in_flight(comm):
    x = np.zeros(10)
    work = comm.irecv(x, tag=1)
    found = [failure(comm, lambda: work.wait(timeout=0.05)), failure(comm, lambda: comm.recv(x[3:4], tag=2))]
    comm.send(np.ones(10), comm.rank, tag=1)
    return [*found, work.wait().count, x.sum()]


def test_a_wait_that_gives_up_leaves_the_receive_in_flight_and_its_array_refused():
    for answers in on_ranks(1, waits_and_arrays_in_flight):
        late, busy, count, total = answers[0]
        assert late[0] == "Timeout" and "recv of 10 float64 from any rank with tag 1 is in flight" in late[1]
        assert busy[0] == "Busy" and "shares memory" in busy[1] and (count, total) == (10, 10.0)


def pairwise_in_a_group(comm):
    n = comm.world_size
    parts, outs = [np.full(100_000, 10 * comm.rank + to) for to in range(n)], np.empty((n, 100_000), "i8")
    total = np.ones(3)
    with comm.group() as group:
        messages = [comm.recv(outs[peer], peer) for peer in range(n)]
        comm.all_reduce(total)
        for peer in range(n):
            comm.send(parts[peer], peer, tag=peer)
        assert messages[0].source is None
    assert [message.source for message in messages] == [*range(n)] and messages[0].tag == comm.rank
    parts[comm.rank][:] = 7
    group.run()
    assert len(group) == 2 * n + 1 and total[0] == n * n
    return [int(out[-1]) for out in outs]


def test_messages_and_collectives_in_a_group_launch_together_and_again():
    expected = [[7 if source == rank else 10 * source + rank for source in range(3)] for rank in range(3)]
    assert on_ranks(3, pairwise_in_a_group) == (expected,) * 2


def group_on_overlapping_arrays(comm):
    x = np.zeros(10)

    def call(first, second):
        with comm.group():
            comm.recv(x[first], 0)
            second()

    sends, collective = lambda: comm.send(x[4:], 0), lambda: comm.all_reduce(x[4:])
    return [failure(comm, lambda one=one: call(slice(0, 5), one)) for one in (sends, collective)]


def test_arrays_of_a_group_that_overlap_are_refused():
    for answers in on_ranks(1, group_on_overlapping_arrays):
        assert all(name == "InvalidArgument" and "overlap" in text for name, text in answers[0]), answers


def counted_sends(comm):
    x = np.zeros(1000, "f4")
    for _ in range(3):
        comm.sendrecv(x, 1 - comm.rank, np.empty(1000, "f4"))
    if comm.rank == 0:
        comm.isend(x[:10], 0).wait()


def test_a_report_counts_sends_with_their_bytes_and_prices_them():
    node = nvcoll.Node(2)
    node.run(counted_sends, timeout=60)
    report = node.report(on="hgx-h100")
    rows = {(row.collective, row.nbytes, row.ranks, row.times) for row in report.calls}
    assert rows == {("sendrecv", 4000, (0, 1), 3), ("sendrecv", 4000, (1, 0), 3), ("sendrecv", 40, (0,), 1)}
    expected = nvcoll.fabric("hgx-h100").among((0, 1)).predict("sendrecv", 4000).time_us
    assert {row.prices[0].time_us for row in report.calls} == {expected, 0.0}
    assert "sends, counted by the sender" in str(report)


# Random programs. All ranks know the whole program; each makes its own part, in the order of the list.

BYTES = st.sampled_from([0, 1, 100, 105, 16384, 16385, 65537, 300_001, 2 << 20])


@st.composite
def exchanges(draw, world_size):
    """Rounds of messages: each is (source, destination, tag, bytes), in the order in which the source sends them."""
    ranks = st.integers(0, world_size - 1)
    message = st.tuples(ranks, ranks, st.integers(0, 2), BYTES)
    rounds = draw(st.lists(st.lists(message, min_size=1, max_size=8), min_size=1, max_size=3))
    return rounds, draw(st.sampled_from(["group", "work"])), draw(st.booleans()), draw(st.integers(0, 2**30))


def expected_of(messages, rank, receives):
    """The oracle: MPI's matching of receives, in order, with messages in the order of each source."""
    found = []
    waiting = [m for m in messages if m[1] == rank]
    for source, tag, nbytes in receives:
        at = next(i for i, m in enumerate(waiting) if m[0] == source and tag in (None, m[2]) and m[3] == nbytes)
        assert not any(m[0] == source and tag in (None, m[2]) for m in waiting[:at]), "the program is not one"
        found.append(waiting.pop(at))
    return found


def receives_of(messages, rank, random):
    """Receives that take every message of a rank: each names the source, and the tag or none."""
    waiting, receives = [m for m in messages if m[1] == rank], []
    while waiting:
        at = random.integers(len(waiting))
        source, _, tag, _ = waiting[at]
        alike = [m for m in waiting if m[0] == source]
        if random.integers(2):
            chosen, tag = alike[0], None
        else:
            chosen = next(m for m in alike if m[2] == tag)
        receives.append((source, tag, chosen[3]))
        waiting.remove(chosen)
    return receives


def content(message, number, nbytes):
    source, destination, tag, _ = message
    return ((np.arange(nbytes) * 3 + 7 * source + 5 * destination + tag + number) % 253).astype("u1")


class RandomExchange:
    def __init__(self, program):
        self.program = program

    def __call__(self, comm):
        rounds, how, is_symmetric, seed = self.program
        random, make = np.random.default_rng(seed), comm.empty if is_symmetric else np.empty
        for messages in rounds:
            all_receives = [receives_of(messages, rank, random) for rank in range(comm.world_size)]
            receives = all_receives[comm.rank]
            sends = [(i, m) for i, m in enumerate(messages) if m[0] == comm.rank]
            outs = [make(nbytes, "u1") for _, _, nbytes in receives]
            arrays = []
            for number, message in sends:
                arrays.append(make(message[3], "u1"))
                arrays[-1][:] = content(message, number, message[3])
            if how == "group":
                with comm.group():
                    got = [comm.recv(o, s, tag=t) for o, (s, t, _) in zip(outs, receives, strict=True)]
                    for array, (_, message) in zip(arrays, sends, strict=True):
                        comm.send(array, message[1], tag=message[2])
            else:
                works = [comm.irecv(o, s, tag=t) for o, (s, t, _) in zip(outs, receives, strict=True)]
                works += [comm.isend(a, m[1], tag=m[2]) for a, (_, m) in zip(arrays, sends, strict=True)]
                got = [work.wait() for work in works][: len(receives)]
            expected = expected_of(messages, comm.rank, receives)
            for message, out, envelope in zip(expected, outs, got, strict=True):
                assert (envelope.source, envelope.tag, envelope.count) == (message[0], message[2], message[3])
                same = [i for i, m in enumerate(messages) if m == message]
                assert any(np.array_equal(out, content(message, number, out.size)) for number in same)
            comm.barrier()
        return True


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(exchanges(3))
def test_random_exchanges_on_threads_match_as_in_mpi(program):
    assert nvcoll.Node(3).run(RandomExchange(program), timeout=60) == [True] * 3


@pytest.fixture(scope="module")
def job():
    with Job(3) as job:
        yield job


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(program=exchanges(3))
def test_random_exchanges_between_processes_match_as_in_mpi(job, program):
    assert job.run(RandomExchange(program)) == [True] * 3


def messages_beside_calls(comm):
    peer, out = 1 - comm.rank, np.empty(10)

    def calls():
        for _ in range(200):
            comm.all_reduce(np.zeros(20_000), async_op=True).wait()

    thread = threading.Thread(target=calls)
    thread.start()
    try:
        for number in range(3000):
            comm.sendrecv(np.full(10, float(number)), peer, out, peer)
            assert (out == number).all()
    finally:
        thread.join()
    return comm.rank


def test_messages_of_one_thread_are_never_refused_because_calls_of_the_rank_are_in_flight():
    with Job(2) as job:
        assert job.run(messages_beside_calls) == [0, 1]
