"""Waits without an answer at the beginning of a job end in time and say what they wait for."""

from __future__ import annotations

import datetime
import types

import pytest

import nvcoll
from nvcoll.ranks import long_waits


def test_a_join_that_waits_for_long_says_for_whom(monkeypatch, capfd):
    monkeypatch.setattr(long_waits, "VOICE_S", 0.1)
    with pytest.raises(nvcoll.Timeout, match="rank 1 has not come"):
        nvcoll.init(0, 2, "a long wait", join_timeout=0.4)
    said = "nvcoll: rank 0 waits for the other ranks of job 'a long wait' to join, for 0.1 s now\n"
    assert capfd.readouterr().err == said


def test_a_short_join_says_nothing(capfd):
    nvcoll.init(0, 1, "a short wait")
    nvcoll.finalize()
    assert capfd.readouterr().err == ""


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
