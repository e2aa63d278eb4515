"""Tensor parallel on DTensor: each rank has some columns or rows of a weight and sees all samples."""

import copy

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

from frameworks.features import feature
from frameworks.training import ROUNDING, assert_same, batches, model, optimizer, part, train, trained_alone

WORDS, SEQUENCE, WIDTH = 32, 8, 16


def whole(made):
    """Returns the whole parameters of a model, some of them DTensors, by name; each rank calls it."""
    return {
        name: value.full_tensor() if isinstance(value, DTensor) else value for name, value in made.named_parameters()
    }


class Block(nn.Module):
    """Words, a normalised feed-forward layer with a residual, and scores of the next word."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(WORDS, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)
        self.scores = nn.Linear(WIDTH, WORDS)
        self.double()

    def forward(self, x):
        x = self.words(x)
        x = x + self.down(torch.tanh(self.up(self.norm(x))))
        return self.scores(x)


def sentences(steps=3):
    """Returns for each step words (4, SEQUENCE) and the words after them, the same on each rank."""
    torch.manual_seed(1)
    return [torch.randint(WORDS, (2, 4, SEQUENCE)).unbind() for _ in range(steps)]


def train_block(block, data):
    """Trains a block, a step for each batch. Returns the losses."""
    update, losses = optimizer(block.parameters()), []
    for words, after in data:
        update.zero_grad()
        loss = nn.functional.cross_entropy(block(words).flatten(0, 1), after.flatten())
        loss.backward()
        update.step()
        losses.append(loss.full_tensor() if isinstance(loss, DTensor) else loss)
    return losses


@feature()
def columns_and_rows(here):
    start, data = model(), batches()
    mesh = init_device_mesh("cpu", (here.world_size,))
    made = parallelize_module(copy.deepcopy(start), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    train(made, data)
    assert_same(whole(made), trained_alone(start, data))


@feature()
def sequence_parallel(here):
    """Between the parallel layers each rank has a part of each sequence: gathered before, scattered after."""
    start, data = Block(), sentences()
    mesh = init_device_mesh("cpu", (here.world_size,))
    plan = {
        "words": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1)),
        "scores": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    }
    made, alone = parallelize_module(copy.deepcopy(start), mesh, plan), copy.deepcopy(start)
    losses, expected = train_block(made, data), train_block(alone, data)
    torch.testing.assert_close(losses, expected, rtol=ROUNDING, atol=ROUNDING)
    assert_same(whole(made), alone)


@feature()
def parallel_loss(here):
    """Each rank has the scores of some words: the cross entropy reduces maxima and sums instead of gathering them."""
    start, data = Block(), sentences()
    mesh = init_device_mesh("cpu", (here.world_size,))
    plan = {
        "up": ColwiseParallel(),
        "down": RowwiseParallel(),
        "scores": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
    }
    made, alone = parallelize_module(copy.deepcopy(start), mesh, plan), copy.deepcopy(start)
    with loss_parallel():
        losses = train_block(made, data)
    torch.testing.assert_close(losses, train_block(alone, data), rtol=ROUNDING, atol=ROUNDING)
    assert_same(whole(made), alone)


@feature(world_sizes=(4,))
def with_sharded_data(here):
    """Two axes: two ranks share each sample by tensor parallel, and fully_shard has two parts of the samples."""
    start, data = model(), batches()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    made = parallelize_module(copy.deepcopy(start), mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(made, mesh=mesh["data"])
    train(made, [part(batch, mesh.get_local_rank("data"), 2) for batch in data])
    assert_same(whole(made), trained_alone(start, data))


@feature()
def layouts_change(here):
    """A product of DTensors, and each change of layout that sends: gather, scatter, all-to-all, sums of parts."""
    mesh = init_device_mesh("cpu", (here.world_size,))
    torch.manual_seed(0)
    a, b = torch.randn(8, 12, dtype=torch.float64), torch.randn(12, 8, dtype=torch.float64)
    rows, columns = distribute_tensor(a, mesh, [Shard(1)]), distribute_tensor(b, mesh, [Shard(0)])
    product = rows @ columns
    for layout in (Replicate(), Shard(0), Shard(1)):
        there = product.redistribute(mesh, [layout])
        for then in (Replicate(), Shard(0), Shard(1)):
            found = there.redistribute(mesh, [then]).full_tensor()
            torch.testing.assert_close(found, a @ b, rtol=ROUNDING, atol=ROUNDING)


@feature()
def uneven_shards(here):
    """Rows that the ranks do not share evenly: some have none, and calls have arrays without elements."""
    mesh = init_device_mesh("cpu", (here.world_size,))
    whole = torch.arange(5 * 3, dtype=torch.float64).reshape(5, 3)
    for rows in range(1, 6):
        made = distribute_tensor(whole[:rows], mesh, [Shard(0)])
        torch.testing.assert_close(made.full_tensor(), whole[:rows], rtol=0, atol=0)
        turned = made.redistribute(mesh, [Shard(1)]).full_tensor()
        torch.testing.assert_close(turned, whole[:rows], rtol=0, atol=0)
