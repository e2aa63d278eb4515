"""The backend ``nvcoll`` of torch.distributed: ``init_process_group("nvcoll")`` on CPU ranks of one machine.

>>> import torch.distributed as dist
>>> dist.init_process_group("nvcoll")          # under torchrun or nvcoll run -n
>>> x = torch.ones(3)
>>> dist.all_reduce(x)

``import torch`` registers the backend; ``import nvcoll.torch`` does it too.

| file | subject |
|---|---|
| `groups`, `backends` | process groups, and their part for the CPU |
| `calls`, `sparse`, `monitored` | the calls of a process group, by torch's names |
| `rendezvous` | how the ranks of a group find each other |
| `tensors` | lists of tensors as one array, dtypes that nvcoll does not know |
| `works` | ``Work`` and ``Future`` of a call |
| `profiling` | events for torch's profiler |
| `private` | private names of torch, and the versions that have them |
| `strict` | what NCCL would refuse |
| `reporting` | what the calls would cost on other machines |
"""

import nvcoll_autoload
from nvcoll.torch.groups import ProcessGroup, communicator, recent_calls

nvcoll_autoload.register()

__all__ = ["ProcessGroup", "communicator", "recent_calls"]
