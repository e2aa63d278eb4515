"""DistributedDataParallel: each rank has the model and a part of each batch, and gradients are averaged."""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP

from frameworks.features import feature
from frameworks.training import RATE, STEPS, assert_near, assert_same, batches, model, part, train, trained_alone

HALF = 2.0**-10
"""What gradients that travel as float16 may change in the update, relative. Each is rounded by at most 2**-11."""


def compared(here, prepare=lambda ddp: None, fraction=0.0, **told):
    """Trains a model with DDP and compares it with one process.

    Args:
        here: the rank.
        prepare: called with the DDP.
        fraction: how much of the change of the parameters may be wrong, besides rounding of float64.
        told: further arguments of DDP.
    """
    start, data = model(), batches()
    ddp = DDP(copy.deepcopy(start), **told)
    prepare(ddp)
    train(ddp, [part(batch, here.rank, here.world_size) for batch in data])
    alone = trained_alone(start, data)
    if fraction:
        assert_near(ddp.module, start, alone, fraction)
    else:
        assert_same(ddp.module, alone)


@feature()
def plain(here):
    compared(here)


@feature()
def many_buckets(here):
    compared(here, bucket_cap_mb=0.0001)


@feature()
def static_graph(here):
    compared(here, static_graph=True)


@feature()
def bucket_views(here):
    compared(here, gradient_as_bucket_view=True, bucket_cap_mb=0.0001)


@feature()
def half_precision_hook(here):
    compared(here, lambda ddp: ddp.register_comm_hook(None, default_hooks.fp16_compress_hook), HALF)


@feature()
def built_in_hook(here):
    compared(here, lambda ddp: ddp._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE))


@feature()
def power_sgd_hook(here):
    """A rank of the approximation as large as the matrices: what PowerSGD sends is exact, but for rounding."""
    state = powerSGD_hook.PowerSGDState(
        None, matrix_approximation_rank=16, start_powerSGD_iter=2, min_compression_rate=0.01
    )
    # PowerSGD adds 1e-8 to the norms by which it divides, and makes its random matrices orthogonal again at each step
    compared(here, lambda ddp: ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook), 1e-5)
    assert state.compression_stats()[2] > 0, "nothing was compressed"


@feature()
def powersgd_with_several_buckets(here):
    """Callbacks of several buckets make calls. Ranks that make them in different orders have different parameters."""
    state = powerSGD_hook.PowerSGDState(
        None, matrix_approximation_rank=16, start_powerSGD_iter=2, min_compression_rate=0.01
    )
    prepare = lambda ddp: ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)  # noqa: E731
    compared(here, prepare, 1e-5, bucket_cap_mb=0.001)


@feature()
def python_hook(here):
    def average(calls, bucket):
        calls.append(bucket.index())
        work = dist.all_reduce(bucket.buffer().div_(here.world_size), async_op=True)
        return work.get_future().then(lambda future: future.value()[0])

    calls = []
    compared(here, lambda ddp: ddp.register_comm_hook(calls, average))
    assert len(calls) >= STEPS


@feature()
def unused_parameters(here):
    """In each step a branch of the model is used by no rank, and another by rank 0 only."""

    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.branches = nn.ModuleList(model(seed=seed) for seed in range(3))

        def forward(self, x, used):
            return sum(self.branches[one](x) for one in used)

    start, data = Branches(), batches()
    ddp, alone = DDP(copy.deepcopy(start), find_unused_parameters=True), copy.deepcopy(start)
    updates = [torch.optim.SGD(one.parameters(), lr=RATE) for one in (ddp, alone)]
    for x, y in data:
        for update in updates:
            update.zero_grad()
        used = [[0, 1] if rank == 0 else [0] for rank in range(here.world_size)]
        own_x, own_y = part((x, y), here.rank, here.world_size)
        nn.functional.mse_loss(ddp(own_x, used[here.rank]), own_y).backward()
        for rank in range(here.world_size):
            part_x, part_y = part((x, y), rank, here.world_size)
            (nn.functional.mse_loss(alone(part_x, used[rank]), part_y) / here.world_size).backward()
        for update in updates:
            update.step()
    assert ddp.module.branches[2][0].weight.grad is None
    assert_same(ddp.module, alone)


@feature()
def accumulated_gradients(here):
    """Gradients of two batches are added on each rank, and averaged once."""
    start, data = model(), batches(steps=4)
    ddp, alone = DDP(copy.deepcopy(start)), copy.deepcopy(start)
    updates = [torch.optim.SGD(one.parameters(), lr=RATE) for one in (ddp, alone)]
    for step, batch in enumerate(data):
        for one, (x, y) in ((ddp, part(batch, here.rank, here.world_size)), (alone, batch)):
            if one is ddp and step % 2 == 0:
                with ddp.no_sync():
                    nn.functional.mse_loss(ddp(x), y).backward()
            else:
                nn.functional.mse_loss(one(x), y).backward()
        if step % 2 == 1:
            for update in updates:
                update.step()
                update.zero_grad()
    assert_same(ddp.module, alone)


@feature()
def uneven_inputs(here):
    """Rank r has r + 1 batches. Ranks without a batch take part in the calls of the others with gradients of zero."""
    start, data = model(), batches(steps=here.world_size)
    own = [part(batch, here.rank, here.world_size) for batch in data[: here.rank + 1]]
    ddp, alone = DDP(copy.deepcopy(start)), copy.deepcopy(start)
    with Join([ddp]):
        train(ddp, own, torch.optim.SGD(ddp.parameters(), lr=RATE))
    update = torch.optim.SGD(alone.parameters(), lr=RATE)
    for step, batch in enumerate(data):
        update.zero_grad()
        for rank in range(step, here.world_size):
            x, y = part(batch, rank, here.world_size)
            (nn.functional.mse_loss(alone(x), y) / here.world_size).backward()
        update.step()
    assert_same(ddp.module, alone)


@feature()
def buffers(here):
    """Before each forward, the statistics of BatchNorm are those of rank 0."""
    start = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4)).double()
    ddp = DDP(start)
    data = batches()
    train(ddp, [part(batch, here.rank, here.world_size) for batch in data])
    ddp(data[0][0])
    means = [torch.empty_like(start[1].running_mean) for _ in range(here.world_size)]
    dist.all_gather(means, start[1].running_mean)
    for mean in means:
        torch.testing.assert_close(mean, means[0], rtol=0, atol=0)
