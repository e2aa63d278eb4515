"""Messages between hosts arrive as on one host: by tag, in the order of sends, whatever their length."""

import numpy as np
import pytest
from conftest import run_hosts
from fake import Network
from hypothesis import given, settings
from hypothesis import strategies as st

import nvcoll

HOSTS = ((0, 1), (2, 3))
SENDS = st.tuples(
    st.integers(0, 3), st.integers(0, 3), st.integers(0, 2), st.sampled_from([0, 3, 2048, 2049, 50_000])
).filter(lambda send: send[0] != send[1])


@settings(max_examples=40, deadline=None)
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
        with comm.group():
            comm.send(np.full(4000, float(rank)), (rank + 2) % n, tag=5)
            message = comm.recv(grouped, (rank + 2) % n)
        comm.barrier()
        return out[0], grouped[0], message.tag, message.source

    for rank, got in enumerate(run_hosts(HOSTS, program)):
        assert got == ((rank - 1) % 4, (rank + 2) % 4, 5, (rank + 2) % 4)


def test_a_message_that_does_not_fit_is_named_on_both_sides():
    def program(comm):
        comm.barrier()
        with pytest.raises(nvcoll.Error) as caught:
            if comm.rank == 0:
                comm.send(np.zeros(9000), 3)
            elif comm.rank == 3:
                comm.recv(np.zeros(8000), 0)
            comm.barrier()
        return str(caught.value)

    for text in run_hosts(HOSTS, program):
        assert "rank 0 sent 9000 float64 with tag 0, and rank 3 receives it into an array of 8000 float64" in text


def test_a_receive_has_a_deadline_and_needs_a_source():
    def program(comm):
        comm.barrier()
        with pytest.raises(nvcoll.InvalidArgument, match="pass the rank that sends"):
            comm.recv(np.zeros(1))
        with pytest.raises(nvcoll.Timeout) as caught:
            if comm.rank == 0:
                comm.recv(np.zeros(1), 2, timeout=0.3)
            comm.barrier()
        return str(caught.value)

    assert all("timed out after 0.3 s" in text for text in run_hosts(HOSTS, program))


def test_a_lost_rank_ends_receives():
    network = Network(4)

    def program(comm):
        comm.barrier()
        if comm.rank == 2:
            network.kill(2)
            return None
        with pytest.raises(nvcoll.Error):
            comm.recv(np.zeros(1), 2) if comm.rank == 0 else comm.barrier()
        return True

    run_hosts(HOSTS, program, network=network)
