"""DeepSpeed: ``init_distributed(dist_backend=...)`` makes the process group; ZeRO 1, 2 and 3 train with it."""

import copy

import torch
from torch import nn

from frameworks.features import feature
from frameworks.training import BFLOAT16, assert_near, assert_same, batches, model, optimizer, part, trained_alone

LOOSE = 1e-5
"""The tolerance of parameters of float32, whose roundings are of 6e-8."""


def compared(here, stage, dtype=torch.float32, **told):
    """Trains a model with a stage of ZeRO and compares it with one process."""
    import deepspeed

    # an extension of C++ for inference_all_reduce, which training does not call: its build takes long, and needs ninja
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(dist_backend=here.backend, verbose=False)
    assert torch.distributed.get_backend() == here.backend
    start, data = model(torch.float32), batches(dtype=torch.float32)
    settings = {
        "train_micro_batch_size_per_gpu": 8 // here.world_size,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {"stage": stage, **told},
        "bf16": {"enabled": dtype == torch.bfloat16},
        "steps_per_print": 1000,
    }
    trained = copy.deepcopy(start)
    engine, *_ = deepspeed.initialize(
        model=trained, optimizer=optimizer(trained.parameters()), config=settings, dist_init_required=False
    )
    for batch in data:
        x, y = part(batch, here.rank, here.world_size)
        engine.backward(nn.functional.mse_loss(engine(x.to(dtype)), y.to(dtype)))
        engine.step()
    alone = trained_alone(start, data)
    if dtype == torch.float32:
        with deepspeed.zero.GatheredParameters(list(engine.module.parameters()), enabled=stage == 3):
            found = {name: value.detach().clone() for name, value in engine.module.named_parameters()}
        assert_same(found, alone, LOOSE)
    else:
        full = deepspeed.utils.safe_get_full_fp32_param
        found = {name: full(value) for name, value in engine.module.named_parameters()}
        assert_near(found, start, alone, BFLOAT16)
    engine.destroy()


@feature(needs="deepspeed", makes_group=True)
def zero_0(here):
    compared(here, 0)


@feature(needs="deepspeed", makes_group=True)
def zero_1(here):
    compared(here, 1)


@feature(needs="deepspeed", makes_group=True)
def zero_2(here):
    compared(here, 2)


@feature(needs="deepspeed", makes_group=True)
def zero_3(here):
    # each parameter is shared out, however small
    compared(here, 3, stage3_param_persistence_threshold=0)


@feature(needs="deepspeed", makes_group=True)
def zero_3_of_bfloat16(here):
    compared(here, 3, torch.bfloat16, stage3_param_persistence_threshold=0)
