"""A small decoder-only transformer, written as users write theirs."""

from dataclasses import dataclass

from torch import nn
from torch.nn import functional as F


@dataclass
class Config:
    width: int = 512
    heads: int = 8
    layers: int = 4
    vocabulary: int = 4096
    sequence: int = 1024


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.head_size = config.width // config.heads
        self.q, self.k, self.v, self.out = (nn.Linear(config.width, config.width, bias=False) for _ in range(4))

    def forward(self, x):
        q, k, v = (linear(x).unflatten(-1, (-1, self.head_size)).transpose(1, 2) for linear in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.up = nn.Linear(config.width, 4 * config.width, bias=False)
        self.down = nn.Linear(4 * config.width, config.width, bias=False)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norm_attention = nn.RMSNorm(config.width)
        self.attention = Attention(config)
        self.norm_mlp = nn.RMSNorm(config.width)
        self.mlp = MLP(config)

    def forward(self, x):
        x = x + self.attention(self.norm_attention(x))
        return x + self.mlp(self.norm_mlp(x))


class Transformer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))
