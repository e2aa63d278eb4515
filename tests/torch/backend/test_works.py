"""Works of calls in flight: of coalescing blocks, of lists, of nobody, of DDP."""

import gc
import time
import weakref

import pytest

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")

from torch.nn.parallel import DistributedDataParallel  # noqa: E402

pytestmark = pytest.mark.ranks(2)

CPU = torch.device("cpu")


def be_late(rank):
    """Lets the calls of the other rank wait."""
    if dist.get_rank() == rank:
        time.sleep(0.3)


def test_the_work_of_a_coalescing_block_is_over_when_all_its_calls_are():
    rank = dist.get_rank()
    x, y = torch.full((100_000,), 7.0 - 8 * rank), torch.full((100_000,), -1.0)
    gathered = [torch.zeros(3) for _ in range(2)]
    be_late(0)
    with dist.distributed_c10d._coalescing_manager(device=CPU, async_ops=True) as block:
        dist.broadcast(x, 0, async_op=True)
        dist.isend(x, 1) if rank == 0 else dist.irecv(y, 0)
        dist.all_gather(gathered, torch.full((3,), float(rank)), async_op=True)
    block.wait()
    assert x[0] == 7 and y[0] == (7 if rank else -1)
    assert [one[0].item() for one in gathered] == [0, 1]


def test_the_work_of_a_coalescing_block_has_a_future_and_the_error_of_a_call():
    group = dist.group.WORLD
    xs = [torch.ones(3), torch.ones(5)]
    group._start_coalescing(CPU)
    for x in xs:
        dist.all_reduce(x, async_op=True)
    work = group._end_coalescing(CPU)
    assert [x[0].item() for x in work.get_future().wait()] == [2, 2]
    assert work.is_completed() and work.is_success() and work.exception() is None
    group._start_coalescing(CPU)
    assert group._end_coalescing(CPU).wait()
    group._start_coalescing(CPU)
    dist.all_reduce(torch.ones(3), async_op=True)
    if dist.get_rank():
        dist.all_reduce(torch.ones(3), async_op=True)
    else:
        dist.broadcast(torch.ones(3), 0, async_op=True)
    with pytest.raises(dist.DistBackendError, match="Mismatch: rank 0 called broadcast"):
        group._end_coalescing(CPU).wait()


USES = {
    "read": lambda x, group: dist.broadcast(x, dist.get_rank(group), group=group),
    "written": lambda x, group: dist.all_reduce(x, group=group, async_op=True),
    "in a list of outputs": lambda x, group: dist.all_gather([x, torch.empty(9)], torch.ones(9), group=group),
    "in a list of inputs": lambda x, group: dist.reduce_scatter(torch.empty(9), [x, torch.empty(9)], group=group),
}


@pytest.mark.parametrize("use", USES)
def test_a_tensor_of_a_list_in_flight_is_refused_to_other_groups(use):
    pair, other = dist.new_group([0, 1]), dist.new_group([0, 1])
    outputs = [torch.zeros(9) for _ in range(2)]
    if dist.get_rank():
        dist.barrier()
    work = dist.all_gather(outputs, torch.ones(9), group=pair, async_op=True)
    if dist.get_rank() == 0:
        with pytest.raises(dist.DistBackendError, match=r"Busy: .* all_gather of 18 float32, .*, which is in flight"):
            USES[use](outputs[0], other)
        dist.barrier()
    work.wait()
    assert outputs[0][0] == outputs[1][0] == 1
    dist.all_reduce(outputs[0], group=other)  # it is free again


def test_a_list_with_a_tensor_in_flight_in_another_group_is_refused():
    pair, other, x = dist.new_group([0, 1]), dist.new_group([0, 1]), torch.ones(9)
    if dist.get_rank():
        dist.barrier()
    work = dist.all_reduce(x, group=pair, async_op=True)
    if dist.get_rank() == 0:
        for use in ("in a list of outputs", "in a list of inputs"):
            with pytest.raises(dist.DistBackendError, match="Busy: tensor 0 of a list"):
                USES[use](x, other)
        dist.barrier()
    work.wait()


def test_works_nobody_waits_for_free_their_tensors_with_the_next_call():
    seen = []
    for call in (
        lambda: dist.all_reduce(torch.ones(9), async_op=True),
        lambda: dist.all_gather([torch.ones(9) for _ in range(2)], torch.ones(9), async_op=True),
        lambda: dist.isend(torch.ones(9), 1 - dist.get_rank()),
        lambda: dist.irecv(torch.ones(9), 1 - dist.get_rank()),
    ):
        seen += [weakref.ref(x) for x in call().result()]
    gc.disable()  # no cycle keeps them
    try:
        for _ in range(200):  # the receive ends when its message has come
            left = torch.tensor([sum(one() is not None for one in seen)])
            dist.all_reduce(left)
            if left == 0:
                break
            time.sleep(0.02)
        assert len(seen) == 5 and left == 0
    finally:
        gc.enable()


@pytest.mark.parametrize("has_hook", [False, True])
def test_an_error_in_the_backward_of_ddp_is_that_of_the_call(has_hook):
    model = DistributedDataParallel(torch.nn.Linear(3, 3))

    def reduced(_, bucket):
        future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        return future.then(lambda done: done.value()[0] / 2)

    if has_hook:
        model.register_comm_hook(None, reduced)
    words = "^Mismatch: rank 0 called broadcast"
    with pytest.raises(dist.DistBackendError, match=words) as found:
        if dist.get_rank() == 0:
            dist.broadcast(torch.ones(5), 0)
        else:
            model(torch.ones(1, 3)).sum().backward()
    assert type(found.value) is dist.DistBackendError
