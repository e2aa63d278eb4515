"""Every call of torch.distributed on the backend nvcoll, at 2 and 4 ranks, against the result by hand."""

import os

import pytest

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")

SIZES = [pytest.param(n, marks=pytest.mark.ranks(n), id=f"{n} ranks") for n in (2, 4)]
pytestmark = pytest.mark.parametrize("n", SIZES)

SUMMED = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8"]
SUMMED += ["complex64", "complex128"]
MOVED = [*SUMMED, "bool", "uint16", "uint32", "uint64", "complex32", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"]


def numbers(dtype, rank, count=5):
    """Returns elements that differ between ranks, in any dtype."""
    plain = torch.arange(count) + 3 * rank
    if dtype.itemsize == 1 and dtype not in (torch.int8, torch.uint8, torch.bool):
        return plain.to(torch.uint8).view(dtype)
    return plain.to(dtype)


def same(x, y):
    """Says whether two tensors have the same bits."""
    return torch.equal(x.contiguous().flatten().view(torch.uint8), y.contiguous().flatten().view(torch.uint8))


@pytest.mark.parametrize("name", SUMMED)
def test_all_reduce_adds_in_every_dtype(n, name):
    dtype = getattr(torch, name)
    x = numbers(dtype, dist.get_rank())
    dist.all_reduce(x)
    assert torch.equal(x, sum(numbers(dtype, rank) for rank in range(n)))


@pytest.mark.parametrize("op", ["SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "AVG"])
def test_every_op(n, op):
    dtype = torch.float32 if op == "AVG" else torch.int64
    of_ranks = torch.stack([numbers(dtype, rank) + 1 for rank in range(n)])
    x = of_ranks[dist.get_rank()].clone()
    dist.all_reduce(x, getattr(dist.ReduceOp, op))
    fold = {"SUM": torch.add, "PRODUCT": torch.mul, "MIN": torch.minimum, "MAX": torch.maximum, "AVG": torch.add}
    fold |= {"BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor}
    expected = of_ranks[0]
    for one in of_ranks[1:]:
        expected = fold[op](expected, one)
    assert torch.equal(x, expected / n if op == "AVG" else expected)


def test_the_average_of_integers_is_rounded_toward_zero(n):
    x = torch.tensor([-1 - 2 * dist.get_rank(), 7, dist.get_rank()])
    total = sum(torch.tensor([-1 - 2 * rank, 7, rank]) for rank in range(n))
    y, z = x.clone(), torch.empty(3, dtype=torch.int64)
    dist.all_reduce(x, dist.ReduceOp.AVG)
    dist.reduce_scatter_tensor(z, y.repeat(n), dist.ReduceOp.AVG, async_op=True).wait()
    dist.reduce(y, 1, dist.ReduceOp.AVG)
    expected = total.div(n, rounding_mode="trunc")
    assert torch.equal(x, expected) and torch.equal(z, expected)
    assert dist.get_rank() != 1 or torch.equal(y, expected)


def test_premul_sum_scales_each_contribution(n):
    x = torch.ones(4) * (dist.get_rank() + 1)
    dist.all_reduce(x, dist._make_nccl_premul_sum(0.5))
    assert torch.equal(x, torch.full((4,), n * (n + 1) / 4))


@pytest.mark.parametrize("name", MOVED)
def test_copies_move_every_dtype(n, name):
    dtype, rank = getattr(torch, name), dist.get_rank()
    x = numbers(dtype, rank)
    everything = [torch.empty_like(x) for _ in range(n)]
    dist.all_gather(everything, x)
    assert all(same(one, numbers(dtype, peer)) for peer, one in enumerate(everything))
    joined = torch.empty(5 * n, dtype=dtype)
    dist.all_gather_into_tensor(joined, x)
    assert same(joined.view(n, 5), torch.stack(everything))
    dist.broadcast(x, 1)
    assert same(x, numbers(dtype, 1))
    if rank == 0:
        dist.send(x, n - 1)
    elif rank == n - 1:
        y = torch.empty_like(x)
        dist.recv(y, 0)
        assert same(x, y)


def test_strided_empty_and_scalar_tensors(n):
    x = torch.arange(24.0).view(4, 6)
    dist.all_reduce(x[:, ::2])
    assert torch.equal(x[:, ::2], n * torch.arange(24.0).view(4, 6)[:, ::2])
    assert torch.equal(x[:, 1::2], torch.arange(24.0).view(4, 6)[:, 1::2])
    dist.all_reduce(torch.empty(0))
    scalar = torch.tensor(2.5)
    dist.all_reduce(scalar)
    assert scalar.item() == 2.5 * n
    columns = torch.empty(3, 2 * n).t()  # an output whose rows are not packed
    dist.all_gather_into_tensor(columns, torch.full((2, 3), float(dist.get_rank())))
    assert torch.equal(columns, torch.arange(n).repeat_interleave(2)[:, None].expand(2 * n, 3).float())


def test_parameters_that_require_grad_are_written(n):
    x = torch.nn.Parameter(torch.full((3,), float(dist.get_rank())))
    dist.broadcast(x, 1)
    dist.all_reduce(x)
    assert x.requires_grad and torch.equal(x.detach(), torch.full((3,), float(n)))


def test_lists_of_tensors(n):
    rank = dist.get_rank()
    x = torch.arange(6.0).view(2, 3) + 10 * rank
    out = torch.empty(2, 3)
    lists = [torch.full((2, 3), float(peer)) for peer in range(n)]
    dist.scatter(out, lists if rank == 1 else None, 1)
    assert torch.equal(out, lists[rank])
    dist.reduce_scatter(out, lists)
    assert torch.equal(out, n * lists[rank])
    gathered = [torch.empty(2, 3) for _ in range(n)] if rank == n - 1 else None
    dist.gather(x, gathered, n - 1)
    if gathered:
        assert torch.equal(torch.stack(gathered)[:, 0, 0], 10.0 * torch.arange(n))
    whole = torch.empty(n, 2, 3)
    dist.all_gather(list(whole.unbind()), x)  # one storage: nvcoll needs no copy
    assert torch.equal(whole[:, 0, 0], 10.0 * torch.arange(n))


def test_uneven_lists(n):
    rank = dist.get_rank()
    outputs = [torch.empty(peer + 1) for peer in range(n)]
    dist.all_gather(outputs, torch.full((rank + 1,), float(rank)))
    assert [one.tolist() for one in outputs] == [[float(peer)] * (peer + 1) for peer in range(n)]
    outputs = [torch.empty(rank + 1) for _ in range(n)]
    dist.all_to_all(outputs, [torch.full((peer + 1,), float(rank)) for peer in range(n)])
    assert [one.tolist() for one in outputs] == [[float(peer)] * (rank + 1) for peer in range(n)]
    sent, received = [peer + 1 for peer in range(n)], [rank + 1] * n
    out = torch.empty(sum(received), 2)
    dist.all_to_all_single(out, torch.full((sum(sent), 2), float(rank)), received, sent)
    assert torch.equal(out[:, 0], torch.arange(n).repeat_interleave(rank + 1).float())


def test_asynchronous_calls_and_their_futures(n):
    xs = [torch.full((1000,), float(k)) for k in range(8)]
    works = [dist.all_reduce(x, async_op=True) for x in xs]
    doubled = [work.get_future().then(lambda future: 2 * future.value()[0]) for work in works]
    for k, (work, future) in enumerate(zip(works, doubled, strict=True)):
        work.wait()
        assert work.is_completed() and xs[k][0] == k * n and future.wait()[0] == 2 * k * n
    outputs = [torch.empty(3) for _ in range(n)]
    dist.all_gather(outputs, torch.full((3,), float(dist.get_rank())), async_op=True).wait()
    assert [one[0].item() for one in outputs] == list(range(n))


def test_calls_of_a_group_share_tensors_in_the_order_of_issue(n):
    rank = dist.get_rank()
    x, y, shares = torch.ones(1000), torch.empty(3), [torch.zeros(3) for _ in range(n)]
    works = [dist.all_reduce(x, async_op=True), dist.all_reduce(x, async_op=True)]
    dist.all_reduce(x)  # it runs after both
    assert torch.all(x == n**3) and all(work.is_completed() for work in works)
    works = [dist.broadcast(part.fill_(rank), 1, async_op=True) for part in shares]
    works.append(dist.reduce_scatter(y, shares, async_op=True))  # a copy of what the calls before it write
    for work in works:
        work.wait()
    assert torch.all(y == n)


def test_calls_are_events_of_the_profiler(n):
    x, y = torch.ones(5, 3), torch.empty(5 * n, 3)

    def calls():
        dist.all_reduce(x)
        dist.all_gather_into_tensor(y, x, async_op=True).wait()
        dist.barrier()

    calls()
    with torch.profiler.profile(record_shapes=True) as recorded:
        calls()
        with pytest.raises(dist.DistBackendError):
            dist.group.WORLD.allreduce([x, x])
    events = [event for event in recorded.events() if event.name.startswith("nvcoll:") and event.is_async]
    assert [event.name.removeprefix("nvcoll:") for event in events] == ["all_reduce", "all_gather", "barrier"]
    assert [event.input_shapes for event in events[:2]] == [[[5, 3]]] * 2


def test_messages(n):
    rank = dist.get_rank()
    x, y = torch.arange(5.0) + rank, torch.empty(5)
    ops = [dist.P2POp(dist.isend, x, (rank + 1) % n), dist.P2POp(dist.irecv, y, (rank - 1) % n)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert torch.equal(y, torch.arange(5.0) + (rank - 1) % n)
    if rank:
        dist.send(x, 0, tag=rank)
        dist.send(torch.tensor([rank]), 0)
    else:
        for peer in reversed(range(1, n)):
            dist.recv(y, peer, tag=peer)
            assert torch.equal(y, torch.arange(5.0) + peer)
        anybody = torch.empty(1, dtype=torch.int64)
        assert {dist.recv(anybody) for _ in range(n - 1)} == set(range(1, n))


def test_objects(n):
    rank = dist.get_rank()
    found = [None] * n
    dist.all_gather_object(found, {"rank": rank})
    assert found == [{"rank": peer} for peer in range(n)]
    told = ["word", 7] if rank == 1 else [None, None]
    dist.broadcast_object_list(told, src=1)
    assert told == ["word", 7]
    mine = [None]
    dist.scatter_object_list(mine, list(range(n)) if rank == 0 else None, src=0)
    assert mine == [rank]


def test_coalesced_calls(n):
    rank = dist.get_rank()
    xs = [torch.full((k + 1,), float(k)) for k in range(4)]
    with dist._coalescing_manager():
        for x in xs:
            dist.all_reduce(x)
    assert [x[0].item() for x in xs] == [k * n for k in range(4)]
    outputs = [torch.empty(3 * n), torch.empty(2 * n)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for out in outputs:
            dist.all_gather_into_tensor(out, torch.full((out.numel() // n,), float(rank)))
    manager.wait()
    assert torch.equal(outputs[0], torch.arange(n).repeat_interleave(3).float())
    with dist._coalescing_manager(device=torch.device("cpu")):
        dist.all_reduce(xs[1])
    assert xs[1][0] == n * n


def test_sparse_all_reduce(n):
    rank = dist.get_rank()
    x = torch.sparse_coo_tensor([[0, rank], [1, 0]], [1.0, 2.0], (n + 1, 2), check_invariants=True)
    dense = x.to_dense()
    dist.all_reduce(x)
    dist.all_reduce(dense)
    assert torch.equal(x.to_dense(), dense)


def test_subgroups_and_meshes(n):
    from torch.distributed.device_mesh import init_device_mesh

    rank = dist.get_rank()
    pair = dist.new_group([0, n - 1], use_local_synchronization=True) if rank in (0, n - 1) else None
    if pair is not None:
        x = torch.ones(2)
        dist.all_reduce(x, group=pair)
        assert x[0] == 2
        dist.destroy_process_group(pair)
    mesh = init_device_mesh("cpu", (n // 2, 2), mesh_dim_names=("replicate", "shard"))
    x = torch.ones(1)
    dist.all_reduce(x, group=mesh.get_group("shard"))
    assert x.item() == 2
    alone = dist.new_group([rank], use_local_synchronization=True)
    dist.all_reduce(x, group=alone)
    assert x.item() == 2


def test_a_group_beside_a_default_group_of_another_backend(n):
    dist.destroy_process_group()
    store = dist.FileStore(f"{os.environ['NVCOLL_PYTEST_FOLDER']}/gloo-{n}", n)
    dist.init_process_group("gloo", store=store, rank=int(os.environ["RANK"]), world_size=n)
    group = dist.new_group(backend="nvcoll")
    x = torch.ones(3)
    dist.all_reduce(x, group=group)
    assert x[0] == n
    dist.barrier()


def test_several_threads_use_a_group(n):
    import threading

    xs, failures = [torch.ones(10) for _ in range(3)], []
    first = threading.Event()

    def alone():  # one thread per kind of call: each kind is in one order on all ranks
        try:
            for _ in range(20):
                dist.isend(xs[0], (dist.get_rank() + 1) % n, tag=5)
                dist.recv(torch.empty(10), (dist.get_rank() - 1) % n, tag=5)
        except Exception as error:
            failures.append(error)
        first.set()

    thread = threading.Thread(target=alone)
    thread.start()
    for _ in range(20):
        dist.all_reduce(xs[1])
        with dist._coalescing_manager():
            dist.all_reduce(xs[2])
            dist.all_reduce(torch.ones(3))
        dist.all_reduce(torch.ones(100), async_op=True).wait()
    thread.join()
    assert not failures and first.is_set()


def test_ranks_that_make_different_calls_are_told(n):
    with pytest.raises(
        dist.DistBackendError, match=r"Mismatch: rank 0 called all_reduce of 3 float32.* but rank . called"
    ):
        if dist.get_rank() == 0:
            dist.all_reduce(torch.ones(3))
        else:
            dist.broadcast(torch.ones(3), 0)


def test_arguments_that_cannot_be_used(n):
    wrong = [
        (lambda: dist.all_reduce(torch.empty(3, device="meta")), "found a tensor on meta"),
        (lambda: dist.all_gather_into_tensor(torch.empty(n * 3 + 1), torch.empty(3)), "expected"),
        (lambda: dist.reduce_scatter_tensor(torch.empty(3), torch.empty(3)), "expected"),
        (lambda: dist.all_reduce(torch.ones(3), dist.ReduceOp.BAND), "float32"),
    ]
    for call, words in wrong:
        with pytest.raises(dist.DistBackendError, match=words):
            call()
    dist.barrier()  # nothing was sent


def test_the_average_of_unsigned_integers(n):
    for name in ("uint8", "uint16", "uint32", "uint64"):
        x = torch.full((3,), 2 * dist.get_rank() + 1).to(getattr(torch, name))
        assert dist.all_reduce(x, dist.ReduceOp.AVG, async_op=True).get_future().wait()[0].tolist() == [n] * 3


def test_futures_end_with_the_error_of_their_call(n):
    if dist.get_rank() == 0:
        with pytest.raises(dist.DistBackendError):
            dist.broadcast(torch.ones(5), 0)
        return
    future = dist.all_reduce(torch.ones(3), async_op=True).get_future()
    later = future.then(lambda done: done.value())
    for one in (future, later):
        with pytest.raises(RuntimeError, match="Mismatch"):
            one.wait()


def test_inference_mode(n):
    with torch.inference_mode():
        outputs = [torch.zeros(4) for _ in range(n)]
        work = dist.all_gather(outputs, torch.full((4,), float(dist.get_rank())), async_op=True)
        assert work.get_future().then(lambda _: 3).wait() == 3
    assert [one[0].item() for one in outputs] == list(range(n))


def test_lists_are_issued_while_earlier_calls_wait_for_other_groups(n):
    groups = [dist.new_group() for _ in range(2)]
    x, y, out = torch.ones(4), torch.ones(2), torch.zeros(3)
    parts = [torch.ones(3) for _ in range(n)]
    works = []
    if dist.get_rank() == 0:
        works.append(dist.all_reduce(x, group=groups[0], async_op=True))
        works.append(dist.reduce_scatter(out, parts, group=groups[0], async_op=True))
        works.append(dist.all_reduce(y, group=groups[1], async_op=True))
    else:
        dist.all_reduce(y, group=groups[1])
        works.append(dist.all_reduce(x, group=groups[0], async_op=True))
        works.append(dist.reduce_scatter(out, parts, group=groups[0], async_op=True))
    for work in works:
        work.wait()
    assert x[0] == y[0] == out[0] == n


@pytest.mark.skipif(not hasattr(dist.Backend, "_ensure_backend_registered"), reason="torch 2.11 refuses CPUs here")
def test_a_device_id(n):
    dist.destroy_process_group()
    store = dist.FileStore(f"{os.environ['NVCOLL_PYTEST_FOLDER']}/device-{n}", n)
    rank = int(os.environ["RANK"])
    dist.init_process_group("nvcoll", store=store, rank=rank, world_size=n, device_id=torch.device("cpu", 0))
    dist.barrier()


def test_callbacks_that_make_calls_make_them_in_one_order(n):
    for _ in range(10):
        xs = [torch.full((3,), float(k)) for k in range(8)]

        def again(future, k):
            y = torch.full((3,), float(10 * k))
            return future.value()[0] + dist.all_reduce(y, async_op=True).get_future().wait()[0]

        futures = [
            dist.all_reduce(x, async_op=True).get_future().then(lambda future, k=k: again(future, k))
            for k, x in enumerate(xs)
        ]
        assert [future.wait()[0].item() for future in futures] == [11 * k * n for k in range(8)]


def test_a_call_that_was_waited_for_holds_no_tensor(n):
    import weakref

    x = torch.ones(1000)
    seen = weakref.ref(x)
    dist.all_reduce(x, async_op=True).wait()
    del x
    assert seen() is None


def test_a_store_serves_one_group_after_another(n):
    rank = int(os.environ["RANK"])
    store = dist.FileStore(f"{os.environ['NVCOLL_PYTEST_FOLDER']}/again-{n}", n)
    for _ in range(3):
        dist.destroy_process_group()
        dist.init_process_group("nvcoll", store=store, rank=rank, world_size=n)
        x = torch.ones(2)
        dist.all_reduce(x)
        assert x[0] == n
