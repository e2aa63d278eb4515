import torch
from tiny import Transformer, batch, loss_of, start
from torch.nn.parallel import DistributedDataParallel

device = start()
model = DistributedDataParallel(Transformer().to(device), bucket_cap_mb=1)
optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
for _ in range(4):
    loss_of(model, batch(device)).backward()
    optimizer.step()
    optimizer.zero_grad()
