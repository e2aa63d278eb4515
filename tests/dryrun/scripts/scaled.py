import torch
from tiny import Transformer, batch, loss_of, start
from torch.nn.parallel import DistributedDataParallel

device = start()
model = DistributedDataParallel(Transformer().to(device))
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
scaler = torch.amp.GradScaler("cuda")
for _ in range(4):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_of(model, batch(device))
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    print("scale", scaler.get_scale())
