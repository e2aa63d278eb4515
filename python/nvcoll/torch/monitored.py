"""``monitored_barrier``: a barrier after which rank 0 names the ranks that did not arrive.

::

    another rank    sends a message to rank 0, and waits for the answer
    rank 0          receives the messages until the timeout; then answers, or ends the group and names the missing ranks

Source: the barrier of gloo in torch, whose words the messages have.
"""

from __future__ import annotations

import time
from datetime import timedelta

import numpy as np

import nvcoll

TAG = 2**31 - 1
"""The tag of its messages. Chosen: the greatest, which programs hardly use."""


def monitored_barrier(comm: nvcoll.Communicator, timeout: timedelta, *, wait_all_ranks: bool) -> None:
    """Waits until every rank has called it.

    Args:
        comm: the communicator of the group.
        timeout: how long rank 0 waits for the others, and they for it.
        wait_all_ranks: rank 0 names all missing ranks, not only the first.

    Raises:
        RuntimeError: a rank has not come.
    """
    seconds = timeout.total_seconds()
    if comm.rank:
        _come(comm, seconds)
        return
    if seconds <= 0:
        raise RuntimeError(f"Rank 0 timed out in monitoredBarrier: its timeout is {seconds} s")
    peers = range(1, comm.world_size)
    calls = [comm.irecv(np.empty(1, "u1"), peer, tag=TAG) for peer in peers]
    missing = _missing(calls, seconds)
    if missing:
        comm.abort()
        ranks = ", ".join(map(str, missing if wait_all_ranks else missing[:1]))
        plural = "s" if len(missing) > 1 and wait_all_ranks else ""
        raise RuntimeError(f"Rank{plural} {ranks} failed to pass monitoredBarrier in {seconds:g} s")
    for peer in peers:
        comm.send(np.zeros(1, "u1"), peer, tag=TAG)


def _come(comm: nvcoll.Communicator, seconds: float) -> None:
    try:
        comm.isend(np.zeros(1, "u1"), 0, tag=TAG)
        comm.recv(np.empty(1, "u1"), 0, tag=TAG, timeout=max(seconds, 0))
    except nvcoll.Error as error:
        raise RuntimeError(
            f"Rank {comm.rank} successfully reached monitoredBarrier, but received errors while waiting for send/recv "
            f"from rank 0: {error}"
        ) from error


def _missing(calls: list[nvcoll.Work], seconds: float) -> list[int]:
    """Returns the ranks whose message has not come in time."""
    deadline = time.monotonic() + seconds
    missing = []
    for peer, call in enumerate(calls, 1):
        try:
            call.wait(max(deadline - time.monotonic(), 0))
        except nvcoll.Error:
            missing.append(peer)
    return missing
