"""FullyShardedDataParallel, the first FSDP: each rank has a part of one flat parameter of each wrapped layer."""

import copy

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from frameworks.features import feature
from frameworks.training import BFLOAT16, ROUNDING, assert_near, assert_same, batches, model, part, train, trained_alone

LAYERS = ModuleWrapPolicy({nn.Linear})


def compared(
    here,
    strategy,
    after_backward=lambda fsdp: None,
    after_alone=lambda alone: None,
    dtype=torch.float64,
    tolerance=ROUNDING,
    **told,
):
    """Trains a model with FSDP and compares it with one process."""
    start, data = model(dtype), batches(dtype=dtype)
    fsdp = FSDP(
        copy.deepcopy(start), sharding_strategy=strategy, auto_wrap_policy=LAYERS, device_id=torch.device("cpu"), **told
    )
    own = [part(batch, here.rank, here.world_size) for batch in data]
    train(fsdp, own, after_backward=lambda: after_backward(fsdp))
    alone = copy.deepcopy(start)
    train(alone, data, after_backward=lambda: after_alone(alone))
    with FSDP.summon_full_params(fsdp):
        assert_same({name: value.clone() for name, value in fsdp.named_parameters()}, alone, tolerance)


@feature()
def full_shard(here):
    compared(here, ShardingStrategy.FULL_SHARD)


@feature()
def original_parameters(here):
    compared(here, ShardingStrategy.FULL_SHARD, use_orig_params=True)


@feature()
def shard_gradients(here):
    compared(here, ShardingStrategy.SHARD_GRAD_OP)


@feature()
def no_shard(here):
    compared(here, ShardingStrategy.NO_SHARD)


@feature(world_sizes=(4,))
def hybrid_shard(here):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("copies", "shards"))
    compared(here, ShardingStrategy.HYBRID_SHARD, device_mesh=mesh)


@feature()
def clipped_gradients(here):
    """Of float32: FSDP's norm is of float32, and refuses float64. Roundings are of 6e-8."""
    compared(
        here,
        ShardingStrategy.FULL_SHARD,
        lambda fsdp: fsdp.clip_grad_norm_(0.1),
        lambda alone: nn.utils.clip_grad_norm_(alone.parameters(), 0.1),
        torch.float32,
        1e-5,
    )


@feature()
def bfloat16(here):
    """Parameters, gradients and their sums are bfloat16, the update is float32."""
    start, data = model(torch.float32), batches(dtype=torch.float32)
    policy = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    fsdp = FSDP(copy.deepcopy(start), mixed_precision=policy, device_id=torch.device("cpu"), use_orig_params=True)
    train(fsdp, [(x.bfloat16(), y.bfloat16()) for x, y in (part(batch, here.rank, here.world_size) for batch in data)])
    with FSDP.summon_full_params(fsdp):
        found = {name: value.clone() for name, value in fsdp.named_parameters()}
    assert_near(found, start, trained_alone(start, data), BFLOAT16)
