"""DistributedDataParallel: GPT-2 of transformers in fp16 with a GradScaler."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from transformers import GPT2Config, GPT2LMHeadModel

dist.init_process_group("nccl")
device = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(device)
model = DistributedDataParallel(GPT2LMHeadModel(GPT2Config()).cuda(), device_ids=[device])
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4)
scaler = torch.amp.GradScaler("cuda")
for step in range(10):
    tokens = torch.randint(0, 50257, (8, 1024), device="cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(tokens, labels=tokens).loss
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    if dist.get_rank() == 0:
        print(f"step {step} loss {loss.item():.3f}")
dist.destroy_process_group()
