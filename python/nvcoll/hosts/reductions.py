"""The collectives that reduce, across hosts.

::

    small     contributions meet with the records, and every rank folds all of them
    chain     host h continues the fold of host h-1; results run back; in chunks
    exchange  every contribution goes to the rank that folds it: ranks of a host that are no neighbours, one rank a host
    nested    sums of hosts meet at the chunk's home and are added in the order of hosts: ``two_level``, and ops
              whose result does not depend on the order

All but ``nested`` fold in the order of ranks, as on one host. Ranks of a host share out each chunk: each folds its
shard and sends it on its rail. Partial sums of small floats travel as float32 and are rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from nvcoll._nvcoll import _fold, premul_sum
from nvcoll.hosts.arrays import ROWS, Operand, even
from nvcoll.hosts.carrier import Bytes, Request
from nvcoll.hosts.copies import Ahead, all_gather, cuts, exchange, offsets
from nvcoll.hosts.peers import BACK, FORWARD, Peers
from nvcoll.hosts.records import WITH_RECORD, WITH_RECORD_IN_HOST, Records

FREE_OPS = {"min", "max", "band", "bor", "bxor", "land", "lor"}
"""Ops whose result does not depend on the order."""

ROUNDING_OPS = {"sum", "prod", "avg", "premul_sum"}


@dataclass(frozen=True)
class Reduction:
    """An op on arrays of one dtype.

    Attributes:
        op: its name.
        like: an array of the call.
        size: the number of ranks.
        scalars: of ``premul_sum``, that of each rank.
    """

    op: str
    like: Operand
    size: int
    scalars: Sequence[float] = ()

    @property
    def is_free(self) -> bool:
        """Whether the result does not depend on the order of the fold."""
        return self.op in FREE_OPS or ROWS[self.like.dtype].kind in ("signed integer", "unsigned integer", "bool")

    @property
    def wide(self) -> np.dtype[np.generic] | None:
        """The dtype of partial results, if it is not that of the arrays."""
        name = ROWS[self.like.dtype].accumulator
        return None if name == self.like.dtype or self.op not in ROUNDING_OPS else np.dtype(name)

    @property
    def partial_size(self) -> int:
        """The bytes of an element of a partial result."""
        return self.like.itemsize if self.wide is None else self.wide.itemsize

    def _partial(self, raw: Bytes) -> object:
        return self.like.typed(raw) if self.wide is None else raw.view(self.wide)

    def fold(
        self, parts: Bytes, ranks: Sequence[int], out: Bytes, carry: Bytes | None = None, *, is_last: bool = True
    ) -> None:
        """Folds contributions from left to right.

        Args:
            parts: the parts of some ranks, one after the other.
            ranks: the ranks.
            out: the result: a partial one, unless it is the last.
            carry: the partial result that is continued.
            is_last: whether the result is that of all ranks.
        """
        if not len(out):
            return
        op: Any = premul_sum([self.scalars[rank] for rank in ranks]) if self.op == "premul_sum" else self.op
        _fold(
            self.like.typed(parts),
            self.like.typed(out) if is_last else self._partial(out),
            op,
            carry=None if carry is None else self._partial(carry),
            divide_by=self.size if is_last and self.op == "avg" else None,
        )

    def add_partial(self, sums: Bytes, out: Bytes) -> None:
        """Folds partial results, one after the other, to the result of all ranks."""
        if not len(out):
            return
        op: Any = "sum" if self.op == "premul_sum" else self.op
        _fold(self._partial(sums), self.like.typed(out), op, divide_by=self.size if op == "avg" else None)


def all_reduce(
    peers: Peers, records: Records, record: Bytes, x: Operand, out: Operand, how: Reduction, *, is_nested: bool
) -> None:
    """Reduces the arrays of all ranks, and gives every rank the result.

    Args:
        peers: the ranks.
        records: their records.
        record: that of this call, which the ranks of the host have compared.
        x: this rank's array.
        out: this rank's result; it may be the memory of ``x``.
        how: the op.
        is_nested: whether sums of hosts may be added.
    """
    most = max(map(len, peers.placement.hosts)) * len(x.bytes)
    if most <= WITH_RECORD and not is_nested:
        _small(peers, records, record, x, out, how)
        return
    records.agree(record)
    if is_nested or how.is_free:
        _nested(peers, x, out, how, None)
    elif not peers.placement.are_neighbours or most == len(x.bytes):
        parts = [count * x.itemsize for count in even(x.count, peers.placement.size)]
        own = x.scratch(parts[peers.placement.rank] // x.itemsize)
        _exchanged(peers, x, parts, own, how)
        all_gather(peers, own, parts, out.bytes)
    else:
        _chain(peers, x, out, how, None)


def reduce_scatter(
    peers: Peers, x: Operand, counts: Sequence[int], out: Operand, how: Reduction, *, is_nested: bool
) -> None:
    """Reduces the arrays of all ranks, and gives rank r part r of the result. The ranks have met.

    Args:
        peers: the ranks.
        x: this rank's array.
        counts: the elements of each part.
        out: this rank's part; it may be its part of ``x``.
        how: the op.
        is_nested: whether sums of hosts may be added.
    """
    placement = peers.placement
    if not placement.are_neighbours or max(map(len, placement.hosts)) == 1:
        _exchanged(peers, x, [count * x.itemsize for count in counts], out.bytes, how)
    elif is_nested or how.is_free:
        _nested(peers, x, out, how, counts)
    else:
        _chain(peers, x, out, how, counts)


def scan(peers: Peers, x: Operand, out: Operand, how: Reduction, *, is_exclusive: bool) -> None:
    """Gives rank r the reduction of the arrays of ranks 0 to r, or to r - 1. The ranks have met.

    Every rank gets all arrays: simple, and not fast.
    """
    nbytes, last = len(x.bytes), peers.placement.rank + (not is_exclusive)
    parts = np.empty(nbytes * peers.placement.size, np.uint8)
    all_gather(peers, x.bytes, [nbytes] * peers.placement.size, parts)
    if last:
        how.fold(parts[: last * nbytes], range(last), out.bytes)


def _small(peers: Peers, records: Records, record: Bytes, x: Operand, out: Operand, how: Reduction) -> None:
    placement = peers.placement
    if len(x.bytes) <= WITH_RECORD_IN_HOST:
        mine = records.payloads(len(x.bytes))
    else:
        mine = x.scratch(x.count * len(placement.mine))
        peers.gather(x.bytes, [len(x.bytes)] * len(placement.mine), mine)
    if peers.is_first:
        by_rank = records.between_hosts(record, mine)
        by_host = [
            mine if host == placement.host else by_rank[peers.peer(host)][: len(ranks) * len(x.bytes)]
            for host, ranks in enumerate(placement.hosts)
        ]
        parts = np.concatenate(by_host)
        if not placement.are_neighbours:
            order = np.argsort([rank for ranks in placement.hosts for rank in ranks])
            parts = parts.reshape(placement.size, -1)[order].reshape(-1)
        how.fold(parts, range(placement.size), out.bytes)
    peers.spread(out.bytes)


def _exchanged(peers: Peers, x: Operand, parts: Sequence[int], out: Bytes, how: Reduction) -> None:
    size, own = peers.placement.size, parts[peers.placement.rank]
    received = np.empty(own * size, np.uint8)
    exchange(peers, x.bytes, np.tile(np.array(parts), (size, 1)), received)
    how.fold(received, range(size), out)


class _Chunks:
    """An array in chunks. Each rank of a host folds its shard of a chunk.

    Args:
        peers: the ranks.
        x: the array.
        counts: None: every host needs each chunk. Else the elements of each rank's part: a chunk is of ranks of one
            host, which alone needs it.
        are_crossing: whether the chunks of the hosts take turns.
    """

    def __init__(
        self, peers: Peers, x: Operand, how: Reduction, counts: Sequence[int] | None, *, are_crossing: bool = False
    ) -> None:
        self._peers, self._x, self.how = peers, x, how
        placement = peers.placement
        self._begins = None if counts is None else offsets(counts)
        if self._begins is None:
            self._cuts = cuts(x.count, x.itemsize)
            self.homes = [k % len(placement.hosts) for k in range(len(self._cuts))]
        else:
            of_host = [(self._begins[ranks[0]], self._begins[ranks[-1] + 1]) for ranks in placement.hosts]
            found = [
                (number, host, (begin + a, begin + b))
                for host, (begin, end) in enumerate(of_host)
                for number, (a, b) in enumerate(cuts(end - begin, x.itemsize))
            ]
            found = sorted(found) if are_crossing else found
            self._cuts, self.homes = [cut for _, _, cut in found], [host for _, host, _ in found]
        self._shards = [peers.shards(end - begin) for begin, end in self._cuts]
        self._parts = x.scratch(max((s[placement.local] for s in self._shards), default=0) * len(placement.mine))

    def __len__(self) -> int:
        return len(self._cuts)

    def own(self, k: int) -> int:
        """The elements of this rank's shard of a chunk."""
        return self._shards[k][self._peers.placement.local]

    @property
    def most(self) -> int:
        """The elements of this rank's largest shard."""
        return max(map(self.own, range(len(self))), default=0)

    def parts(self, k: int) -> Bytes:
        """Returns what each rank of this host contributes to this rank's shard; valid until the next chunk."""
        size, placement = self._x.itemsize, self._peers.placement
        parts = self._parts[: self.own(k) * size * len(placement.mine)]
        self._peers.deal(self._x.cut(*self._cuts[k]), [count * size for count in self._shards[k]], parts)
        return parts

    def deliver(self, k: int, shard: Bytes, out: Operand) -> None:
        """Gives the ranks of this host their parts of a chunk; each rank has its shard of it."""
        (begin, end), placement, size = self._cuts[k], self._peers.placement, self._x.itemsize
        if self._begins is None:
            self._peers.gather(shard, [count * size for count in self._shards[k]], out.cut(begin, end))
            return
        edges = [begin + at for at in offsets(self._shards[k])]
        parts = [(self._begins[r], self._begins[r + 1]) for r in placement.mine]
        table = [[max(0, min(b, d) - max(a, c)) * size for c, d in parts] for a, b in pairwise(edges)]
        mine = self._begins[placement.rank]
        at = max(begin, mine) - mine
        length = max(0, min(end, self._begins[placement.rank + 1]) - max(begin, mine))
        self._peers.exchange(shard, table, out.cut(at, at + length))

    @property
    def are_for_all(self) -> bool:
        """Whether every host needs each chunk."""
        return self._begins is None


def _chain(peers: Peers, x: Operand, out: Operand, how: Reduction, counts: Sequence[int] | None) -> None:
    """Host h continues the fold of host h-1, chunk by chunk; the last host sends the result back.

    A result comes back to host h after the chunk has passed the hosts behind it twice, so host h takes it that many
    chunks later, and never waits for one that its own next chunk has to push.
    """
    placement = peers.placement
    host, last = placement.host, len(placement.hosts) - 1
    chunks = _Chunks(peers, x, how, counts)
    lag = 2 * (last - host) + 1 if host < last else 0
    depth = lag + 4
    wide, size, most = how.partial_size, x.itemsize, chunks.most
    before = [np.empty(most * wide, np.uint8) for _ in range(depth)] if host else []
    partial = [np.empty(most * wide, np.uint8) for _ in range(depth)] if host < last else []
    total = [np.empty(most * size, np.uint8) for _ in range(depth)]
    is_active = peers.is_on_a_rail
    previous = peers.peer(host - 1) if host and is_active else None
    following = peers.peer(host + 1) if host < last and is_active else None
    needed = [k for k in range(len(chunks)) if chunks.are_for_all or chunks.homes[k] == host]
    first, end = (needed[0], needed[-1] + 1) if needed else (0, 0)
    source = following if chunks.are_for_all or following is None else peers.peer(last)
    sent: dict[int, list[Request]] = {k: [] for k in range(len(chunks))}

    def result_of(k: int) -> Bytes:
        return total[k % depth][: chunks.own(k) * size]

    def carry_of(k: int) -> Bytes:
        return before[k % depth][: chunks.own(k) * wide]

    arriving = returning = None
    if previous is not None:
        arriving = Ahead(peers, lambda k: peers.irecv(carry_of(k), previous, FORWARD), len(chunks), depth)
    if source is not None:
        returning = Ahead(peers, lambda i: peers.irecv(result_of(first + i), source, BACK), len(needed), lag)

    def forward(k: int) -> None:
        if k >= depth:
            peers.wait(sent.pop(k - depth))
        if arriving:
            arriving.take()
        parts, carry = chunks.parts(k), carry_of(k) if host else None
        if host < last:
            leaving = partial[k % depth][: chunks.own(k) * wide]
            how.fold(parts, placement.mine, leaving, carry, is_last=False)
            if following is not None:
                sent[k].append(peers.isend(leaving, following, FORWARD))
        else:
            how.fold(parts, placement.mine, result_of(k), carry)
            to = previous if chunks.are_for_all else peers.peer(chunks.homes[k]) if is_active else None
            if to is not None and to != placement.rank:
                sent[k].append(peers.isend(result_of(k), to, BACK))
        if arriving:
            arriving.free()

    def back(k: int) -> None:
        if returning:
            returning.take()
            if chunks.are_for_all and previous is not None:
                sent[k].append(peers.isend(result_of(k), previous, BACK))
        chunks.deliver(k, result_of(k), out)
        if returning:
            returning.free()

    for k in range(len(chunks) + lag):
        if k < len(chunks):
            forward(k)
        if first <= k - lag < end:
            back(k - lag)
        peers.poke([request for requests in sent.values() for request in requests])
    for requests in sent.values():
        peers.wait(requests)


LEAST_LAG = 4
"""Chunks of `_nested` in flight, at least. Measured: docs/run/hosts.md."""


def _nested(peers: Peers, x: Operand, out: Operand, how: Reduction, counts: Sequence[int] | None) -> None:
    """The sums of all hosts meet at the home of a chunk, which adds them in the order of hosts.

    Homes take turns. A result leaves a round of turns later, when the home receives again: so both directions of its
    link are busy.
    """
    placement, size = peers.placement, x.itemsize
    chunks = _Chunks(peers, x, how, counts, are_crossing=True)
    hosts, most = len(placement.hosts), chunks.most
    lag = -(-LEAST_LAG // hosts) * hosts
    depth = lag + 2
    sums = [np.empty(most * how.partial_size * hosts, np.uint8) for _ in range(depth)]
    totals = [np.empty(most * size, np.uint8) for _ in range(depth)]
    on_rail = {host: peers.peer(host) for host in peers.others} if peers.is_on_a_rail else {}
    arriving: dict[int, list[Request]] = {}
    sent: dict[int, list[Request]] = {}

    def total(k: int) -> Bytes:
        return totals[k % depth][: chunks.own(k) * size]

    def forward(k: int) -> None:
        if k >= depth:
            peers.wait(sent.pop(k - depth))
        nbytes, home = chunks.own(k) * how.partial_size, chunks.homes[k]
        of_host = [sums[k % depth][host * nbytes : (host + 1) * nbytes] for host in range(hosts)]
        arriving[k], sent[k] = [], []
        if home == placement.host:
            arriving[k] = [peers.irecv(of_host[host], peer, FORWARD) for host, peer in on_rail.items()]
        elif on_rail and chunks.are_for_all:
            arriving[k] = [peers.irecv(total(k), on_rail[home], BACK)]
        how.fold(chunks.parts(k), placement.mine, of_host[placement.host], is_last=False)
        if home in on_rail:
            sent[k].append(peers.isend(of_host[placement.host], on_rail[home], FORWARD))

    def back(k: int) -> None:
        peers.wait(arriving.pop(k))
        if chunks.homes[k] == placement.host:
            how.add_partial(sums[k % depth][: chunks.own(k) * how.partial_size * hosts], total(k))
            if chunks.are_for_all:
                sent[k] += [peers.isend(total(k), peer, BACK) for peer in on_rail.values()]
        if chunks.are_for_all or chunks.homes[k] == placement.host:
            chunks.deliver(k, total(k), out)

    for k in range(len(chunks) + lag):
        if k < len(chunks):
            forward(k)
        if k >= lag:
            back(k - lag)
        peers.poke([request for under_way in (arriving, sent) for each in under_way.values() for request in each])
    for requests in sent.values():
        peers.wait(requests)
