"""torch.distributed.pipelining: blocks in stages, with the schedules of the library."""

import argparse
import os

import torch
import torch.distributed as dist
from model import Block, Config
from torch import nn
from torch.distributed.pipelining import PipelineStage, schedules
from torch.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--schedule", default="1F1B")
parser.add_argument("--chunks", type=int, default=1, help="stages of each rank")
args = parser.parse_args()

dist.init_process_group("nccl")
rank, ranks = dist.get_rank(), dist.get_world_size()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
config, stages = Config(), ranks * args.chunks
Schedule = schedules.get_schedule_class(args.schedule)
is_v = "V" in args.schedule  # the last stage is on the first rank
mine = [rank, stages - 1 - rank] if is_v else list(range(rank, stages, ranks))


class Part(nn.Module):
    def __init__(self, stage):
        super().__init__()
        self.embedding = nn.Embedding(config.vocabulary, config.width) if stage == 0 else nn.Identity()
        self.block = Block(config)
        last = stage == stages - 1
        self.head = nn.Linear(config.width, config.vocabulary, bias=False) if last else nn.Identity()

    def forward(self, x):
        return self.head(self.block(self.embedding(x)))


def loss(logits, tokens):
    return F.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten())


parts = [Part(stage).to(device, torch.bfloat16) for stage in mine]
held = [PipelineStage(part, stage, stages, device) for part, stage in zip(parts, mine, strict=True)]
schedule = Schedule(held if args.chunks > 1 else held[0], n_microbatches=8, loss_fn=loss)
optimizer = torch.optim.AdamW([weight for part in parts for weight in part.parameters()], lr=3e-4, fused=True)
for _ in range(10):
    tokens = torch.randint(0, config.vocabulary, (8, config.sequence), device=device)
    inputs = (tokens,) if 0 in mine else ()
    targets = {"target": tokens, "losses": []} if stages - 1 in mine else {}
    schedule.step(*inputs, **targets)
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
