"""Waits without an answer at the beginning of a job end in time and say what they wait for."""

from __future__ import annotations

import datetime
import types

import pytest

import nvcoll


def test_a_rank_that_does_not_come_to_the_store_of_torch_is_named_at_the_timeout_of_the_group(tmp_path):
    dist = pytest.importorskip("torch.distributed")
    from nvcoll.torch import rendezvous

    store = dist.FileStore(str(tmp_path / "store"), 2)
    timeout = datetime.timedelta(seconds=0.3)
    for rank, missing in ((0, 1), (1, 0)):
        options = types.SimpleNamespace(store=store, group_rank=rank, group_size=2, timeout=timeout)
        if rank == 1:
            options.store = dist.PrefixStore("other", store)
        with pytest.raises(
            nvcoll.Timeout, match=f"rank {rank} waits for rank {missing} in torch's store: it did not call"
        ):
            rendezvous._job_of(options)
