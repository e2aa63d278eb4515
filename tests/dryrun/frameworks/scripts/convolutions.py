"""A residual network with synchronized batch norm, channels last, under DistributedDataParallel."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--sync-batchnorm", action="store_true")
args = parser.parse_args()


def convolution(inputs, outputs, size, stride=1):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()
    )


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.convolutions = nn.Sequential(convolution(inputs, outputs, 3, stride), convolution(outputs, outputs, 3))
        self.shortcut = convolution(inputs, outputs, 1, stride)

    def forward(self, x):
        return self.convolutions(x) + self.shortcut(x)


dist.init_process_group("nccl")
device = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(device)
torch.backends.cudnn.benchmark = True
stages = [Residual(64, 64, 1), Residual(64, 128, 2), Residual(128, 256, 2), Residual(256, 512, 2)]
model = nn.Sequential(
    convolution(3, 64, 7, 2),
    nn.MaxPool2d(3, 2, 1),
    *stages,
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(512, 1000),
)
if args.sync_batchnorm:
    model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
model = DistributedDataParallel(model.cuda().to(memory_format=torch.channels_last), device_ids=[device])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for _ in range(10):
    images = torch.randn(64, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (64,), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
