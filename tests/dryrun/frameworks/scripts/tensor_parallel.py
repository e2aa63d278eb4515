"""DTensor's tensor parallelism with a parallel loss, with or without sequence parallelism, on a mesh with FSDP2."""

import argparse
import os

import torch
import torch.distributed as dist
from model import Config, Transformer
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--tp", type=int, default=8)
parser.add_argument("--sequence", action="store_true", help="sequence parallelism")
args = parser.parse_args()

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
mesh = init_device_mesh("cuda", (dist.get_world_size() // args.tp, args.tp), mesh_dim_names=("dp", "tp"))
config = Config()
with torch.device("meta"):
    model = Transformer(config)

between = Shard(1) if args.sequence else Replicate()  # how activations lie between blocks
gathered = PrepareModuleInput(input_layouts=(between,), desired_input_layouts=(Replicate(),))
plan = {
    "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
    "head": ColwiseParallel(input_layouts=between, output_layouts=Shard(-1), use_local_output=False),
}
block_plan = {
    "attention": gathered,
    "attention.q": ColwiseParallel(),
    "attention.k": ColwiseParallel(),
    "attention.v": ColwiseParallel(),
    "attention.out": RowwiseParallel(output_layouts=between),
    "mlp": gathered,
    "mlp.up": ColwiseParallel(),
    "mlp.down": RowwiseParallel(output_layouts=between),
}
if args.sequence:
    plan["norm"] = SequenceParallel()
    block_plan |= {"norm_attention": SequenceParallel(), "norm_mlp": SequenceParallel()}
parallelize_module(model, mesh["tp"], plan)
for block in model.blocks:
    parallelize_module(block, mesh["tp"], block_plan)
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for block in model.blocks:
    fully_shard(block, mesh=mesh["dp"], mp_policy=policy)
fully_shard(model, mesh=mesh["dp"], mp_policy=policy)
model.to_empty(device="cuda")
for module in model.modules():
    if hasattr(module, "reset_parameters"):
        module.reset_parameters()

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
for _ in range(10):
    tokens = torch.randint(0, config.vocabulary, (2, config.sequence), device="cuda")
    logits = model(tokens)
    with loss_parallel():
        F.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
