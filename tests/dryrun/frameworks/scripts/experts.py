"""A mixture of experts: a router, and experts of their own on each rank behind all_to_all."""

import os

import torch
import torch.distributed as dist
from model import Attention, Config
from torch import nn
from torch.distributed.nn.functional import all_to_all_single
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

EXPERTS, CHOSEN = 64, 2

dist.init_process_group("nccl")
ranks = dist.get_world_size()
device = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(device)
node = dist.new_subgroups(8)[0]  # the ranks that share one set of experts
here = EXPERTS // 8


class Experts(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.router = nn.Linear(config.width, EXPERTS, bias=False)
        self.up = nn.Parameter(torch.empty(here, config.width, 2 * config.width))
        self.down = nn.Parameter(torch.empty(here, 2 * config.width, config.width))
        nn.init.normal_(self.up, std=0.02)
        nn.init.normal_(self.down, std=0.02)

    def forward(self, x):
        tokens = x.flatten(0, 1)
        weights, experts = self.router(tokens).softmax(-1).topk(CHOSEN, -1)
        order = experts.flatten().argsort()
        sent = experts.flatten().bincount(minlength=EXPERTS)
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent, group=node)
        sends = sent.view(8, here).sum(1).tolist()
        receives = received.view(8, here).sum(1).tolist()
        rows = tokens[order // CHOSEN]
        arrived = all_to_all_single(rows.new_empty(sum(receives), rows.shape[1]), rows, receives, sends, group=node)
        # from (rank, expert) to (expert, rank)
        owner = torch.arange(here, device=x.device).repeat(8).repeat_interleave(received)
        by_expert = owner.argsort(stable=True)
        ends = received.view(8, here).sum(0).cumsum(0).to(torch.int32)
        hidden = F.silu(torch._grouped_mm(arrived[by_expert], self.up.to(x.dtype), ends))
        answered = torch._grouped_mm(hidden, self.down.to(x.dtype), ends)
        back = torch.empty_like(answered)
        back[by_expert] = answered
        returned = all_to_all_single(torch.empty_like(rows), back, sends, receives, group=node)
        scaled = returned * weights.flatten()[order][:, None].to(x.dtype)
        return torch.zeros_like(tokens).index_add(0, order // CHOSEN, scaled).view_as(x)


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attention = Attention(config)
        self.experts = Experts(config)

    def forward(self, x):
        x = x + self.attention(x)
        return x + self.experts(x)


config = Config(layers=2)
layers = nn.Sequential(*(Layer(config) for _ in range(config.layers))).cuda().bfloat16()
local = [name for name, _ in layers.named_parameters() if name.endswith((".up", ".down"))]
DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(layers, local)
model = DistributedDataParallel(layers, device_ids=[device])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(10):
    x = torch.randn(2, config.sequence, config.width, device="cuda", dtype=torch.bfloat16)
    model(x).float().square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
