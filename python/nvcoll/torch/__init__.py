"""The backend ``nvcoll`` of torch.distributed: ``init_process_group("nvcoll")`` on CPU ranks of one machine.

>>> import torch.distributed as dist
>>> dist.init_process_group("nvcoll")          # under torchrun or nvcoll run -n
>>> x = torch.ones(3)
>>> dist.all_reduce(x)

``import torch`` registers the backend; ``import nvcoll.torch`` does it too.

| file | subject |
|---|---|
| `groups` | a process group: how ranks find each other, subgroups, the end |
| `calls` | the calls of a process group, by torch's names |
| `tensors` | lists of tensors as one array, dtypes that nvcoll does not know |
| `works` | ``Work`` and ``Future`` of a call |
"""

from nvcoll.torch.groups import ProcessGroup, communicator, recent_calls

__all__ = ["ProcessGroup", "communicator", "recent_calls"]
