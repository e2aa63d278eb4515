"""How much of gloo's time do the collectives of torch take with nvcoll? Calls alone, and steps of DDP and FSDP2.

    nvcoll run -n 2 --no-prefix benches/torch_training.py                     # needs torch: pip install '.[torch]'

Both backends run in one job, in each round one after the other in random order, and results are compared. A line has
medians over the rounds.

*calls*      `dist.all_reduce` of 8 B, 1 MiB and 64 MiB; the tensor is rewritten and checked
*exposed*    of a step of training: its time minus that of the same step in a group of one rank, in one round
"""

import ctypes
import random
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

ROUNDS = 31
"""The number of rounds. Chosen: a line takes seconds."""

ORDERS = random.Random(0)
"""The order in each round, the same on all ranks."""

ALONE = None
"""The group of this rank alone."""

CALLS = {8: 200, 1 << 20: 20, 64 << 20: 2}
"""The number of calls in a round, by bytes. Chosen: a round takes milliseconds."""


def mlp():
    """Returns a perceptron of 25 million parameters, and a batch."""
    layers = [layer for _ in range(6) for layer in (torch.nn.Linear(2048, 2048), torch.nn.ReLU())]
    return torch.nn.Sequential(*layers), torch.randn(8, 2048)


def transformer():
    """Returns a transformer of 6 million parameters, and a batch."""
    layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 8, enable_nested_tensor=False), torch.randn(4, 32, 256)


def replicated(model, group):
    return DistributedDataParallel(model, process_group=group)


def sharded(model, group):
    mesh = DeviceMesh.from_group(group, "cpu")
    for part in model.layers if hasattr(model, "layers") else model:
        if any(True for _ in part.parameters()):
            fully_shard(part, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def timed(step):
    """Times a step until all ranks have made it, since a rank that waits for a slower one moves no data."""
    dist.barrier()
    began = time.perf_counter()
    result = step()
    dist.barrier()
    return time.perf_counter() - began, result


def training(make, wrap, groups):
    """Times steps of a model for each group, and without collectives; returns the medians in ms."""
    steps = {}
    for name, group in [*groups.items(), ("alone", ALONE)]:
        torch.manual_seed(0)
        model, batch = make()
        trained = wrap(model, group)
        optimizer = torch.optim.SGD(trained.parameters(), lr=1e-3)

        def step(trained=trained, optimizer=optimizer, batch=batch):
            optimizer.zero_grad()
            loss = trained(batch).square().mean()
            loss.backward()
            optimizer.step()
            return loss.item()

        steps[name] = step
    found = {name: [] for name in steps}
    for number in range(ROUNDS + 2):
        losses = {}
        for name in ORDERS.sample(list(steps), len(steps)):
            seconds, losses[name] = timed(steps[name])
            if number >= 2:  # DDP makes its buckets anew after the first step
                found[name].append(1e3 * seconds)
        assert abs(losses["nvcoll"] - losses["gloo"]) < 1e-4 * abs(losses["gloo"]), losses
    exposed = {name: [a - b for a, b in zip(found[name], found["alone"], strict=True)] for name in groups}
    return {name: statistics.median(times) for name, times in found.items()}, {
        name: statistics.median(times) for name, times in exposed.items()
    }


def calls(nbytes, groups):
    """Times all_reduce for each group; returns the medians in us."""
    x, n = torch.empty(nbytes // 4), dist.get_world_size()
    found = {name: [] for name in groups}
    for _ in range(ROUNDS):
        for name in ORDERS.sample(list(groups), len(groups)):
            x.fill_(1.0)

            def step(group=groups[name]):
                for _ in range(CALLS[nbytes]):
                    dist.all_reduce(x, group=group)

            found[name].append(1e6 * timed(step)[0] / CALLS[nbytes])
            assert torch.all(x == float(n) ** CALLS[nbytes])
    return {name: statistics.median(times) for name, times in found.items()}


def keep_memory():
    """Has the process keep the memory that it frees: page faults of new gradients take a third of some steps."""
    mmap_threshold, trim_threshold = -3, -1  # of glibc's malloc.h
    libc = ctypes.CDLL(None)
    assert libc.mallopt(mmap_threshold, 1 << 30) and libc.mallopt(trim_threshold, 2**31 - 1)


def main():
    keep_memory()
    dist.init_process_group("nvcoll")
    torch.set_num_threads(1)
    global ALONE
    groups = {"nvcoll": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    ALONE = dist.new_group([dist.get_rank()], use_local_synchronization=True)
    lines = [f"{dist.get_world_size()} ranks, torch {torch.__version__}, one thread each"]
    lines.append(f"{'all_reduce':24}{'nvcoll us':>12}{'gloo us':>12}{'ratio':>8}")
    for nbytes in CALLS:
        us = calls(nbytes, groups)
        lines.append(f"{nbytes:>10} B{us['nvcoll']:>24.1f}{us['gloo']:>12.1f}{us['nvcoll'] / us['gloo']:>8.3f}")
    heads = ("step nvcoll ms", "step gloo ms", "alone ms", "exposed nvcoll", "exposed gloo", "ratio")
    lines.append(f"{'':24}" + "".join(f"{head:>16}" for head in heads))
    for wrap, kind in ((replicated, "DDP"), (sharded, "FSDP2")):
        for make in (mlp, transformer):
            whole, exposed = training(make, wrap, groups)
            numbers = [whole["nvcoll"], whole["gloo"], whole["alone"], exposed["nvcoll"], exposed["gloo"]]
            shown = "".join(f"{number:>16.1f}" for number in numbers)
            lines.append(f"{kind + ' ' + make.__name__:24}{shown}{exposed['nvcoll'] / exposed['gloo']:>16.2f}")
    if dist.get_rank() == 0:
        print("\n".join(lines))
        sys.stdout.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
