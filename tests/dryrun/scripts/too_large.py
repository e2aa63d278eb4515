"""Needs more memory than a GPU has, in its first step."""

import torch
from tiny import start

device = start()
kept = [torch.empty(1 << 30, device=device) for _ in range(10)]


def one_more():
    return torch.empty(11 << 30, device=device)


kept.append(one_more())
