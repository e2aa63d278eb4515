import torch
from tiny import Transformer, batch, loss_of, start

device = start()
model = Transformer().to(device)
optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
tokens = batch(device)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    loss_of(model, tokens).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
for _ in range(4):
    tokens.copy_(batch("cpu"))
    graph.replay()
