"""What NCCL would refuse, and what it would not."""

import pytest

from nvcoll._nvcoll import dtypes

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")
strict = pytest.importorskip("nvcoll.torch.strict")


pytestmark = [pytest.mark.ranks(2, strict="nccl"), pytest.mark.skipif(torch.cuda.is_available(), reason="for CPUs")]

REFUSED = {
    "a strided tensor": lambda: dist.all_reduce(torch.ones(4, 4)[:, 1]),
    "the op bor": lambda: dist.all_reduce(torch.ones(4, dtype=torch.int32), dist.ReduceOp.BOR),
    "a tensor of torch.int16": lambda: dist.broadcast(torch.ones(4, dtype=torch.int16), 0),
    "for torch.bool": lambda: dist.all_reduce(torch.ones(4, dtype=torch.bool), dist.ReduceOp.AVG),
    "a tensor of layout torch.sparse_coo": lambda: dist.all_reduce(torch.ones(2, 2).to_sparse()),
    "NCCL scales": lambda: dist.all_reduce(torch.ones(4, dtype=torch.int64), dist._make_nccl_premul_sum(2.0)),
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
    dist.all_reduce(torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last))
    dist.all_gather([torch.ones(4, 2).t() for _ in range(2)], torch.ones(2, 4))  # torch copies such lists
    if dist.get_rank():
        dist.send(torch.ones(4, 2).t(), 0)
    else:
        dist.recv(torch.ones(2, 4), 1)


@pytest.mark.skipif(not hasattr(dist.Backend, "_ensure_backend_registered"), reason="needs torch 2.14")
def test_groups_that_are_split_off_refuse_too():
    group = dist.split_group(split_ranks=[[0, 1]])
    with pytest.raises(RuntimeError, match="a strided tensor"):
        dist.all_reduce(torch.ones(4, 4)[:, 1], group=group)


def test_of_every_dtype_it_is_said_whether_nccl_has_it():
    for row in dtypes():
        has_it = getattr(torch, row.name, None) in strict.DTYPES
        assert has_it or row.name in strict.__doc__, f"{row.name}: name it in DTYPES or in the page of strict.py"
