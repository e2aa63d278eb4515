"""torch.compile of a model under DistributedDataParallel, with bf16 autocast."""

import os

import torch
import torch.distributed as dist
from model import Config, Transformer
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl")
device = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(device)
config = Config(layers=2)
model = torch.compile(DistributedDataParallel(Transformer(config).cuda(), device_ids=[device]))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
for _ in range(10):
    tokens = torch.randint(0, config.vocabulary, (2, config.sequence), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
