"""Messages between hosts arrive as on one host: by tag, in the order of sends, whatever their length."""

import os
import socket
import subprocess
import sys
import time
from importlib.util import find_spec

import numpy as np
import pytest
from amounts import examples
from fake_engine import Network
from hypothesis import given, settings
from hypothesis import strategies as st
from pretended_hosts import run_hosts

import nvcoll
from nvcoll.hosts import failures

HOSTS = ((0, 1), (2, 3))
SENDS = st.tuples(
    st.integers(0, 3), st.integers(0, 3), st.integers(0, 2), st.sampled_from([0, 3, 2048, 2049, 50_000])
).filter(lambda send: send[0] != send[1])


@settings(max_examples=examples(40), deadline=None)
@given(sends=st.lists(SENDS, max_size=10), seed=st.integers(0, 99), delay=st.sampled_from([0, 0.002]), data=st.data())
def test_every_message_takes_its_receive(sends, seed, delay, data):
    numbered = list(enumerate(sends))
    order = {rank: data.draw(st.permutations(sorted({s[2] for s in sends}))) for rank in range(4)}

    def program(comm):
        works, received = [], []
        for tag in order[comm.rank]:
            for number, (src, dst, of, n) in numbered:
                if dst == comm.rank and of == tag:
                    out = np.zeros(n)
                    works.append(comm.irecv(out, src, tag=tag))
                    received.append((number, out, works[-1], src, tag))
        for number, (src, dst, tag, n) in numbered:
            if src == comm.rank:
                works.append(comm.isend(np.full(n, float(number)), dst, tag=tag))
        for work in works:
            work.wait()
        comm.barrier()
        for number, out, work, src, tag in received:
            message = work.wait()
            assert (message.source, message.tag, message.count) == (src, tag, len(out))
            assert (out == number).all()
        return len(received)

    assert sum(run_hosts(HOSTS, program, seed=seed, delay=delay)) == len(sends)


def test_rings_groups_and_any_tag():
    def program(comm):
        n, rank = comm.world_size, comm.rank
        out, grouped = np.zeros(1), np.zeros(4000)
        comm.sendrecv(np.array([float(rank)]), (rank + 1) % n, out, (rank - 1) % n)
        with comm.group():
            comm.send(np.full(4000, float(rank)), (rank + 2) % n, tag=5)
            message = comm.recv(grouped, (rank + 2) % n)
        comm.barrier()
        return out[0], grouped[0], message.tag, message.source

    for rank, got in enumerate(run_hosts(HOSTS, program)):
        assert got == ((rank - 1) % 4, (rank + 2) % 4, 5, (rank + 2) % 4)


def test_a_message_that_does_not_fit_is_named_on_both_sides():
    def program(comm):
        with pytest.raises(nvcoll.Error) as caught:
            comm.barrier()
            if comm.rank == 0:
                comm.send(np.zeros(9000), 3)
            elif comm.rank == 3:
                comm.recv(np.zeros(8000), 0)
            comm.barrier()
        return caught.value.ranks, str(caught.value)

    for ranks, text in run_hosts(HOSTS, program):
        assert ranks == (0, 3)
        assert "rank 0 sent 9000 float64 with tag 0, and rank 3 receives it into an array of 8000 float64" in text


def test_a_receive_has_a_deadline_and_needs_a_source():
    def program(comm):
        with pytest.raises(nvcoll.InvalidArgument, match="pass the rank that sends"):
            comm.recv(np.zeros(1))
        with pytest.raises(nvcoll.Timeout) as caught:
            comm.barrier()
            if comm.rank == 0:
                comm.recv(np.zeros(1), 2, timeout=0.3)
            comm.barrier()
        return str(caught.value)

    assert all("timed out after 0.3 s" in text for text in run_hosts(HOSTS, program))


def test_a_lost_rank_ends_receives():
    network = Network(4)

    def program(comm):
        if comm.rank == 2:
            comm.barrier()
            network.kill(2)
            return None
        with pytest.raises(nvcoll.Error):
            comm.barrier()
            comm.recv(np.zeros(1), 2) if comm.rank == 0 else comm.barrier()
        return True

    run_hosts(HOSTS, program, network=network)


def test_a_rank_that_was_alone_on_its_host_is_lost_at_once(monkeypatch):
    """Nobody on its host can say more, so nobody waits for a reason."""
    monkeypatch.setattr(failures, "REASON_S", 1000.0)
    network = Network(3)

    def program(comm):
        comm.barrier()
        if comm.rank == 2:
            return network.kill(2)
        with pytest.raises(nvcoll.PeerLost) as caught:
            comm.barrier()
            comm.barrier()
        return caught.value.ranks, caught.value.rank, caught.value.signal, caught.value.host

    told = run_hosts(((0, 1), (2,)), program, network=network)[:2]
    assert told == [((2,), 2, None, "host-1")] * 2


def test_a_rank_does_not_hear_of_itself_that_it_is_late(monkeypatch):
    """Another host knows only the rank that it waits for, which waits for a rank of its own host."""
    monkeypatch.setattr(failures, "REASON_S", 0.01)

    def program(comm):
        comm.barrier()
        if comm.rank == 2:
            return time.sleep(3)
        with pytest.raises(nvcoll.Timeout) as caught:
            comm.barrier(timeout=0.5)
        return caught.value

    first, second, _ = run_hosts(((0,), (1, 2)), program)
    assert first.late == first.ranks == (1,) and first.host == "host-1"
    assert 1 not in second.late and second.host is None
    assert "waits for another one of its host" in str(second) or "rank 2 has not entered the call" in str(second)


def test_ranks_of_a_communicator_of_some_hosts_are_told_as_ranks_of_the_job():
    def program(comm):
        comm.barrier()
        if comm.rank == 0:
            return None
        part = comm.subset([3, 2, 1])
        if comm.rank == 3:
            return time.sleep(3)
        with pytest.raises(nvcoll.Timeout) as caught:
            part.barrier(timeout=0.3)
        return caught.value

    errors = run_hosts(((0, 1), (2, 3)), program)[1:3]
    assert all(error.late in ((3,), (2,), ()) for error in errors)
    assert (3,) in [error.late for error in errors]


def test_a_host_that_has_left_is_not_lost(monkeypatch):
    for name, seconds in (("SILENCE_S", 0.5), ("BEAT_S", 0.05), ("REASON_S", 0.1)):
        monkeypatch.setattr(failures, name, seconds)

    def program(comm):
        comm.barrier()
        if comm.rank != 1:
            pair = comm.subset([0, 2])
            for _ in range(20):
                pair.barrier()
                time.sleep(0.05)

    run_hosts(((0,), (1,), (2,)), program)


def test_a_later_receive_takes_a_message_that_came_before():
    """And a deadline holds while a receive without one waits."""

    def program(comm):
        comm.barrier()
        x = np.zeros(1)
        for n in (1, 9000):
            if comm.rank == 2:
                comm.isend(np.full(n, 5.0), 0, tag=5)
                comm.recv(x, 0, tag=9)
                comm.send(np.full(n, 6.0), 0, tag=6)
            elif comm.rank == 0:
                early, late = np.zeros(n), np.zeros(n)
                work = comm.irecv(late, 2, tag=6)
                time.sleep(0.2)
                comm.recv(early, 2, tag=5)
                comm.send(x, 2, tag=9)
                work.wait()
                assert early[0] == 5 and late[0] == 6
            if n == 1:
                comm.barrier()
        with pytest.raises(nvcoll.Timeout) as caught:
            comm.barrier()
            if comm.rank == 0:
                forgotten = comm.irecv(np.zeros(1), 2, tag=1)
                comm.recv(np.zeros(1), 2, tag=2, timeout=0.3)
            comm.barrier()
        assert comm.rank != 0 or isinstance(forgotten.exception(), nvcoll.Timeout)
        return str(caught.value)

    assert all("after 0.3 s: rank 2: no message with tag 2" in text for text in run_hosts(HOSTS, program))


def test_data_of_one_kind_come_in_the_order_of_sends():
    def program(comm):
        comm.barrier()
        if comm.rank == 2:
            works = [comm.isend(np.full(3000, float(k)), 0, tag=k) for k in range(230)]
            works.append(comm.isend(np.zeros(1), 0, tag=300))
            for work in works:
                work.wait()
        elif comm.rank == 0:
            out = np.zeros(3000)
            comm.recv(np.zeros(1), 2, tag=300)
            for k in reversed(range(230)):
                comm.recv(out, 2, tag=k)
                assert (out == k).all()
        comm.barrier()

    run_hosts(HOSTS, program)


def test_a_failure_inside_a_host_ends_the_others_with_ranks_of_the_communicator():
    def program(comm):
        with pytest.raises(nvcoll.Error) as caught:
            comm.barrier()
            if comm.rank == 2:
                comm.send(np.zeros(4), 3, tag=1)
            elif comm.rank == 3:
                comm.recv(np.zeros(5), 2)
            comm.barrier()
        return caught.value.ranks, str(caught.value)

    for ranks, text in run_hosts(HOSTS, program):
        assert ranks == (2, 3)
        assert "rank 2 sent 4 float64 with tag 1, and rank 3 receives it" in text


def test_sends_that_nobody_receives_yet_do_not_block_and_a_rank_that_leaves_waits_for_them():
    def program(comm):
        pair = comm.subset([0, 2]) if comm.rank in (0, 2) else None
        peer, out = (comm.rank + 2) % 4, np.zeros(200)
        works = [comm.isend(np.full(1, float(k)), peer) for k in range(200)]
        works += [comm.irecv(out[k : k + 1], peer) for k in range(200)]
        for work in works:
            work.wait()
        assert (out == np.arange(200)).all()
        comm.barrier()
        if comm.rank == 2:
            pair.send(np.ones(2), 0)
            comm.leave()
        elif comm.rank == 0:
            time.sleep(0.2)
            pair.recv(out[::100], 1)
            assert out[100] == 1

    run_hosts(HOSTS, program)


OVER_GLOO = """
import time
import numpy as np, nvcoll
comm = nvcoll.init(timeout=60)
far, lengths, many = (comm.rank + 2) % 4, [1, 2048, 2049, 300_000], np.zeros(200)
outs = [np.zeros(n) for n in lengths]
works = [comm.isend(np.full(1, float(k)), far, tag=9) for k in range(200)]
works += [comm.irecv(many[k : k + 1], far, tag=9) for k in range(200)]
works += [comm.irecv(outs[tag], far, tag=tag) for tag in (3, 1, 0, 2)]
works += [comm.isend(np.full(lengths[tag], 10.0 * comm.rank + tag), far, tag=tag) for tag in range(4)]
for work in works:
    work.wait()
assert (many == np.arange(200)).all() and all((out == 10 * far + tag).all() for tag, out in enumerate(outs))
if comm.rank == 2:
    comm.send(np.ones(2), 0)
elif comm.rank == 0:
    time.sleep(0.5)  # its sender is leaving
    assert comm.recv(many[:2], 2).count == 2 and many[0] == 1
print(len(comm.hosts), "right")
"""


INTERRUPTED = """
import os, signal, threading
import numpy as np, nvcoll
comm = nvcoll.init(timeout=60)
comm.barrier()
if comm.rank == 0:
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    comm.recv(np.zeros(1), 1 - comm.rank)
except KeyboardInterrupt:
    print(comm.rank, "right")
except nvcoll.Aborted as error:
    assert error.ranks == (0,), error
    print(comm.rank, "right")
"""


def run_over_gloo(program, size, per_host):
    """Runs a program on ranks of which some pretend to share a host; returns their output."""
    if find_spec("torch") is None:
        pytest.skip("torch is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "NVCOLL_WORLD_SIZE": str(size)}
    base, command = os.environ | place | {"NVCOLL_PRETEND_HOSTS": str(per_host)}, [sys.executable, "-c", program]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    ranks = [subprocess.Popen(command, env=base | {"NVCOLL_RANK": str(rank)}, **pipes) for rank in range(size)]
    try:
        outputs = [rank.communicate(timeout=100)[0] for rank in ranks]
        assert [rank.returncode for rank in ranks] == [0] * size, outputs
        return outputs
    finally:
        for rank in ranks:
            rank.kill()


def test_messages_over_gloo():
    assert all("2 right" in output for output in run_over_gloo(OVER_GLOO, 4, 2))


def test_ctrl_c_ends_a_receive_of_a_rank_that_is_alone_on_its_host():
    for rank, output in enumerate(run_over_gloo(INTERRUPTED, 2, 1)):
        assert f"{rank} right" in output
