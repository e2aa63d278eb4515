"""fully_shard, the second FSDP: each parameter is a DTensor, of which each rank has some rows."""

import copy

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from frameworks.features import feature
from frameworks.training import BFLOAT16, assert_near, assert_same, batches, model, optimizer, part, train


def sharded(start, **told):
    """Returns a copy of a model whose layers are sharded, each on its own."""
    made = copy.deepcopy(start)
    for layer in made:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, **told)
    return fully_shard(made, **told)


def whole(made):
    """Returns the whole parameters of a model of DTensors, by name; each rank calls it."""
    return {name: value.full_tensor() for name, value in made.named_parameters()}


def compared(here, dtype=torch.float64, clip=False, **told):
    """Trains a model with fully_shard and compares it with one process. Those of float32 have a policy of bfloat16."""
    start, data = model(dtype), batches(dtype=dtype)
    made, alone = sharded(start, **told), copy.deepcopy(start)
    for one, seen in ((made, [part(batch, here.rank, here.world_size) for batch in data]), (alone, data)):
        train(one, seen, after_backward=lambda one=one: clip and nn.utils.clip_grad_norm_(one.parameters(), 0.1))
    if dtype == torch.float64:
        assert_same(whole(made), alone)
    else:
        assert_near(whole(made), start, alone, BFLOAT16)


@feature()
def plain(here):
    compared(here)


@feature()
def not_resharded_after_forward(here):
    compared(here, reshard_after_forward=False)


@feature()
def resharded_after_forward(here):
    compared(here, reshard_after_forward=True)


@feature(world_sizes=(4,))
def resharded_to_two_ranks(here):
    compared(here, reshard_after_forward=2)


@feature(world_sizes=(4,))
def hybrid(here):
    compared(here, mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("copies", "shards")))


@feature()
def clipped_gradients(here):
    compared(here, clip=True)


@feature()
def bfloat16(here):
    """Gathered parameters and gradients are bfloat16, the sum of gradients and the update are float32."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.float32)
    compared(here, torch.float32, mp_policy=policy)


@feature()
def bfloat16_sums(here):
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16, output_dtype=torch.float32)
    compared(here, torch.float32, mp_policy=policy)


@feature()
def accumulated_gradients(here):
    """Gradients of two batches are added on each rank, and reduced once."""
    start, data = model(), batches(steps=4)
    made, alone = sharded(start), copy.deepcopy(start)
    updates = [optimizer(one.parameters()) for one in (made, alone)]
    for step, batch in enumerate(data):
        made.set_requires_gradient_sync(step % 2 == 1)
        for one, (x, y) in ((made, part(batch, here.rank, here.world_size)), (alone, batch)):
            nn.functional.mse_loss(one(x), y).backward()
        if step % 2 == 1:
            for update in updates:
                update.step()
                update.zero_grad()
    assert_same(whole(made), alone)
