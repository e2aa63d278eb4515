import torch
from tiny import start
from torch import nn
from torch.nn.parallel import DistributedDataParallel

device = start()
model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.BatchNorm2d(32))
model = nn.SyncBatchNorm.convert_sync_batchnorm(model.to(device))
model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(4):
    model(torch.randn(16, 3, 64, 64, device=device)).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
