"""Trains with other work between the steps of the optimizer: --evaluate, --reference, --save FILE, --replace FILE.

Training itself has matrix products without gradients: in reentrant checkpoints, in the optimizer Muon, and tiny ones. A
function stands for the model's `forward`, as accelerate makes one for mixed precision.
"""

import argparse
import copy
import os

import torch
from tiny import Transformer, batch, loss_of, start
from torch.utils.checkpoint import checkpoint

parser = argparse.ArgumentParser()
parser.add_argument("--evaluate", action="store_true")
parser.add_argument("--reference", action="store_true")
parser.add_argument("--save")
parser.add_argument("--replace")
arguments = parser.parse_args()
device = start()
model = Transformer().to(device)
for block in model.blocks:
    block.forward = lambda x, forward=block.forward: (
        checkpoint(forward, x, use_reentrant=True) if model.training else forward(x)
    )
reference = copy.deepcopy(model)
plain = model.forward


def forward(*args):
    return plain(*args)


model.forward = forward
matrices = [each for each in model.blocks.parameters() if each.dim() == 2]
optimizer, other = torch.optim.AdamW(model.parameters()), torch.optim.Muon(matrices)


@torch.no_grad()
def evaluate():
    model.eval()
    loss_of(model, batch(device))
    model.train()


for step in range(4):
    with torch.no_grad():
        torch.ones(4, 1, device=device) @ torch.ones(1, 4, device=device)
    if arguments.reference:
        with torch.no_grad():
            loss_of(reference, batch(device))
    loss_of(model, batch(device)).backward()
    other.step()
    optimizer.step()
    optimizer.zero_grad()
    if arguments.evaluate and step % 2 == 0:
        evaluate()
    if arguments.save:
        torch.save(model.state_dict(), arguments.save)
        torch.load(arguments.save, mmap=True)
    if arguments.replace:
        os.replace(arguments.save, arguments.replace)
