"""Shards of FSDP2's parameters, made when they are asked for: as torch's own, of which there is one per rank."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")


@given(st.lists(st.integers(0, 12), min_size=1, max_size=3), st.integers(1, 16), st.data())
def test_shards_are_the_chunks_that_torch_makes(shape, ranks, data):
    from torch.distributed.fsdp._fully_shard._fsdp_common import _chunk_with_empty

    from nvcoll.dryrun.inside.shards import Shards

    dim = data.draw(st.integers(0, len(shape) - 1))
    assume(shape[dim])  # FSDP2 has no parameter without elements
    tensor = torch.arange(float(torch.Size(shape).numel())).view(shape)
    shards, expected = Shards(tensor, ranks, dim), _chunk_with_empty(tensor, ranks, dim)
    assert len(shards) == len(expected) == ranks
    for one, other in zip(shards, expected, strict=True):
        assert one.shape == other.shape and one.stride() == other.stride() and torch.equal(one, other)
        assert one.numel() == 0 or one.data_ptr() == other.data_ptr()
