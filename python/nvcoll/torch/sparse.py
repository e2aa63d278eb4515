"""all_reduce of sparse tensors (COO): the ranks gather all entries, and add them.

Source: gloo's sparse all_reduce in torch does the same.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

import nvcoll
from nvcoll.torch.tensors import op_of
from nvcoll.torch.works import DoneWork, invalid


def all_reduce_sparse(comm: nvcoll.Communicator, x: torch.Tensor, opts: object) -> dist.Work:
    """Adds the entries of all ranks, and makes ``x`` the sum. Runs at once.

    Raises:
        DistBackendError: the layout is not COO, or the op is not sum.
    """
    if x.layout is not torch.sparse_coo or op_of(opts) != "sum":
        raise invalid(
            f"found a tensor of layout {x.layout} and op {op_of(opts)}, expected layout sparse_coo and op sum: "
            "pass x.to_sparse_coo() or x.to_dense()"
        )
    own = x.coalesce()
    lengths = torch.zeros(comm.world_size, dtype=torch.int64)
    comm.all_gather(torch.tensor([own._nnz()]), out=lengths)
    counts = lengths.tolist()
    indices, values = own.indices().t().contiguous(), own.values().contiguous()
    gathered = []
    for one in (indices, values):
        width = one[0].numel() if len(one) else one.numel() or int(torch.tensor(one.shape[1:]).prod())
        out = torch.empty((sum(counts), *one.shape[1:]), dtype=one.dtype)
        comm.all_gather(one, counts=[n * width for n in counts], out=out)
        gathered.append(out)
    total = torch.sparse_coo_tensor(gathered[0].t(), gathered[1], x.shape).coalesce()
    with torch.no_grad():
        x.copy_(total)
    return DoneWork([x])
