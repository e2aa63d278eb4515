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

from nvcoll.hosts.carrier import Bytes, Request
from nvcoll.hosts.peers import DATA, Peers

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
        peers: the ranks.
        post: posts receive number k.
        count: how many there are.
        depth: how many are posted at once.
    """

    def __init__(self, peers: Peers, post: Callable[[int], Request], count: int, depth: int) -> None:
        self._peers, self._post, self._count, self._depth = peers, post, count, depth
        self._posted = deque(post(k) for k in range(min(depth, count)))
        self._next = len(self._posted)

    def take(self) -> None:
        """Waits for the next message. Its buffer is free for another when `free` is called."""
        self._peers.wait([self._posted.popleft()])

    def free(self) -> None:
        """Posts one more receive."""
        if self._next < self._count:
            self._posted.append(self._post(self._next))
            self._next += 1


def exchange(peers: Peers, x: Bytes, table: Table, out: Bytes) -> None:
    """Moves part r of every rank's bytes to rank r.

    Args:
        peers: the ranks.
        x: this rank's parts, by receiver.
        table: the sizes of all parts.
        out: the received parts, by sender.
    """
    placement = peers.placement
    sent, got = offsets(table[placement.rank].tolist()), offsets(table[:, placement.rank].tolist())
    far = [rank for host in peers.others for rank in placement.hosts[host]]
    work = [peers.irecv(out[got[r] : got[r + 1]], r, DATA) for r in far if got[r + 1] > got[r]]
    work += [peers.isend(x[sent[r] : sent[r + 1]], r, DATA) for r in far if sent[r + 1] > sent[r]]
    near = table[np.ix_(placement.mine, placement.mine)]
    mine = np.concatenate([x[sent[r] : sent[r + 1]] for r in placement.mine])
    received = np.empty(int(near[:, placement.local].sum()), np.uint8)
    peers.exchange(mine, near.tolist(), received)
    for r, begin in zip(placement.mine, offsets(near[:, placement.local].tolist()), strict=False):
        out[got[r] : got[r + 1]] = received[begin : begin + got[r + 1] - got[r]]
    peers.wait(work)


def all_gather(peers: Peers, own: Bytes, sizes: Sequence[int], out: Bytes) -> None:
    """Gives every rank the bytes of all ranks, in the order of ranks.

    Args:
        peers: the ranks.
        own: this rank's; it may be its part of ``out``.
        sizes: the sizes of each rank.
        out: the bytes of all.
    """
    placement = peers.placement
    by_host = out if placement.are_neighbours else np.empty_like(out)
    lengths = [[sizes[rank] for rank in ranks] for ranks in placement.hosts]
    blocks = [by_host[a:b] for a, b in pairwise(offsets(list(map(sum, lengths))))]
    block = blocks[placement.host]
    shards = [peers.shards(len(each)) for each in blocks]
    shard = [peers.own(each, s) for each, s in zip(blocks, shards, strict=True)]
    arriving = {h: peers.irecv(shard[h], peers.peer(h), DATA) for h in peers.others if len(shard[h])}
    has_shard = lengths[placement.host] == shards[placement.host]
    if not has_shard:
        peers.gather(own, lengths[placement.host], block)
    mine = own if has_shard else shard[placement.host]
    leaving = [peers.isend(mine, peers.peer(h), DATA) for h in peers.others if len(mine)]
    if has_shard:
        peers.gather(own, lengths[placement.host], block)
    for host in peers.others:
        if host in arriving:
            peers.wait([arriving[host]])
        peers.gather(shard[host], shards[host], blocks[host])
    if by_host is not out:
        begins = offsets(sizes)
        at = 0
        for rank in (rank for ranks in placement.hosts for rank in ranks):
            out[begins[rank] : begins[rank + 1]] = by_host[at : at + sizes[rank]]
            at += sizes[rank]
    peers.wait(leaving)


def broadcast(peers: Peers, x: Bytes, root: int) -> None:
    """Gives every rank the bytes of the root.

    Args:
        peers: the ranks.
        x: this rank's bytes. Read on the root, written elsewhere.
        root: the rank.
    """
    placement = peers.placement
    first = placement.host_of(root)
    order = [first, *(host for host in range(len(placement.hosts)) if host != first)]
    place = order.index(placement.host)
    before = peers.peer(order[place - 1]) if place and peers.is_on_a_rail else None
    after = peers.peer(order[place + 1]) if place + 1 < len(order) and peers.is_on_a_rail else None
    chunks = cuts(len(x), 1)
    shards = [peers.shards(end - begin) for begin, end in chunks]
    own = [peers.own(x[begin:end], s) for (begin, end), s in zip(chunks, shards, strict=True)]
    arriving = None
    if before is not None:
        arriving = Ahead(peers, lambda k: peers.irecv(own[k], before, DATA), len(own), CHUNKS)
    leaving = []
    for k, (begin, end) in enumerate(chunks):
        if not place:
            peers.spread(x[begin:end], placement.mine.index(root))
        elif arriving:
            arriving.take()
            arriving.free()
        if after is not None:
            leaving.append(peers.isend(own[k], after, DATA))
            peers.poke(leaving[-CHUNKS:])
        if place:
            peers.gather(own[k], shards[k], x[begin:end])
    peers.wait(leaving)
