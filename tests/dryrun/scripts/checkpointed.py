import torch
from tiny import Transformer, batch, loss_of, start
from torch.distributed._composable import checkpoint

device = start()
model = Transformer().to(device)
for block in model.blocks:
    checkpoint(block)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
for _ in range(4):
    loss_of(model, batch(device)).backward()
    optimizer.step()
    optimizer.zero_grad()
