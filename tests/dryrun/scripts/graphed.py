import sys

import torch
from tiny import Transformer, batch, loss_of, start

device = start()
model = Transformer().to(device, torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
tokens = batch(device)


def step():
    loss_of(model, tokens).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)


replay = step
if "--eager" not in sys.argv:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    replay = graph.replay
for _ in range(4):
    tokens.copy_(batch("cpu"))
    replay()
