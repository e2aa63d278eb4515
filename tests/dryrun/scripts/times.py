"""A table of classes and one of times, one integer for each image, beside four words for each."""

import sys

import torch

classes, times, words = (torch.nn.Embedding(size, 8).cuda() for size in (10, 1000, 50))
convolution = torch.nn.Conv2d(3, 8, 3).cuda()
optimizer = torch.optim.SGD([*classes.parameters(), *convolution.parameters()])
for _ in range(5):
    label, time, text = (torch.randint(0, 10, size, device="cuda") for size in ((16,), (16,), (16, 4)))
    result = convolution(torch.rand(16, 3, 8, 8, device="cuda")).mean((2, 3)) + classes(label) + times(time)
    (result + words(text).mean(1) if "words" in sys.argv else result).sum().backward()
    optimizer.step()
