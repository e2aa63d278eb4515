"""Records of a call meet before its data: inside a host, then between the first ranks of the hosts.

A record is 64 bytes: a digest of the call with all its counts, and its beginning in words. A first rank always has
receives posted for the records of each other host, so a record never waits for its receiver, and no engine ever sees a
message that is longer than its receive. Small data travel with the record: two calls inside the host and one message
to each other host make a small all_reduce.
"""

from __future__ import annotations

import hashlib
from collections import deque

import numpy as np

from nvcoll._nvcoll import Mismatch
from nvcoll.hosts.carrier import Bytes, Lost, Request
from nvcoll.hosts.peers import RECORD, Peers

RECORD_BYTES = 64
DIGEST_BYTES = 8

WITH_RECORD = 32 << 10
"""The most bytes of a host that travel with a record. Measured: it takes half of the time of a chain. Chosen: less than
the pieces into which engines cut messages."""

IN_HOST = 512
"""The length of a record with data inside a host: always the same, so that calls with other data can be compared."""

WITH_RECORD_IN_HOST = IN_HOST - RECORD_BYTES
"""The most bytes of a rank that travel with its record inside the host."""

AHEAD = 2
"""Receives of records that are posted for each other host, so that a rank that is early sends without a wait."""


class Records:
    """The records of the calls of one communicator.

    Args:
        peers: its ranks.
    """

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        ranks = [peers.peer(host) for host in peers.others] if peers.is_first else []
        self._posted = {rank: deque(self._post(rank) for _ in range(AHEAD)) for rank in ranks}
        self._sent: list[tuple[list[Request], Bytes]] = []
        self._own = np.zeros(IN_HOST, np.uint8)
        self._host = np.empty((len(peers.placement.mine), IN_HOST), np.uint8)

    def _post(self, rank: int) -> tuple[Bytes, Request | Lost]:
        slot = np.empty(RECORD_BYTES + WITH_RECORD, np.uint8)
        try:
            return slot, self._peers.irecv(slot, rank, RECORD)
        except Lost as error:  # the rank has left, perhaps in order: only the next call is one too many
            return slot, error

    def in_host(self, call: str, payload: Bytes | None = None) -> Bytes:
        """Compares a call with the calls of the ranks of this host, and returns its record.

        Args:
            call: the call, in words.
            payload: data that go with it, at most `WITH_RECORD_IN_HOST` bytes: see `payloads`.

        Raises:
            Mismatch: another rank of this host made another call.
        """
        digest = hashlib.blake2b(call.encode(), digest_size=DIGEST_BYTES).digest()
        words = call.encode()[: RECORD_BYTES - DIGEST_BYTES].ljust(RECORD_BYTES - DIGEST_BYTES)
        record = np.frombuffer(digest + words, np.uint8)
        placement = self._peers.placement
        self._own[:RECORD_BYTES] = record
        if payload is not None:
            self._own[RECORD_BYTES : RECORD_BYTES + len(payload)] = payload
        self._peers.gather(self._own, [IN_HOST] * len(placement.mine), self._host.reshape(-1))
        for rank, row in zip(placement.mine, self._host[:, :RECORD_BYTES], strict=True):
            if row.tobytes() != self._host[0, :RECORD_BYTES].tobytes():
                raise _mismatch(placement.mine[0], self._host[0, :RECORD_BYTES], rank, row)
        return record

    def payloads(self, nbytes: int) -> Bytes:
        """Returns the data that went with the records of this host's ranks, one after the other."""
        return self._host[:, RECORD_BYTES : RECORD_BYTES + nbytes].reshape(-1)

    def agree(self, record: Bytes) -> None:
        """Compares a call with the calls of other hosts; no rank of this host goes on before.

        Raises:
            Mismatch: the ranks of another host made another call.
        """
        self.between_hosts(record)
        self._peers.barrier()

    def between_hosts(self, record: Bytes, payload: Bytes | None = None) -> dict[int, Bytes]:
        """Compares a call with the calls of other hosts, on the first rank of each.

        Args:
            record: that of this rank.
            payload: data that go with it, at most `WITH_RECORD` bytes.

        Returns:
            The data of each other first rank, and what may lie behind them.

        Raises:
            Mismatch: the ranks of another host made another call.
        """
        peers = self._peers
        while len(self._sent) > 1:
            peers.wait(self._sent[0][0])
            self._sent.pop(0)
        message = record if payload is None else np.concatenate((record, payload))
        self._sent.append(([peers.isend(message, rank, RECORD) for rank in self._posted], message))
        received = {}
        for rank, posted in self._posted.items():
            slot, request = posted.popleft()
            if isinstance(request, Lost):
                raise request
            peers.wait([request])
            if slot[:RECORD_BYTES].tobytes() != record.tobytes():
                raise _mismatch(peers.placement.rank, record, rank, slot[:RECORD_BYTES])
            received[rank] = slot[RECORD_BYTES:]
            posted.append(self._post(rank))
        return received


def _mismatch(rank: int, record: Bytes, other: int, others: Bytes) -> Mismatch:
    calls = [bytes(each[DIGEST_BYTES:]).decode(errors="replace").rstrip() for each in (record, others)]
    told = " with other counts" if calls[0] == calls[1] else ""
    return Mismatch(
        f"rank {rank} called {calls[0]}, but rank {other} called {calls[1]}{told}: every rank must make the same call",
        ranks=(rank, other),
    )
