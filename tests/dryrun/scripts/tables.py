"""Two tables that read the same tokens, in two micro-batches, through views."""

import torch

words, values = (torch.nn.Embedding(1000, 64).cuda() for _ in range(2))
optimizer = torch.optim.SGD([*words.parameters(), *values.parameters()])
for _ in range(5):
    for _ in range(2):
        tokens = torch.randint(0, 1000, (4, 33), device="cuda")
        (words(tokens[:, :-1]) + values(tokens[:, :-1])).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
