"""Trains with other work between the steps of the optimizer: --evaluate, --save FILE, --replace FILE.

Training itself has matrix products without gradients: in reentrant checkpoints, and in the optimizer Muon.
"""

import argparse
import os

import torch
from tiny import Transformer, batch, loss_of, start
from torch.utils.checkpoint import checkpoint

parser = argparse.ArgumentParser()
parser.add_argument("--evaluate", action="store_true")
parser.add_argument("--save")
parser.add_argument("--replace")
arguments = parser.parse_args()
device = start()
model = Transformer().to(device)
for block in model.blocks:
    block.forward = lambda x, forward=block.forward: (
        checkpoint(forward, x, use_reentrant=True) if model.training else forward(x)
    )
matrices = [each for each in model.blocks.parameters() if each.dim() == 2]
optimizer, other = torch.optim.AdamW(model.parameters()), torch.optim.Muon(matrices)


@torch.no_grad()
def evaluate():
    model.eval()
    loss_of(model, batch(device))
    model.train()


for _ in range(4):
    loss_of(model, batch(device)).backward()
    other.step()
    optimizer.step()
    optimizer.zero_grad()
    if arguments.evaluate:
        evaluate()
    if arguments.save:
        torch.save(model.state_dict(), arguments.save)
        torch.load(arguments.save, mmap=True)
    if arguments.replace:
        os.replace(arguments.save, arguments.replace)
