"""Changes a shape in its second step, so that torch.compile is at work again; `--ends`: it has two steps."""

import sys

import torch
from torch import nn


class Model(nn.Module):
    """A layer; torch before 2.14 does not compile its own modules."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(256, 256)

    def forward(self, x):
        return self.layer(x).relu()


model = Model().cuda()
model.compile(dynamic=False)
optimizer = torch.optim.SGD(model.parameters())
for step in range(2 if "--ends" in sys.argv else 5):
    rows = 64 if step == 0 else 128
    model(torch.randn(rows, 256, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
