import functools

import torch
from tiny import Block, Transformer, batch, loss_of, start
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

device = start()
policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
model = FullyShardedDataParallel(Transformer().to(device), auto_wrap_policy=policy, use_orig_params=True)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    loss_of(model, batch(device)).backward()
    model.clip_grad_norm_(1.0)
    optimizer.step()
    optimizer.zero_grad()
