import torch
import torch.distributed as dist
from tiny import ON, Transformer, batch, loss_of, start
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

device = start()
mesh = init_device_mesh(ON, (dist.get_world_size(),), mesh_dim_names=("tp",))
model = Transformer().to(device)
for block in model.blocks:
    plan = {"qkv": ColwiseParallel(), "out": RowwiseParallel(), "up": ColwiseParallel(), "down": RowwiseParallel()}
    parallelize_module(block, mesh, plan)
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
for _ in range(4):
    loss_of(model, batch(device)).backward()
    optimizer.step()
    optimizer.zero_grad()
