import torch
from tiny import Transformer, batch, loss_of, start

device = start()
model = Transformer(blocks=1).to(device)
model.blocks[0].compile()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
for _ in range(4):
    loss_of(model, batch(device)).backward()
    optimizer.step()
    optimizer.zero_grad()
