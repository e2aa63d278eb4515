"""Data parallel training that profiles itself: the first argument is the file of the trace."""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule

dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(4))).cuda().bfloat16()
model = DistributedDataParallel(model, bucket_cap_mb=10)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
x = torch.randn(4096, 2048, device="cuda", dtype=torch.bfloat16)
both = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
with profile(activities=both, schedule=schedule(wait=2, warmup=1, active=2)) as profiler:
    for _ in range(6):
        optimizer.zero_grad()
        model(x).float().pow(2).mean().backward()
        optimizer.step()
        profiler.step()
        if profiler.step_num == 5:
            profiler.export_chrome_trace(sys.argv[1])
dist.destroy_process_group()
