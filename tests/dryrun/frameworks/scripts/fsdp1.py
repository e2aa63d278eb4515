"""FullyShardedDataParallel of torch 1.11 and later (FSDP1), wrapped by a policy."""

import functools
import os

import torch
import torch.distributed as dist
from model import Block, Config, Transformer
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.nn import functional as F

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
config = Config()
model = FullyShardedDataParallel(
    Transformer(config),
    auto_wrap_policy=functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block}),
    mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
    device_id=torch.cuda.current_device(),
    use_orig_params=True,
)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
for _ in range(10):
    tokens = torch.randint(0, config.vocabulary, (2, config.sequence), device="cuda")
    logits = model(tokens)
    F.cross_entropy(logits[:, :-1].float().flatten(0, 1), tokens[:, 1:].flatten()).backward()
    model.clip_grad_norm_(1.0)
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
