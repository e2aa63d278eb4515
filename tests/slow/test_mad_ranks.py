"""A rank that writes random bytes over what ranks share harms the results of its peers, and nothing else of theirs.

Peers never crash, never write beyond the arrays of a call, and never stay past the deadline. What they are told may be
wrong: a rank that writes words at random can also write those of a healthy rank.
"""

from __future__ import annotations

import os
import sys

import mad_ranks
import pytest

from nvcoll.testing import no_residue, run_ranks

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="ranks that are processes need Linux"),
    pytest.mark.timeout(600),
]

SEEDS = int(os.environ.get("NVCOLL_MAD_SEEDS", "2"))


@pytest.mark.parametrize("is_steady", [False, True], ids=["before", "all the time"])
@pytest.mark.parametrize("target", mad_ranks.TARGETS)
def test_peers_of_a_mad_rank_live_and_keep_their_memory(target, is_steady):
    for seed in range(SEEDS):
        with no_residue():
            run = run_ranks(mad_ranks.survive, 3, target, seed, is_steady, timeout=40)
        for peer in (run[0], run[2]):
            assert peer.returned and peer.status == 0 and not peer.is_overdue, f"seed {seed}: {peer}\n{peer.trace}"
            assert peer.value.is_intact and not peer.residue, f"seed {seed}: {peer}"
        assert run[mad_ranks.MAD].value is None or run[mad_ranks.MAD].value.written > 0
