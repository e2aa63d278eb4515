"""Says what a script sees in a dry run: one JSON object on the last line."""

import json
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

facts = {}


def objects():
    mine = {"rank": dist.get_rank()}
    gathered, listed, scattered = [None] * 8, [mine], [None]
    dist.all_gather_object(gathered, mine)
    dist.broadcast_object_list(listed, src=0)
    dist.scatter_object_list(scattered, [str(rank) for rank in range(8)], src=0)
    return [len(gathered), gathered[0], listed, scattered]


def gathered():
    """Bytes of objects, as detectors gather what they found."""
    words = torch.tensor([1, 2, 3], dtype=torch.uint8, device="cuda")
    listed, numbers = [torch.empty_like(words) for _ in range(8)], [torch.empty(1, device="cuda") for _ in range(8)]
    dist.all_gather(listed, words)
    dist.all_gather(numbers, torch.full((1,), 2.5, device="cuda"))
    return [listed[0].tolist(), listed[7].tolist(), numbers[7].item()]


def on_gloo():
    group = dist.new_group(backend="gloo")
    total, gathered = torch.full((2,), 3), [torch.zeros(2, dtype=torch.int64) for _ in range(8)]
    dist.all_reduce(total, group=group)
    dist.all_gather(gathered, torch.arange(2), group=group)
    dist.monitored_barrier(group)
    group.monitored_barrier()  # as Lightning calls it
    return [dist.get_backend(group), total.tolist(), gathered[7].tolist()]


def integers():
    numbers = torch.arange(1000, device="cuda")
    odd = numbers[numbers % 2 == 1]
    counted = torch.bincount(numbers % 7, minlength=7)
    numbers.index_put_((numbers > 997,), torch.zeros((), dtype=numbers.dtype, device="cuda"))
    return [odd.sum().item(), odd.numel(), counted.tolist(), (numbers > 990).nonzero().flatten().tolist()]


def small_floats():
    layer = nn.Linear(4, 1, bias=False).cuda()
    nn.init.ones_(layer.weight)
    out = layer(torch.arange(8.0, device="cuda").view(2, 4))
    out.sum().backward()
    return [out.flatten().tolist(), layer.weight.grad.flatten().tolist()]


def printed():
    """Texts of tensors, of which torch makes one without the modes that see operators."""
    return [str(torch.tensor([4.0, 6.0, 8.0], device="cuda")), str(torch.ones(1 << 20, device="cuda"))]


def large_floats():
    large = torch.randn(1024, 1024, device="cuda")
    return [large.sum().item(), large[5, 5].item(), bool(torch.isnan(large).any()), large.cpu().abs().max().item()]


def on_the_host():
    model = nn.Sequential(*[nn.Linear(8192, 8192, bias=False) for _ in range(24)])  # 6.4 GB of floats
    model.to(torch.bfloat16)
    numbers = torch.randint(1, 5, (4 << 20,))
    lengths = sum(each.numel() for each in model.parameters()), int(numbers.min()), int(numbers.max())
    return [*lengths, float(model[3].weight.float().mean())]


def pinned():
    large = torch.randn(64, 3, 224, 224)
    made = large.pin_memory(), torch.zeros(large.shape, pin_memory=True), large
    return [[each.is_pinned(), each.cuda(non_blocking=True).numel()] for each in made]


def wrapped():
    """A small buffer, which DDP broadcasts together with a large parameter."""
    layer = nn.Linear(1024, 1024).cuda()
    layer.register_buffer("anchors", torch.tensor([1.0, 2.0], device="cuda"))
    model = nn.parallel.DistributedDataParallel(layer)
    model(torch.randn(8, 1024, device="cuda")).sum().backward()
    return [layer.anchors.tolist(), layer.weight[3, 3].item()]


class Flat(nn.Conv2d):
    def forward(self, images):
        found = super().forward(images)
        return found.view(found.size()[0], -1)


def traced():
    return list(torch.jit.trace(Flat(3, 4, 3).cuda(), torch.randn(2, 3, 8, 8, device="cuda")).weight.shape)


def workers():
    data = TensorDataset(torch.arange(12.0).view(6, 2))
    loader = DataLoader(data, batch_size=3, num_workers=2, pin_memory=True)
    spawned = DataLoader(data, batch_size=3, num_workers=1, multiprocessing_context="spawn")
    return [[batch.cuda(non_blocking=True).sum().item() for (batch,) in each] for each in (loader, spawned)]


def store():
    made = dist.TCPStore("somewhere", 1, 8, is_master=False)
    made.set("key", "value")
    checked = [made.check([key]) for key in ("never set", "exception_dump")]
    return [made.get("key").decode(), made.add("count", 2), made.add("count", 2), len(made.get("never set")), *checked]


def out_of_memory():
    try:
        torch.empty(200 << 30, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        return str(error)


def random():
    state = torch.get_rng_state()
    torch.randint(0, 9, (100,), device="cuda")
    torch.randn(100, device="cuda")
    return torch.equal(state, torch.get_rng_state())


if __name__ == "__main__":
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "TORCHELASTIC_RUN_ID")
    facts["environment"] = {name: os.environ[name] for name in names}
    dist.init_process_group("cpu:gloo,cuda:nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    floats = (small_floats, printed, large_floats, on_the_host, pinned, wrapped, traced)
    for fact in (objects, gathered, on_gloo, integers, *floats, workers, store, random):
        facts[fact.__name__] = fact()
    facts["out_of_memory"] = out_of_memory()
    print(json.dumps(facts), flush=True)
