"""ZeroRedundancyOptimizer: each rank has the optimizer's state of some parameters, and broadcasts its updates."""

import copy

import torch
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

from frameworks.features import feature
from frameworks.training import RATE, assert_same, batches, model, part, train


def compared(here, **told):
    """Trains a model with Adam, whose state is shared out, and compares it with one process."""
    start, data = model(), batches()
    ddp, alone = DDP(copy.deepcopy(start)), copy.deepcopy(start)
    update = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.Adam, lr=RATE, eps=1e-3, **told)
    train(ddp, [part(batch, here.rank, here.world_size) for batch in data], update)
    train(alone, data, torch.optim.Adam(alone.parameters(), lr=RATE, eps=1e-3))
    assert_same(ddp.module, alone)
    return update


@feature()
def shared_state(here):
    compared(here)


@feature()
def shared_state_in_buckets(here):
    compared(here, parameters_as_bucket_view=True)


@feature()
def consolidated_state(here):
    update = compared(here)
    update.consolidate_state_dict(to=0)
    if here.rank == 0:
        states = update.state_dict()["state"]
        assert len(states) == 6 and all(state["exp_avg"].abs().sum() > 0 for state in states.values())
