"""Launches a kernel that the script wrote in Triton, with configurations to choose from, beside an optimizer."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.autotune([triton.Config({"BLOCK": block}) for block in (512, 1024)], key=["n"])
@triton.jit
def double(source, result, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(result + places, 2 * tl.load(source + places, mask=places < n), mask=places < n)


def grid(meta):
    return (triton.cdiv(1 << 20, meta["BLOCK"]),)


model = nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.SGD(model.parameters())
for _ in range(4):
    x = torch.randn(1 << 20, device="cuda")
    y = torch.empty_like(x)
    double[grid](x, y, x.numel())
    model(y.view(1024, 1024)).sum().backward()
    optimizer.step()
