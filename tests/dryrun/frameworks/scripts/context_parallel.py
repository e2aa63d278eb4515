"""Context parallelism: a long sequence is cut into parts, attention passes keys and values around a ring."""

import os

import torch
import torch.distributed as dist
from model import Config, Transformer
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.experimental import context_parallel
from torch.nn import functional as F

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
mesh = init_device_mesh("cuda", (dist.get_world_size() // 8, 8), mesh_dim_names=("dp", "cp"))
config = Config(sequence=16384)
with torch.device("meta"):
    model = Transformer(config)
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
shards = mesh["dp", "cp"]._flatten("shards")
for block in model.blocks:
    fully_shard(block, mesh=shards, mp_policy=policy)
fully_shard(model, mesh=shards, mp_policy=policy)
model.to_empty(device="cuda")
for module in model.modules():
    if hasattr(module, "reset_parameters"):
        module.reset_parameters()

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
for _ in range(10):
    tokens = torch.randint(0, config.vocabulary, (1, config.sequence + 1), device="cuda")
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    with context_parallel(mesh["cp"], buffers=(inputs, targets), buffer_seq_dims=(1, 1)):
        F.cross_entropy(model(inputs).float().flatten(0, 1), targets.flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
