"""Pipelines: each rank has some layers, and sends activations and their gradients in the order of a schedule.

::

    single schedules      rank r has stage r
    interleaved           rank r has stages r and r + n
    V                     rank r has stages r and 2 n - 1 - r
"""

import copy

import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage, schedules

from frameworks.features import feature
from frameworks.training import ROUNDING, WIDTH, batches, optimizer

MICROBATCHES = 8


def layers(count):
    """Returns as many layers as a pipeline has stages, the same on each rank."""
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()).double() for _ in range(count)]


def data():
    """Returns for each step 16 samples: arrays (16, WIDTH)."""
    torch.manual_seed(1)
    return [(torch.randn(16, WIDTH, dtype=torch.float64), y.repeat(1, 2)) for _, y in batches(16)]


def compared(here, kind, stages, **told):
    """Trains a pipeline and compares parameters and losses with one process.

    Args:
        here: the rank.
        kind: the class of the schedule.
        stages: the numbers of this rank's stages.
        told: further arguments of the schedule.
    """
    count = here.world_size * len(stages)
    start = layers(count)
    own = {number: copy.deepcopy(start[number]) for number in stages}
    cpu = torch.device("cpu")
    made = [PipelineStage(layer, number, count, cpu) for number, layer in own.items()]
    is_multi = issubclass(kind, schedules.PipelineScheduleMulti)
    schedule = kind(made if is_multi else made[0], MICROBATCHES, loss_fn=nn.functional.mse_loss, **told)
    update = optimizer(parameter for layer in own.values() for parameter in layer.parameters())

    alone = nn.Sequential(*copy.deepcopy(start))
    update_alone = optimizer(alone.parameters())
    for x, y in data():
        update.zero_grad()
        losses = []
        schedule.step(*([x] if 0 in own else []), **({"target": y, "losses": losses} if count - 1 in own else {}))
        update.step()
        update_alone.zero_grad()
        loss = nn.functional.mse_loss(alone(x), y)
        loss.backward()
        update_alone.step()
        if count - 1 in own:
            torch.testing.assert_close(torch.stack(losses).mean(), loss, rtol=ROUNDING, atol=ROUNDING)
    for number, layer in own.items():
        for found, expected in zip(layer.parameters(), alone[number].parameters(), strict=True):
            torch.testing.assert_close(found, expected, rtol=ROUNDING, atol=ROUNDING)


def looped(here):
    """Returns this rank's stages of a pipeline that goes round the ranks twice."""
    return [here.rank, here.rank + here.world_size]


def folded(here):
    """Returns this rank's stages of a pipeline that goes down the ranks and up again."""
    return [here.rank, 2 * here.world_size - 1 - here.rank]


@feature()
def gpipe(here):
    compared(here, schedules.ScheduleGPipe, [here.rank])


@feature()
def one_forward_one_backward(here):
    compared(here, schedules.Schedule1F1B, [here.rank])


@feature()
def looped_breadth_first(here):
    compared(here, schedules.ScheduleLoopedBFS, looped(here))


@feature()
def interleaved_one_forward_one_backward(here):
    compared(here, schedules.ScheduleInterleaved1F1B, looped(here))


@feature()
def interleaved_zero_bubble(here):
    compared(here, schedules.ScheduleInterleavedZeroBubble, looped(here))


@feature()
def v_zero_bubble(here):
    compared(here, schedules.ScheduleZBVZeroBubble, folded(here))


@feature()
def v_dual_pipe(here):
    compared(here, schedules.ScheduleDualPipeV, folded(here))
