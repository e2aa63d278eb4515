"""Prints the peak that torch's MemTracker counts in the second step, beside FSDP2 on the virtual GPU."""

import torch
from tiny import Block, start
from torch import nn
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

WIDTH = 4096
precision = MixedPrecisionPolicy(torch.bfloat16, torch.float32)

device = start()
with torch.device("meta"):
    model = nn.Sequential(*[Block(WIDTH) for _ in range(8)])
for block in model:
    fully_shard(block, mp_policy=precision)
fully_shard(model, mp_policy=precision)
model.to_empty(device=device)
optimizer = torch.optim.AdamW(model.parameters(), foreach=True)


def pass_both_ways():
    model(torch.randn(4, 4096, WIDTH, device=device)).sum().backward()


pass_both_ways()
optimizer.step()
optimizer.zero_grad()
tracker = MemTracker()
tracker.track_external(model, optimizer)
with tracker:
    pass_both_ways()
    print("tracked", tracker.get_tracker_snapshot("peak")[device]["Total"], flush=True)
optimizer.step()
