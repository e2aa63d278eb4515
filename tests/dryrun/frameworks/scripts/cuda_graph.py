"""A CUDA graph of forward and backward pass; gradients are reduced between its launch and the optimizer."""

import os

import torch
import torch.distributed as dist
from model import Config, Transformer
from torch.nn import functional as F

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
config = Config(layers=2)
model = Transformer(config).cuda().bfloat16()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, capturable=True)
tokens = torch.zeros(2, config.sequence, dtype=torch.long, device="cuda")


def passes():
    optimizer.zero_grad(set_to_none=False)
    F.cross_entropy(model(tokens).flatten(0, 1).float(), tokens.flatten()).backward()


side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        passes()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    passes()
for _ in range(10):
    tokens.copy_(torch.randint(0, config.vocabulary, tokens.shape))
    graph.replay()
    for weight in model.parameters():
        dist.all_reduce(weight.grad, op=dist.ReduceOp.AVG)
    optimizer.step()
dist.destroy_process_group()
