"""Runs a script in a real process, and writes the matrix products and collectives of its third step of training."""

import json
import os
import runpy
import sys

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Watched(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if FakeTensor in types:  # DTensor works out a shape
            return op(*args, **(kwargs or {}))
        if types and any(kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ for kind in types):
            return NotImplemented
        name = op.name().split(".")[0]
        if name.split("::")[1] in ("mm", "addmm", "bmm") or op.namespace in ("c10d", "_c10d_functional"):
            shapes = [tuple(each.shape) for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
            self.seen.append((name, shapes[:4]))
        return op(*args, **(kwargs or {}))


watched, steps = Watched(), []


def after_step(*_):
    steps.append(1)
    if len(steps) == 2:  # DDP arranges its buckets in the second step
        watched.__enter__()
    elif len(steps) == 3:
        watched.__exit__(None, None, None)
        if os.environ["RANK"] == "0":
            with open(os.environ["OPERATORS"], "w") as file:
                json.dump(watched.seen, file)
        dist.barrier()
        os._exit(0)


register_optimizer_step_post_hook(after_step)
joined = dist.init_process_group
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store = dist.FileStore(os.environ["RENDEZVOUS"], world)
dist.init_process_group = lambda backend: joined(backend, store=store, rank=rank, world_size=world)
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
