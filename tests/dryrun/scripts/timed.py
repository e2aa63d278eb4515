"""Times its steps by events, by the clock and by torch's profiler."""

import json
import sys
import time

import torch
from tiny import start
from torch import nn

device = start()
model = nn.parallel.DistributedDataParallel(nn.Linear(4096, 4096, device=device, dtype=torch.bfloat16))
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
trace = sys.argv[1]
schedule = torch.profiler.schedule(wait=7, warmup=1, active=2)
with torch.profiler.profile(schedule=schedule) as profiler:
    for _ in range(11):
        begin, first, last = time.time(), *(torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        model(torch.randn(8192, 4096, device=device, dtype=torch.bfloat16)).float().pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        last.record()
        torch.cuda.synchronize()
        print("timed", json.dumps({"events": first.elapsed_time(last), "begin": 1e3 * begin}))
        profiler.step()
profiler.export_chrome_trace(trace)
