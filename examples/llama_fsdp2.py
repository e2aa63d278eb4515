"""Trains a Llama 3 from nothing with FSDP2, in bf16, on random tokens: an ordinary script for GPUs.

torchrun --nproc-per-node 8 examples/llama_fsdp2.py --model 8b
nvcoll dryrun -n 512 --on hgx-h100x64+ib-ndr-8 examples/llama_fsdp2.py --model 70b --checkpointing
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

MODELS = {  # layers, width, width of the MLP, heads, heads of keys
    "8b": (32, 4096, 14336, 32, 8),
    "70b": (80, 8192, 28672, 64, 8),
    "405b": (126, 16384, 53248, 128, 8),
}
VOCABULARY = 128256


class Attention(nn.Module):
    def __init__(self, width, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads, self.head = heads, kv_heads, width // heads
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, kv_heads * self.head, bias=False)
        self.v = nn.Linear(width, kv_heads * self.head, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x, cos, sin):
        def split(y, heads):
            return y.view(*y.shape[:2], heads, self.head).transpose(1, 2)

        def rotate(y):
            even, odd = y.chunk(2, -1)
            return torch.cat((even * cos - odd * sin, even * sin + odd * cos), -1)

        q, k, v = rotate(split(self.q(x), self.heads)), rotate(split(self.k(x), self.kv_heads)), self.v(x)
        y = F.scaled_dot_product_attention(q, k, split(v, self.kv_heads), is_causal=True, enable_gqa=True)
        return self.out(y.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, width, mlp, heads, kv_heads):
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention = Attention(width, heads, kv_heads)
        self.gate = nn.Linear(width, mlp, bias=False)
        self.up = nn.Linear(width, mlp, bias=False)
        self.down = nn.Linear(mlp, width, bias=False)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.attention_norm(x), cos, sin)
        y = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, layers, width, mlp, heads, kv_heads):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(Layer(width, mlp, heads, kv_heads) for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens, cos, sin):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))


def sharded(model, mesh, checkpointing):
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for index, layer in enumerate(model.layers):
        if checkpointing:
            model.layers[index] = layer = checkpoint_wrapper(layer)
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def rotary(sequence, head, device):
    rates = 500000.0 ** (-torch.arange(0, head, 2, device=device) / head)
    angles = torch.outer(torch.arange(sequence, device=device), rates)
    return angles.cos().bfloat16(), angles.sin().bfloat16()


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--model", choices=MODELS, default="8b")
    options.add_argument("--layers", type=int, help="fewer layers than the model has")
    options.add_argument("--sequence", type=int, default=8192)
    options.add_argument("--batch", type=int, default=1, help="sequences of a GPU in a step")
    options.add_argument("--steps", type=int, default=10)
    options.add_argument("--checkpointing", action="store_true", help="compute each layer again in the backward pass")
    chosen = options.parse_args()
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(0)
    layers, *shape = MODELS[chosen.model]
    with torch.device("meta"):
        model = Llama(chosen.layers or layers, *shape)
    model = sharded(model, init_device_mesh("cuda", (dist.get_world_size(),)), chosen.checkpointing)
    model.to_empty(device="cuda")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.02) if parameter.dim() > 1 else parameter.fill_(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    cos, sin = rotary(chosen.sequence, shape[0] // shape[2], "cuda")
    for step in range(chosen.steps):
        began = time.perf_counter()
        tokens = torch.randint(VOCABULARY, (chosen.batch, chosen.sequence + 1), device="cuda")
        logits = model(tokens[:, :-1], cos, sin)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss = loss.item()
        if dist.get_rank() == 0:
            speed = chosen.batch * chosen.sequence / (time.perf_counter() - began)
            print(f"step {step}: loss {loss:.3f}, {speed:.0f} tokens/s per GPU")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
