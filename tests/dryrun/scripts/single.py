"""Trains on one GPU: no process group."""

import tiny
import torch

device = torch.device("cuda")
model = tiny.Transformer().to(device)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(5):
    tiny.loss_of(model, tiny.batch(device)).backward()
    optimizer.step()
    optimizer.zero_grad()
