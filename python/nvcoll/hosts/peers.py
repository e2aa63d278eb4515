"""What the calls of a communicator use: the ranks by host, messages to other hosts, calls inside this host, a deadline.

Messages have tags that no other communicator has: its number times 32, and a kind. Number 0 is the job's own. Rows of
sizes are bytes per rank of this host, equal on all of them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from nvcoll._nvcoll import Communicator
from nvcoll.hosts.arrays import even
from nvcoll.hosts.carrier import MAX_TAG, Bytes, Carrier, Request
from nvcoll.hosts.placement import Placement

KINDS = 32

RECORD, FORWARD, BACK, DATA = range(4)
"""Kinds of messages: records of calls; partial sums and results of reductions; copies."""

MESSAGE, MESSAGE_DATA = 16, 17
"""Kinds of the program's messages: records, and the data of long ones."""

COMMUNICATORS = MAX_TAG // KINDS
"""How many communicators a job can make."""

LATER_S = 1.0
"""Calls inside the host have a later deadline, so that the reason of the other hosts comes first. Chosen."""


class Peers:
    """The ranks of a communicator, for one collective at a time.

    Args:
        placement: the ranks by host.
        inner: the communicator of the ranks of this host.
        carrier: carries messages to other hosts.
        number: the number of the communicator, the same on all its ranks.
    """

    def __init__(self, placement: Placement, inner: Communicator, carrier: Carrier, number: int) -> None:
        self.placement, self.inner, self.carrier = placement, inner, carrier
        self.deadline: float | None = None
        self._first_tag = number * KINDS

    @property
    def others(self) -> list[int]:
        """The other hosts."""
        return [host for host in range(len(self.placement.hosts)) if host != self.placement.host]

    @property
    def is_on_a_rail(self) -> bool:
        """Whether every host has a rank with this local index."""
        return self.placement.local < self.placement.rails

    @property
    def is_first(self) -> bool:
        """Whether this rank is the first of its host, which meets the first ranks of other hosts."""
        return self.placement.local == 0

    def peer(self, host: int) -> int:
        """Returns the rank of this rail on a host."""
        rank = self.placement.peer(host)
        assert rank is not None
        return rank

    def shards(self, count: int) -> list[int]:
        """Returns the elements of each rank of this host, of elements that are shared out among the rails."""
        rails = self.placement.rails
        return even(count, rails) + [0] * (len(self.placement.mine) - rails)

    def own(self, block: Bytes, shards: Sequence[int]) -> Bytes:
        """Returns this rank's shard of bytes that are shared out."""
        local = self.placement.local
        return block[sum(shards[:local]) :][: shards[local]]

    def begin(self, timeout: float | None) -> None:
        """Begins a call that may take some seconds."""
        self.deadline = None if timeout is None else time.monotonic() + timeout

    # Between hosts

    def isend(self, x: Bytes, rank: int, kind: int) -> Request:
        """Begins to send bytes to a rank."""
        return self.carrier.isend(x, self.placement.world[rank], self._first_tag + kind)

    def irecv(self, x: Bytes, rank: int, kind: int) -> Request:
        """Begins to receive bytes from a rank."""
        return self.carrier.irecv(x, self.placement.world[rank], self._first_tag + kind)

    def wait(self, requests: Sequence[Request]) -> None:
        """Waits for messages of this call."""
        if requests:
            self.carrier.wait(requests, self.deadline)

    def poke(self, requests: Sequence[Request]) -> None:
        """Lets messages move."""
        self.carrier.poke(requests)

    # Inside the host

    @property
    def _left(self) -> float | None:
        return None if self.deadline is None else max(self.deadline - time.monotonic(), 0) + LATER_S

    def gather(self, own: Bytes, sizes: Sequence[int], out: Bytes) -> None:
        """Gives every rank of the host the bytes of all; in place if ``own`` is this rank's part of ``out``."""
        if sum(sizes):
            self.inner.all_gather(own, counts=list(sizes), out=out, timeout=self._left)

    def exchange(self, x: Bytes, table: Sequence[Sequence[int]], out: Bytes) -> None:
        """Moves parts between the ranks of the host: row q of the table has the bytes from rank q to each."""
        if any(map(any, table)):
            self.inner.all_to_all(x, counts=[list(row) for row in table], out=out, timeout=self._left)

    def deal(self, x: Bytes, sizes: Sequence[int], out: Bytes) -> None:
        """Gives rank r of the host part r of every rank's bytes, in the order of ranks."""
        self.exchange(x, [sizes] * len(sizes), out)

    def spread(self, x: Bytes, root: int = 0) -> None:
        """Gives every rank of the host the bytes of one."""
        if len(x) and len(self.placement.mine) > 1:
            self.inner.broadcast(x, root=root, timeout=self._left)

    def barrier(self) -> None:
        """Waits for the ranks of the host."""
        if len(self.placement.mine) > 1:
            self.inner.barrier(timeout=self._left)
