"""Trains in the main thread or in a thread of its own (`thread`), while another thread works on the CPU."""

import sys
import threading

import torch
from torch import nn


def train():
    model = nn.Sequential(nn.Embedding(1000, 256), nn.Linear(256, 256), nn.LayerNorm(256)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        tokens = torch.arange(1000, device="cuda") % int(torch.arange(100, device="cuda").max() + 1)
        model(tokens).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def count():
    while True:
        torch.arange(1000).sum()


threading.Thread(target=count, daemon=True).start()
if sys.argv[1:] == ["thread"]:
    trainer = threading.Thread(target=train)
    trainer.start()
    trainer.join()
else:
    train()
