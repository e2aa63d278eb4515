"""The messages of one communicator between hosts, by tags that no other communicator has.

A tag is the number of the communicator times 256, and a kind. Number 0 is the job's own.
"""

from __future__ import annotations

from collections.abc import Sequence

from nvcoll.hosts.outer import Bytes, Outer, Request
from nvcoll.hosts.places import Places

KINDS = 256
MAX_TAG = 2**19 - 2
"""The largest tag: Intel MPI allows no larger ones on all fabrics."""

CONTROL, BEAT, SUBSETS = range(3)
"""Kinds of number 0: failures, signs of life, the making of communicators."""

RECORD, FORWARD, BACK, DATA = range(4)
"""Kinds of a communicator: records of calls; partial sums and results of reductions; copies."""

MESSAGE, FIRST_OF_MESSAGES = 16, 32
"""Records of messages; the first of the kinds for their data."""

COMMUNICATORS = MAX_TAG // KINDS
"""How many communicators a job can make."""


class Channel:
    """The outer engine as one communicator uses it: ranks are those of the communicator.

    Args:
        outer: the engine.
        number: the number of the communicator, the same on all its ranks.
        places: the ranks of the communicator.
    """

    def __init__(self, outer: Outer, number: int, places: Places) -> None:
        self.outer, self.number = outer, number
        self._world, self._base = places.world, number * KINDS

    def isend(self, x: Bytes, rank: int, kind: int) -> Request:
        """Begins to send bytes to a rank."""
        return self.outer.isend(x, self._world[rank], self._base + kind)

    def irecv(self, x: Bytes, rank: int, kind: int) -> Request:
        """Begins to receive bytes from a rank."""
        return self.outer.irecv(x, self._world[rank], self._base + kind)

    def wait(self, requests: Sequence[Request], deadline: float | None) -> None:
        """Waits for requests: see `nvcoll.hosts.outer.Outer.wait`."""
        if requests:
            self.outer.wait(requests, deadline)
