"""A transformer that is small and has all that large ones have, and the start that all scripts here share."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn

VOCABULARY, WIDTH, HEADS, TOKENS, BATCH = 512, 256, 4, 256, 2
ON = "cpu" if "--cpu" in sys.argv else "cuda"
"""Where the script runs: a test compares the dry run with a real run on CPUs."""


class Block(nn.Module):
    def __init__(self, width=WIDTH):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def attend(self, x):
        batch, tokens, _ = x.shape
        query, key, value = self.qkv(x).view(batch, tokens, 3, -1, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, tokens, -1))

    def forward(self, x):
        x = x + self.attend(self.first(x))
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


class Transformer(nn.Module):
    def __init__(self, blocks=2):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def start():
    """Joins the world, and returns the device of this rank."""
    dist.init_process_group("gloo" if ON == "cpu" else "nccl")
    if ON == "cpu":
        return torch.device("cpu")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    return torch.device("cuda", int(os.environ["LOCAL_RANK"]))


def batch(device):
    return torch.randint(0, VOCABULARY, (BATCH, TOKENS), device=device)


def loss_of(model, tokens):
    return nn.functional.cross_entropy(model(tokens).float().flatten(0, 1), tokens.flatten())


def train():
    """Takes the three steps for which a dry run waits, after a script has looked at what it came for."""
    model = nn.Linear(8, 8, device="cuda")
    optimizer = torch.optim.SGD(model.parameters())
    for _ in range(3):
        model(torch.ones(4, 8, device="cuda")).sum().backward()
        optimizer.step()
