"""Trains a small network on several CPU ranks with DistributedDataParallel on nvcoll.

torchrun --nproc-per-node 4 examples/torch_ddp.py
nvcoll run -n 4 --on hgx-h100 examples/torch_ddp.py
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 20


def main():
    dist.init_process_group("nvcoll")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    network = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.randn(STEPS, dist.get_world_size(), 32, 64)
    for batch in inputs[:, dist.get_rank()]:
        optimizer.zero_grad()
        loss = (model(batch) - batch).square().mean()
        loss.backward()
        optimizer.step()
    dist.all_reduce(loss, dist.ReduceOp.AVG)
    if dist.get_rank() == 0:
        print(f"{dist.get_world_size()} ranks, loss {loss.item():.4f} after {STEPS} steps")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
