"""What NCCL would refuse, and what it would not."""

import pytest

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")

pytestmark = [pytest.mark.ranks(2, strict="nccl"), pytest.mark.skipif(torch.cuda.is_available(), reason="for CPUs")]

REFUSED = {
    "a strided tensor": lambda: dist.all_reduce(torch.ones(4, 4)[:, 1]),
    "the op bor": lambda: dist.all_reduce(torch.ones(4, dtype=torch.int32), dist.ReduceOp.BOR),
    "a tensor of torch.int16": lambda: dist.broadcast(torch.ones(4, dtype=torch.int16), 0),
    "for torch.bool": lambda: dist.all_reduce(torch.ones(4, dtype=torch.bool), dist.ReduceOp.AVG),
    "a tensor of layout torch.sparse_coo": lambda: dist.all_reduce(torch.ones(2, 2).to_sparse()),
    "cannot receive from any rank": lambda: dist.recv(torch.ones(4)),
    "has no monitored_barrier": lambda: dist.group.WORLD.monitored_barrier(),
}


@pytest.mark.parametrize("words", REFUSED)
def test_nccl_refuses(words):
    with pytest.raises(RuntimeError, match=words):
        REFUSED[words]()
    dist.barrier()


def test_nccl_does_not_refuse():
    x = torch.ones(4, dtype=torch.bfloat16)
    dist.all_reduce(x, dist.ReduceOp.AVG)
    dist.all_gather_into_tensor(torch.empty(8, dtype=torch.bfloat16), x)
    dist.all_gather_object([None, None], "words")
    group = dist.new_group([0, 1])
    dist.all_reduce(torch.ones(3), group=group)
    assert x[0] == 1
