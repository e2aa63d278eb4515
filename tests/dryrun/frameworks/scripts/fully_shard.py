"""FSDP2: fully_shard of each block and of the root, with options."""

import argparse
import os

import torch
import torch.distributed as dist
from model import Config, Transformer
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--shards", type=int, default=0, help="ranks that share one copy; 0: all ranks (no HSDP)")
parser.add_argument("--checkpoint", action="store_true", help="compute activations of blocks again")
parser.add_argument("--optimizer", choices=["fused", "foreach", "loop"], default="fused")
parser.add_argument("--accumulate", type=int, default=1, help="micro-batches of a step")
parser.add_argument("--compile", action="store_true")
parser.add_argument("--float8", action="store_true")
args = parser.parse_args()

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
world_size = dist.get_world_size()
if args.shards:
    mesh = init_device_mesh("cuda", (world_size // args.shards, args.shards), mesh_dim_names=("copies", "shards"))
else:
    mesh = init_device_mesh("cuda", (world_size,))

config = Config()
with torch.device("meta"):
    model = Transformer(config)
if args.float8:
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    convert_to_float8_training(
        model.blocks,
        config=Float8LinearConfig(),
        module_filter_fn=lambda module, name: isinstance(module, torch.nn.Linear),
    )
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for index, block in enumerate(model.blocks):
    if args.checkpoint:
        block = checkpoint_wrapper(block)
    if args.compile:
        block.compile()
    model.blocks[index] = fully_shard(block, mesh=mesh, mp_policy=policy)
fully_shard(model, mesh=mesh, mp_policy=policy)
model.to_empty(device="cuda")
for module in model.modules():
    if hasattr(module, "reset_parameters"):
        module.reset_parameters()

how = {"fused": {"fused": True}, "foreach": {"foreach": True}, "loop": {"foreach": False}}[args.optimizer]
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, **how)
for _ in range(10):
    for micro_batch in range(args.accumulate):
        model.set_requires_gradient_sync(micro_batch == args.accumulate - 1)
        tokens = torch.randint(0, config.vocabulary, (2, config.sequence), device="cuda")
        logits = model(tokens)
        loss = F.cross_entropy(logits[:, :-1].float().flatten(0, 1), tokens[:, 1:].flatten())
        (loss / args.accumulate).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
