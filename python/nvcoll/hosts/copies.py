"""The collectives that copy, across hosts. Sizes are bytes.

::

    exchange     messages between ranks of different hosts, an all_to_all inside each host
    all_gather   inside a host | rails send shards of the host's bytes to all hosts | inside a host
    broadcast    inside the root's host | rails send shards from host to host | inside each host; in chunks
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from nvcoll.hosts.channel import DATA
from nvcoll.hosts.outer import Bytes, Request
from nvcoll.hosts.team import Team

Table = NDArray[np.int64]
"""Bytes from each rank (row) to each rank (column)."""

LEAST_CHUNK, MOST_CHUNK, CHUNKS = 256 << 10, 512 << 10, 16
"""Large arrays move in chunks: a sixteenth of the array, within bounds. Measured: docs/run/hosts.md."""


def cuts(count: int, itemsize: int) -> list[tuple[int, int]]:
    """Returns where chunks of some elements begin and end."""
    nbytes = min(max(count * itemsize // CHUNKS, LEAST_CHUNK), MOST_CHUNK)
    step = max(nbytes // itemsize, 1)
    return [(begin, min(begin + step, count)) for begin in range(0, count, step)]


def offsets(sizes: Sequence[int]) -> list[int]:
    """Returns where parts begin, and where the last one ends."""
    return [0, *accumulate(sizes)]


class Ahead:
    """Receives that are posted before their turn.

    Args:
        team: the ranks.
        post: posts receive number k.
        count: how many there are.
        depth: how many are posted at once.
    """

    def __init__(self, team: Team, post: Callable[[int], Request], count: int, depth: int) -> None:
        self._team, self._post, self._count, self._depth = team, post, count, depth
        self._posted = deque(post(k) for k in range(min(depth, count)))
        self._next = len(self._posted)

    def take(self) -> None:
        """Waits for the next message. Its buffer is free for another when `free` is called."""
        self._team.wait([self._posted.popleft()])

    def free(self) -> None:
        """Posts one more receive."""
        if self._next < self._count:
            self._posted.append(self._post(self._next))
            self._next += 1


def exchange(team: Team, x: Bytes, table: Table, out: Bytes) -> None:
    """Moves part r of every rank's bytes to rank r.

    Args:
        team: the ranks.
        x: this rank's parts, by receiver.
        table: the sizes of all parts.
        out: the received parts, by sender.
    """
    places, channel = team.places, team.channel
    sent, got = offsets(table[places.rank].tolist()), offsets(table[:, places.rank].tolist())
    far = [rank for host in team.others for rank in places.hosts[host]]
    work = [channel.irecv(out[got[r] : got[r + 1]], r, DATA) for r in far if got[r + 1] > got[r]]
    work += [channel.isend(x[sent[r] : sent[r + 1]], r, DATA) for r in far if sent[r + 1] > sent[r]]
    near = table[np.ix_(places.mine, places.mine)]
    mine = np.concatenate([x[sent[r] : sent[r + 1]] for r in places.mine])
    received = np.empty(int(near[:, places.local].sum()), np.uint8)
    team.exchange(mine, near.tolist(), received)
    for r, begin in zip(places.mine, offsets(near[:, places.local].tolist()), strict=False):
        out[got[r] : got[r + 1]] = received[begin : begin + got[r + 1] - got[r]]
    team.wait(work)


def all_gather(team: Team, own: Bytes, sizes: Sequence[int], out: Bytes) -> None:
    """Gives every rank the bytes of all ranks, in the order of ranks.

    Args:
        team: the ranks.
        own: this rank's; it may be its part of ``out``.
        sizes: those of each rank.
        out: the bytes of all.
    """
    places, channel = team.places, team.channel
    by_host = out if places.are_neighbours else np.empty_like(out)
    lengths = [[sizes[rank] for rank in ranks] for ranks in places.hosts]
    blocks = [by_host[a:b] for a, b in pairwise(offsets(list(map(sum, lengths))))]
    block = blocks[places.host]
    shards = [team.shards(len(each)) for each in blocks]
    shard = [team.own(each, s) for each, s in zip(blocks, shards, strict=True)]
    arriving = {h: channel.irecv(shard[h], team.peer(h), DATA) for h in team.others if len(shard[h])}
    has_shard = lengths[places.host] == shards[places.host]
    if not has_shard:
        team.gather(own, lengths[places.host], block)
    mine = own if has_shard else shard[places.host]
    leaving = [channel.isend(mine, team.peer(h), DATA) for h in team.others if len(mine)]
    if has_shard:
        team.gather(own, lengths[places.host], block)
    for host in team.others:
        if host in arriving:
            team.wait([arriving[host]])
        team.gather(shard[host], shards[host], blocks[host])
    if by_host is not out:
        begins = offsets(sizes)
        at = 0
        for rank in (rank for ranks in places.hosts for rank in ranks):
            out[begins[rank] : begins[rank + 1]] = by_host[at : at + sizes[rank]]
            at += sizes[rank]
    team.wait(leaving)


def broadcast(team: Team, x: Bytes, root: int) -> None:
    """Gives every rank the bytes of the root.

    Args:
        team: the ranks.
        x: this rank's bytes. Read on the root, written elsewhere.
        root: the rank.
    """
    places, channel = team.places, team.channel
    first = places.host_of(root)
    order = [first, *(host for host in range(len(places.hosts)) if host != first)]
    place = order.index(places.host)
    before = team.peer(order[place - 1]) if place and team.is_on_a_rail else None
    after = team.peer(order[place + 1]) if place + 1 < len(order) and team.is_on_a_rail else None
    chunks = cuts(len(x), 1)
    shards = [team.shards(end - begin) for begin, end in chunks]
    own = [team.own(x[begin:end], s) for (begin, end), s in zip(chunks, shards, strict=True)]
    arriving = None
    if before is not None:
        arriving = Ahead(team, lambda k: channel.irecv(own[k], before, DATA), len(own), CHUNKS)
    leaving = []
    for k, (begin, end) in enumerate(chunks):
        if not place:
            team.spread(x[begin:end], places.mine.index(root))
        elif arriving:
            arriving.take()
            arriving.free()
        if after is not None:
            leaving.append(channel.isend(own[k], after, DATA))
            team.poke(leaving[-CHUNKS:])
        if place:
            team.gather(own[k], shards[k], x[begin:end])
    team.wait(leaving)
