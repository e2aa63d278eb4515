"""Collectives in graphs of torch.compile (aot_eager), with gradients through them."""

import copy

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as differentiable
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP

from frameworks.features import feature
from frameworks.training import RATE, ROUNDING, assert_same, batches, model, part, train, trained_alone


@feature()
def collectives_in_one_graph(here):
    """Each functional collective once, in one graph, on integers: results are exact."""
    n, everyone = here.world_size, dist.group.WORLD

    @torch.compile(backend="aot_eager", fullgraph=True)
    def calls(x):
        total = functional.all_reduce(x, "sum", everyone)
        mean = functional.all_reduce(x, "avg", everyone)
        gathered = functional.all_gather_tensor(x, 0, everyone)
        own = functional.reduce_scatter_tensor(gathered, "sum", 0, everyone)
        sent = functional.all_to_all_single(gathered, None, None, everyone)
        first = functional.broadcast(x, 0, everyone)
        several = functional.all_reduce_coalesced([x, 2 * x], "max", everyone)
        return total, mean, gathered, own, sent, first, *several

    x = torch.arange(4.0) + here.rank
    all_x = [torch.arange(4.0) + rank for rank in range(n)]
    total, mean, gathered, own, sent, first, largest, twice = calls(x)
    expected = {
        "total": (total, sum(all_x)),
        "mean": (mean, sum(all_x) / n),
        "gathered": (gathered, torch.cat(all_x)),
        "own": (own, n * x),
        "sent": (sent, x.repeat(n)),
        "first": (first, all_x[0]),
        "largest": (largest, all_x[-1]),
        "twice": (twice, 2 * all_x[-1]),
    }
    for name, (found, wanted) in expected.items():
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, msg=lambda text, n=name: f"{n}: {text}")


@feature()
def training_step_in_a_graph(here):
    """Forward, backward and the average of gradients by functional collectives."""
    start, data = model(), batches()
    made = copy.deepcopy(start)

    def average():
        for parameter in made.parameters():
            parameter.grad = averaged(parameter.grad)

    averaged = torch.compile(lambda x: functional.all_reduce(x, "avg", dist.group.WORLD) + 0, backend="aot_eager")
    train(made, [part(batch, here.rank, here.world_size) for batch in data], after_backward=average)
    assert_same(made, trained_alone(start, data))


@feature()
def ddp(here):
    """DDP's own graph breaks: a graph for each bucket, and the hooks of the reducer between them."""
    start, data = model(), batches()
    made = DDP(copy.deepcopy(start), bucket_cap_mb=5)
    train(torch.compile(made, backend="aot_eager"), [part(batch, here.rank, here.world_size) for batch in data])
    assert_same(made.module, trained_alone(start, data))


@feature()
def sharded(here):
    start, data = model(), batches()
    made = fully_shard(copy.deepcopy(start))
    train(torch.compile(made, backend="aot_eager"), [part(batch, here.rank, here.world_size) for batch in data])
    found = {name: value.full_tensor() for name, value in made.named_parameters()}
    assert_same(found, trained_alone(start, data))


@feature()
def differentiable_collectives(here):
    """A loss over all ranks: the gradient of a sum over ranks is a sum over ranks."""
    start, data = model(), batches()
    made, alone = copy.deepcopy(start), copy.deepcopy(start)
    updates = [torch.optim.SGD(one.parameters(), lr=RATE) for one in (made, alone)]
    for batch in data:
        for update in updates:
            update.zero_grad()
        x, _ = part(batch, here.rank, here.world_size)
        # each rank's loss is the same function of all ranks' outputs
        outputs = torch.cat(differentiable.all_gather(made(x)))
        mean = differentiable.all_reduce(made(x).sum(0)) / len(batch[0])
        ((outputs - mean) ** 2).mean().backward()
        for parameter in made.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= here.world_size
        whole = alone(batch[0])
        ((whole - whole.mean(0)) ** 2).mean().backward()
        for update in updates:
            update.step()
    for found, expected in zip(made.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=ROUNDING, atol=ROUNDING)


@feature()
def batch_norm_over_all_ranks(here):
    """In place of SyncBatchNorm, which refuses CPUs: statistics by an all-reduce that has a gradient."""

    class Normalised(nn.BatchNorm1d):
        def forward(self, x):
            sums = torch.stack([x.mean(0), (x * x).mean(0)])
            mean, square = differentiable.all_reduce(sums) / dist.get_world_size()
            return (x - mean) / torch.sqrt(square - mean * mean + self.eps) * self.weight + self.bias

    torch.manual_seed(0)
    start = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 4)).double()
    made = copy.deepcopy(start)
    made[1] = Normalised(16).double()
    data = batches()
    made = DDP(made)
    train(made, [part(batch, here.rank, here.world_size) for batch in data])
    assert_same(made.module, trained_alone(start, data))
