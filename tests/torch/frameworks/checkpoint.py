"""Distributed checkpoints: each rank saves its part, and another layout of the ranks loads it and trains on."""

import copy

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel as DDP

from frameworks.features import feature
from frameworks.training import assert_same, batches, model, optimizer, part, train, trained_alone


def whole(made):
    """Returns the whole parameters of a model, some of them DTensors, by name; each rank calls it."""
    return {
        name: value.full_tensor() if isinstance(value, DTensor) else value for name, value in made.named_parameters()
    }


def sharded(here, start):
    """Returns a copy of a model by fully_shard, this rank's part of data, and the mesh of the calls."""
    return fully_shard(copy.deepcopy(start)), lambda batch: part(batch, here.rank, here.world_size)


def in_columns(here, start):
    """Returns a copy of a model by tensor parallel; each rank sees all data."""
    mesh = init_device_mesh("cpu", (here.world_size,))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    return parallelize_module(copy.deepcopy(start), mesh, plan), lambda batch: batch


def on_two_axes(here, start):
    """Returns a copy of a model by fully_shard with copies: half of the ranks have all of it."""
    mesh = init_device_mesh("cpu", (2, here.world_size // 2), mesh_dim_names=("copies", "shards"))
    return fully_shard(copy.deepcopy(start), mesh=mesh), lambda batch: part(batch, here.rank, here.world_size)


def copied(here, start):
    """Returns a copy of a model by DDP."""
    return DDP(copy.deepcopy(start)), lambda batch: part(batch, here.rank, here.world_size)


def compared(here, first, second, save=dcp.save):
    """Trains, saves, loads in another layout, trains on; compares with one process that did not stop."""
    start, data = model(), batches(steps=4)
    made, seen = first(here, start)
    update = optimizer(made.parameters())
    train(made, [seen(batch) for batch in data[:2]], update)
    parameters, states = get_state_dict(made, update)
    saving = save({"model": parameters, "optimizer": states}, checkpoint_id=here.folder)
    if hasattr(saving, "result"):
        saving.result()

    made, seen = second(here, model(seed=9))
    update = optimizer(made.parameters())
    parameters, states = get_state_dict(made, update)
    dcp.load({"model": parameters, "optimizer": states}, checkpoint_id=here.folder)
    set_state_dict(made, update, model_state_dict=parameters, optim_state_dict=states)
    train(made, [seen(batch) for batch in data[2:]], update)
    assert_same(whole(made.module if isinstance(made, DDP) else made), trained_alone(start, data))


@feature()
def same_layout(here):
    compared(here, sharded, sharded)


@feature()
def shards_to_tensor_parallel(here):
    compared(here, sharded, in_columns)


@feature()
def copies_to_shards(here):
    compared(here, copied, sharded)


@feature(world_sizes=(4,))
def two_axes_to_one(here):
    compared(here, on_two_axes, sharded)


@feature(world_sizes=(4,))
def one_axis_to_two(here):
    compared(here, sharded, on_two_axes)


@feature()
def saved_while_training(here):
    """async_save copies the state and writes in a thread, while calls of the training go on."""
    import torch.distributed as dist

    start, data = model(), batches(steps=4)
    made, seen = sharded(here, start)
    update = optimizer(made.parameters())
    own = [seen(batch) for batch in data]
    train(made, own[:2], update)
    # the thread's calls need a group of their own: those of one group are matched by their order
    saving = dcp.async_save(
        {"model": made.state_dict()}, checkpoint_id=here.folder, process_group=dist.new_group(backend=here.backend)
    )
    train(made, own[2:], update)
    saving.result()
    assert_same(whole(made), trained_alone(start, data))
    loaded, _ = sharded(here, model(seed=9))
    parameters = loaded.state_dict()
    dcp.load({"model": parameters}, checkpoint_id=here.folder)
    loaded.load_state_dict(parameters)
    assert_same(whole(loaded), trained_alone(start, data[:2]))


@feature()
def whole_state(here):
    """Rank 0 gathers a state dict without shards, and a model of shards takes it from rank 0."""
    start, data = model(), batches()
    made, seen = sharded(here, start)
    update = optimizer(made.parameters())
    train(made, [seen(batch) for batch in data], update)
    gathered, _ = get_state_dict(made, update, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    alone = trained_alone(start, data)
    if here.rank == 0:
        assert_same(gathered, alone)
    loaded, _ = sharded(here, model(seed=9))
    from torch.distributed.checkpoint.state_dict import set_model_state_dict

    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(loaded, gathered if here.rank == 0 else {}, options=options)
    assert_same(whole(loaded), alone)
