"""Calls across hosts give what the same program gives on one host, to the bit."""

import threading
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from pretended_hosts import run_hosts

import nvcoll
import nvcoll.hosts as hosts_package
from nvcoll._nvcoll import dtypes, ops

HOSTS = [((0, 1), (2, 3)), ((0,), (1,)), ((0, 1), (2,), (3, 4, 5)), ((0, 2), (1, 3)), ((0,), (1,), (2,))]
LENGTHS = st.one_of(st.integers(0, 40), st.sampled_from([1000, 20_000, 300_001]))


def numbers(dtype, n, seed):
    made = np.random.default_rng(seed).uniform(-4, 4, n)
    if dtype == "bool":
        return made > 0
    made = made * 20 if dtype.startswith(("int", "uint")) else made
    return abs(made).astype(dtype) if dtype.startswith("u") else made.astype(getattr(ml_dtypes, dtype, dtype))


def check(hosts, program, **how):
    """Runs a program on hosts and on one; all results must have the same bytes."""
    size = sum(map(len, hosts))
    with nvcoll.Node(size) as node:
        expected = node.run(program, timeout=60)
    found = run_hosts(hosts, program, **how)
    for rank, (a, b) in enumerate(zip(expected, found, strict=True)):
        assert type(a) is type(b), rank
        if a is not None:
            assert a.dtype == b.dtype and a.shape == b.shape, rank
            assert a.tobytes() == b.tobytes(), rank


@st.composite
def reductions(draw):
    op = draw(st.sampled_from(ops()))
    return op.name, draw(st.sampled_from(op.dtypes))


@settings(max_examples=examples(60), deadline=None)
@given(
    hosts=st.sampled_from(HOSTS),
    call=st.sampled_from(["all_reduce", "reduce", "reduce_scatter", "scan", "exscan"]),
    which=reductions(),
    n=LENGTHS,
    seed=st.integers(0, 99),
    delay=st.sampled_from([0, 0, 0.002]),
    data=st.data(),
)
def test_reductions(hosts, call, which, n, seed, delay, data):
    op, dtype = which
    size = sum(map(len, hosts))
    if call in ("scan", "exscan") and op in ("avg", "premul_sum"):
        op, dtype = "sum", "float32"
    how = {"root": data.draw(st.integers(0, size - 1))} if call == "reduce" else {}
    if call == "reduce_scatter" and data.draw(st.booleans()):
        cuts = sorted(data.draw(st.lists(st.integers(0, n), min_size=size - 1, max_size=size - 1)))
        how["counts"] = np.diff([0, *cuts, n]).tolist()
    has_out = data.draw(st.booleans())

    def program(comm):
        x = numbers(dtype, n, (seed, comm.rank))
        scalar = comm.rank + 1 if dtype.startswith(("int", "uint")) else 0.3 * comm.rank + 0.7
        by = nvcoll.premul_sum(scalar) if op == "premul_sum" else op
        out = None
        if has_out:
            count = how.get("counts", [n // size + (r < n % size) for r in range(size)])[comm.rank]
            out = np.zeros(count if call == "reduce_scatter" else n, x.dtype)
        before = x.copy()
        got = getattr(comm, call)(x, by, out=out, **how)
        assert call != "reduce" or comm.rank == how["root"] or x.tobytes() == before.tobytes()
        return got

    check(hosts, program, seed=seed, delay=delay)


@settings(max_examples=examples(40), deadline=None)
@given(
    hosts=st.sampled_from(HOSTS),
    call=st.sampled_from(["all_gather", "broadcast", "gather", "scatter", "all_to_all"]),
    dtype=st.sampled_from([row.name for row in dtypes()]),
    n=LENGTHS,
    seed=st.integers(0, 99),
    delay=st.sampled_from([0, 0, 0.002]),
    data=st.data(),
)
def test_copies(hosts, call, dtype, n, seed, delay, data):
    size = sum(map(len, hosts))
    root = data.draw(st.integers(0, size - 1))
    counts = data.draw(st.none() | st.lists(st.integers(0, 3000), min_size=size, max_size=size))
    how = {} if call in ("all_gather", "all_to_all") else {"root": root}
    if counts and call != "broadcast":
        how["counts"] = counts
    is_table = data.draw(st.booleans())

    def program(comm):
        own = dict(how)
        length = n
        if call in ("all_gather", "gather") and counts:
            length = counts[comm.rank]
        elif call == "scatter" and counts:
            length = sum(counts)
        elif call == "all_to_all" and counts:
            rows = [counts[r:] + counts[:r] for r in range(size)]
            own["counts"] = rows if is_table else rows[comm.rank]
            if not is_table and seed % 2:
                own["recv_counts"] = [row[comm.rank] for row in rows]
            length = sum(counts)
        return getattr(comm, call)(numbers(dtype, length, (seed, comm.rank)), **own)

    check(hosts, program, seed=seed, delay=delay)


def test_strided_arrays_rows_and_torch_tensors():
    torch = pytest.importorskip("torch")

    def program(comm):
        wide = np.arange(24, dtype="f4").reshape(4, 6) * (comm.rank + 1)
        comm.all_reduce(wide[:, ::2])
        rows = comm.all_gather(np.full((2, 3), comm.rank))
        tensor = torch.arange(10, dtype=torch.bfloat16) / 3 + comm.rank
        comm.all_reduce(tensor, "avg")
        return np.concatenate([wide.reshape(-1), rows.reshape(-1), tensor.float().numpy()])

    check(HOSTS[0], program)


def test_nested_adds_the_sums_of_hosts():
    xs = [np.random.default_rng(r).standard_normal(50_000).astype("f4") for r in range(6)]
    expected = ((xs[0] + xs[1]) + xs[2]) + ((xs[3] + xs[4]) + xs[5])
    counts = [100, 0, 20_000, 29_000, 900, 0]
    begins = np.cumsum([0, *counts])

    def program(comm):
        mine = xs[comm.rank].copy()
        part = comm.reduce_scatter(mine, counts=counts, algorithm="two_level")
        return comm.all_reduce(mine, algorithm="two_level"), part

    for rank, (whole, part) in enumerate(run_hosts(((0, 1, 2), (3, 4, 5)), program)):
        assert np.array_equal(whole, expected)
        assert np.array_equal(part, expected[begins[rank] : begins[rank + 1]])


def test_async_calls_groups_split_and_subset():
    def program(comm):
        xs = [np.full(1000, float(comm.rank + k)) for k in range(4)]
        works = [comm.all_reduce(x, async_op=True) for x in xs]
        y, z = np.ones(3) * comm.rank, np.ones(70_000) * comm.rank
        with comm.group() as group:
            comm.all_reduce(y)
            comm.broadcast(z, root=1)
        assert len(group) == 2
        halves = comm.split(comm.rank % 2, -comm.rank)
        pair = comm.subset([comm.world_size - 1, 0]) if comm.rank in (0, comm.world_size - 1) else None
        told = halves.all_gather(np.array([comm.rank]))
        both = pair.all_reduce(np.array([1.5])) if pair else np.zeros(1)
        comm.barrier()
        return np.concatenate([*(work.wait()[:2] for work in works), y, z[:2], told, both])

    check(((0, 1, 2), (3, 4, 5)), program)


def test_hosts_and_recent_calls():
    def program(comm):
        comm.barrier()
        comm.all_reduce(np.zeros(3))
        return comm.hosts, comm.ranks, comm.recent_calls()

    hosts, ranks, recent = run_hosts(HOSTS[0], program)[3]
    assert (hosts, ranks) == (HOSTS[0], (0, 1, 2, 3))
    assert recent == [(2, "all_reduce of 3 float64, sum"), (1, "barrier")]


@pytest.mark.parametrize("other", [2, 1])
def test_a_mismatch_names_both_calls_on_every_rank(other):
    def program(comm):
        with pytest.raises((nvcoll.Mismatch, nvcoll.Aborted)) as caught:
            comm.barrier()  # may end by the failure too, if this rank is late
            comm.all_reduce(np.zeros(2 if comm.rank == other else 3, "f4"))
        with pytest.raises(nvcoll.Error):
            comm.barrier()
        return type(caught.value), str(caught.value)

    told = run_hosts(HOSTS[0], program)
    assert all(kind is nvcoll.Mismatch for kind, _ in told), told
    assert all("all_reduce of 3 float32, sum" in text and "all_reduce of 2 float32, sum" in text for _, text in told)


def refusals(comm, calls):
    told = []
    for call in calls:
        with pytest.raises(nvcoll.InvalidArgument) as refused:
            call()
        told.append(str(refused.value))
    assert (comm.all_reduce(np.ones(2)) == comm.world_size).all(), "the others wait"
    return told


def test_arguments_are_refused_as_on_one_host():
    def program(comm):
        x = np.zeros(16)
        return refusals(
            comm,
            [
                lambda: comm.all_reduce(x, "nothing"),
                lambda: comm.all_reduce(x > 0, "avg"),
                lambda: comm.scan(x, "avg"),
                lambda: comm.broadcast(x, root=4),
                lambda: comm.broadcast(x, root=True),
                lambda: comm.reduce_scatter(x, counts=[1, 1, 1, 2]),
                lambda: comm.all_gather(x, counts=[1, 2]),
                lambda: comm.all_reduce(x, out=np.zeros(3)),
                lambda: comm.all_reduce(x[:4], out=x[1:5]),
                lambda: comm.all_gather(x[3:5], out=x[:8]),
                lambda: comm.all_to_all(x[:4], out=x[:4]),
                lambda: comm.all_reduce("text"),
                lambda: comm.all_reduce(np.broadcast_to(x, (2, 16))),
                lambda: comm.gather(x, counts=[8.5] * 4),
                lambda: comm.scatter(None, root=0),
            ],
        )

    with nvcoll.Node(4) as node:
        assert run_hosts(HOSTS[0], program) == node.run(program)


def test_what_hosts_refuse():
    def program(comm):
        x = np.zeros(4)
        return refusals(
            comm,
            [
                lambda: comm.all_reduce(x, algorithm="ring"),
                lambda: comm.all_reduce(x, path="mapped"),
                lambda: comm.broadcast(x, algorithm="two_level"),
                lambda: comm.barrier(timeout=-1),
                lambda: comm.split("blue"),
                lambda: comm.shrink(),
            ],
        )

    assert len(run_hosts(HOSTS[0], program)) == 4


def test_communicator_works_groups_and_messages_are_those_of_one_host():
    def program(comm):
        x, out, far = np.zeros(2), np.zeros(2), (comm.rank + 2) % 4
        works = [comm.all_reduce(np.ones(2), async_op=True), comm.isend(x, far), comm.irecv(out, far)]
        with comm.group() as group:
            comm.all_gather(np.ones(1))
        assert (
            isinstance(comm, nvcoll.Communicator) and comm.all_reduce.__doc__ == nvcoll.Communicator.all_reduce.__doc__
        )
        return [type(work) for work in works], type(group), len(group), type([work.wait() for work in works][2])

    expected = [nvcoll.Work] * 3, nvcoll.Group, 1, nvcoll.Message
    assert run_hosts(HOSTS[0], program) == [expected] * 4


def test_groups_refuse_what_they_refuse_on_one_host():
    def program(comm):
        told, x = [], np.zeros(1)
        calls = [
            comm.barrier,
            lambda: comm.split(0),
            lambda: comm.all_reduce(x, timeout=1),
            lambda: comm.all_reduce(x, async_op=True),
            lambda: comm.recv(x, 0, timeout=1),
            lambda: comm.group().__enter__(),
        ]
        with comm.group() as group:
            for call in calls:
                with pytest.raises((nvcoll.InvalidArgument, nvcoll.Busy)) as refused:
                    call()
                told.append(str(refused.value))
            comm.all_reduce(x + 1)
        group.run(timeout=30)
        return told, len(group)

    with nvcoll.Node(4) as node:
        assert run_hosts(HOSTS[0], program) == node.run(program)


def test_calls_in_flight_go_on_while_a_group_is_open():
    def program(comm):
        xs = [np.full(70_000, 1.0) for _ in range(4)]
        works = [comm.all_reduce(x, async_op=True) for x in xs]
        with comm.group(async_op=True) as group:
            comm.all_reduce(xs[0])
            for work in works:
                work.wait()
        group.work.wait()
        return xs[0][:1], xs[3][:1]

    assert run_hosts(HOSTS[0], program) == [([16.0], [4.0])] * 4


def test_a_failure_ends_the_calls_of_all_communicators():
    """Also of one whose ranks of this host wait for each other."""
    are_there, is_over = threading.Barrier(3), threading.Event()

    def program(comm):
        some = comm.subset([0, 1, 2]) if comm.rank < 3 else None
        comm.barrier()
        if comm.rank == 1:
            is_over.wait(100)
            return None
        are_there.wait(100)
        if comm.rank == 3:
            time.sleep(0.3)  # the others are in their calls
            return comm.abort()
        with pytest.raises(nvcoll.Aborted) as caught:
            some.barrier()
        is_over.set()
        return caught.value.ranks

    assert run_hosts(HOSTS[0], program, timeout=None) == [(3,), None, (3,), None]


def test_one_file_starts_all_threads():
    folder = Path(hosts_package.__file__).parent
    assert [path.name for path in folder.glob("*.py") if "Thread(" in path.read_text()] == ["issued_calls.py"]
