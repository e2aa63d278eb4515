"""Hugging Face accelerate: the program makes the process group, and accelerate takes it as it is."""

import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from frameworks.features import feature
from frameworks.training import assert_same, batches, model, optimizer, train, trained_alone


def accelerator(**told):
    """Returns an Accelerator of CPUs, as if no other had been made in this process."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, GradientState, PartialState

    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()
    return Accelerator(cpu=True, **told)


def loader(here, data):
    """Returns a loader of samples in their order. accelerate gives the ranks its batches in turn."""
    samples = TensorDataset(*(torch.cat(one) for one in zip(*data, strict=True)))
    return DataLoader(samples, len(data[0][0]) // here.world_size)


@feature(needs="accelerate")
def data_parallel(here):
    start, data = model(), batches()
    made = accelerator()
    assert made.num_processes == here.world_size and torch.distributed.get_backend() == here.backend
    trained = copy.deepcopy(start)
    wrapped, update, samples = made.prepare(trained, optimizer(trained.parameters()), loader(here, data))
    assert isinstance(wrapped, nn.parallel.DistributedDataParallel)
    losses = []
    for x, y in samples:
        update.zero_grad()
        loss = nn.functional.mse_loss(wrapped(x), y)
        made.backward(loss)
        update.step()
        losses.append(made.reduce(loss.detach(), "mean"))
    alone = copy.deepcopy(start)
    torch.testing.assert_close(losses, train(alone, data), rtol=1e-10, atol=1e-10)
    assert_same(made.unwrap_model(wrapped), alone)


@feature(needs="accelerate")
def accumulated_gradients(here):
    start, data = model(), batches(steps=4)
    made = accelerator(gradient_accumulation_steps=2)
    trained = copy.deepcopy(start)
    wrapped, update, samples = made.prepare(trained, optimizer(trained.parameters()), loader(here, data))
    for x, y in samples:
        with made.accumulate(wrapped):
            made.backward(nn.functional.mse_loss(wrapped(x), y))
            made.clip_grad_norm_(wrapped.parameters(), 100.0)
            update.step()
            update.zero_grad()
    pairs = [(torch.cat([a[0], b[0]]), torch.cat([a[1], b[1]])) for a, b in (data[:2], data[2:])]
    assert_same(made.unwrap_model(wrapped), trained_alone(start, pairs))


@feature(needs="accelerate")
def fully_sharded(here):
    from accelerate.utils import FullyShardedDataParallelPlugin

    start, data = model(torch.float32), batches(dtype=torch.float32)
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="no_wrap", cpu_ram_efficient_loading=False)
    made = accelerator(fsdp_plugin=plugin)
    trained = copy.deepcopy(start)
    wrapped, update, samples = made.prepare(trained, optimizer(trained.parameters()), loader(here, data))
    for x, y in samples:
        update.zero_grad()
        made.backward(nn.functional.mse_loss(wrapped(x), y))
        update.step()
    # float32: its roundings are of 6e-8
    assert_same(made.get_state_dict(wrapped), trained_alone(start, data), 1e-5)


@feature(needs="accelerate")
def objects(here):
    from accelerate.utils import broadcast_object_list, gather_object

    made = accelerator()
    assert gather_object([here.rank]) == list(range(here.world_size))
    assert broadcast_object_list([{"rank": here.rank}]) == [{"rank": 0}]
    x = made.pad_across_processes(torch.ones(here.rank + 1))
    assert made.gather(x[None]).sum(1).tolist() == [rank + 1 for rank in range(here.world_size)]
