"""What the calls of a communicator use: places, the communicator of this host, a channel to others, a deadline.

Rows of sizes are bytes per rank of this host, equal on all of them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from nvcoll._nvcoll import Communicator as HostCommunicator
from nvcoll.hosts.arrays import even
from nvcoll.hosts.channel import Channel
from nvcoll.hosts.outer import Bytes, Request
from nvcoll.hosts.places import Places

LATER_S = 1.0
"""Calls inside the host have a later deadline, so that the reason of the other hosts comes first. Chosen."""


class Team:
    """The ranks of a communicator, for one call at a time.

    Args:
        places: the ranks by host.
        inner: the communicator of the ranks of this host.
        channel: the messages to other hosts.
    """

    def __init__(self, places: Places, inner: HostCommunicator, channel: Channel) -> None:
        self.places, self.inner, self.channel = places, inner, channel
        self.deadline: float | None = None

    @property
    def others(self) -> list[int]:
        """The other hosts."""
        return [host for host in range(len(self.places.hosts)) if host != self.places.host]

    @property
    def is_on_a_rail(self) -> bool:
        """Whether every host has a rank with this local index."""
        return self.places.local < self.places.rails

    @property
    def is_first(self) -> bool:
        """Whether this rank is the first of its host, which meets those of other hosts."""
        return self.places.local == 0

    def peer(self, host: int) -> int:
        """Returns the rank of this rail on a host."""
        rank = self.places.peer(host)
        assert rank is not None
        return rank

    def shards(self, count: int) -> list[int]:
        """Returns the elements of each rank of this host, of elements that are shared out among the rails."""
        rails = self.places.rails
        return even(count, rails) + [0] * (len(self.places.mine) - rails)

    def own(self, block: Bytes, shards: Sequence[int]) -> Bytes:
        """Returns this rank's shard of bytes that are shared out."""
        local = self.places.local
        return block[sum(shards[:local]) :][: shards[local]]

    def begin(self, timeout: float | None) -> None:
        """Begins a call that may take some seconds."""
        self.deadline = None if timeout is None else time.monotonic() + timeout

    def wait(self, requests: Sequence[Request]) -> None:
        """Waits for messages."""
        self.channel.wait(requests, self.deadline)

    def poke(self, requests: Sequence[Request]) -> None:
        """Lets messages move."""
        self.channel.outer.poke(requests)

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
        if len(x) and len(self.places.mine) > 1:
            self.inner.broadcast(x, root=root, timeout=self._left)

    def barrier(self) -> None:
        """Waits for the ranks of the host."""
        if len(self.places.mine) > 1:
            self.inner.barrier(timeout=self._left)
