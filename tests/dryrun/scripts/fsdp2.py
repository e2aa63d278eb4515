import sys

import torch
import torch.distributed as dist
from tiny import ON, Transformer, batch, loss_of, start
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

device = start()
world = dist.get_world_size()
if "--hybrid" in sys.argv:
    mesh = init_device_mesh(ON, (world // 4, 4), mesh_dim_names=("replicate", "shard"))
else:
    mesh = init_device_mesh(ON, (world,), mesh_dim_names=("fsdp",))
options = {"mesh": mesh}
if "--bf16" in sys.argv:
    options["mp_policy"] = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
with torch.device("meta"):
    model = Transformer()
for block in model.blocks:
    fully_shard(block, **options)
fully_shard(model, **options)
model.to_empty(device=device)
optimizer = torch.optim.AdamW(model.parameters(), fused="--fused" in sys.argv, foreach="--fused" not in sys.argv)
for _ in range(4):
    for _ in range(2 if "--accumulate" in sys.argv else 1):
        loss = loss_of(model, batch(device))
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    print("loss", loss.item())
