import torch
import torch.distributed as dist
from tiny import WIDTH, Block, start
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

device = start()
rank, stages = dist.get_rank(), dist.get_world_size()
model = Block().to(device)
stage = PipelineStage(model, rank, stages, device)
schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=lambda out, goal: (out - goal).pow(2).mean())
optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
for _ in range(4):
    x = torch.randn(8, 64, WIDTH, device=device)
    if rank == 0:
        schedule.step(x)
    elif rank == stages - 1:
        schedule.step(target=x)
    else:
        schedule.step()
    optimizer.step()
    optimizer.zero_grad()
