"""Records of a call meet before its data: inside a host, then between hosts.

A record is 64 bytes: a digest of the call with all its counts, and its beginning in words. A rank of a rail always has
a receive posted for the record of each other host, so a record never waits for its receiver, and no engine ever sees a
message that is longer than its receive. Small data travel with the record.
"""

from __future__ import annotations

import hashlib

import numpy as np

from nvcoll._nvcoll import Mismatch
from nvcoll.hosts.channel import RECORD
from nvcoll.hosts.outer import Bytes, Request
from nvcoll.hosts.team import Team

RECORD_BYTES = 64
DIGEST_BYTES = 8

WITH_RECORD = 32 << 10
"""The most bytes that travel with a record; measured: above, the chain is faster."""


class Meeting:
    """The records of the calls of one communicator.

    Args:
        team: its ranks.
    """

    def __init__(self, team: Team) -> None:
        self._team = team
        ranks = [team.peer(host) for host in team.others] if team.is_on_a_rail else []
        self._slots = {rank: np.empty(RECORD_BYTES + WITH_RECORD, np.uint8) for rank in ranks}
        self._posted = {rank: self._post(rank) for rank in ranks}
        self._sent: list[tuple[list[Request], Bytes]] = []
        self._host = np.empty(RECORD_BYTES * len(team.places.mine), np.uint8)

    def _post(self, rank: int) -> Request:
        return self._team.channel.irecv(self._slots[rank], rank, RECORD)

    def in_host(self, call: str) -> Bytes:
        """Compares a call with those of the ranks of this host, and returns its record.

        Raises:
            Mismatch: another rank of this host made another call.
        """
        digest = hashlib.blake2b(call.encode(), digest_size=DIGEST_BYTES).digest()
        words = call.encode()[: RECORD_BYTES - DIGEST_BYTES].ljust(RECORD_BYTES - DIGEST_BYTES)
        record = np.frombuffer(digest + words, np.uint8)
        places = self._team.places
        self._team.gather(record, [RECORD_BYTES] * len(places.mine), self._host)
        rows = self._host.reshape(-1, RECORD_BYTES)
        unlike = (rows != rows[0]).any(axis=1)
        if unlike.any():
            other = int(unlike.argmax())
            raise _mismatch(places.mine[0], rows[0], places.mine[other], rows[other])
        return record

    def agree(self, record: Bytes) -> None:
        """Compares a call with those of other hosts; no rank of this host goes on before.

        Raises:
            Mismatch: another rank of the rail made another call.
        """
        self.between_hosts(record)
        places = self._team.places
        if len(places.mine) > places.rails:
            self._team.barrier()

    def between_hosts(self, record: Bytes, payload: Bytes | None = None) -> dict[int, Bytes]:
        """Compares a call with those of this rail's ranks on other hosts.

        Args:
            record: that of this rank.
            payload: data that go with it, at most `WITH_RECORD` bytes.

        Returns:
            The data of each other rank of the rail, and what may lie behind them; valid until the next meeting.

        Raises:
            Mismatch: another rank made another call.
        """
        team = self._team
        while len(self._sent) > 1:
            team.wait(self._sent[0][0])
            self._sent.pop(0)
        message = record if payload is None else np.concatenate((record, payload))
        self._sent.append(([team.channel.isend(message, rank, RECORD) for rank in self._slots], message))
        received = {}
        for rank, slot in self._slots.items():
            team.wait([self._posted[rank]])
            received[rank] = slot
            if (slot[:RECORD_BYTES] != record).any():
                raise _mismatch(team.places.rank, record, rank, slot[:RECORD_BYTES])
            if payload is not None:
                self._slots[rank] = np.empty_like(slot)
            self._posted[rank] = self._post(rank)
        return {rank: slot[RECORD_BYTES:] for rank, slot in received.items()}


def _mismatch(rank: int, record: Bytes, other: int, others: Bytes) -> Mismatch:
    calls = [bytes(each[DIGEST_BYTES:]).decode(errors="replace").rstrip() for each in (record, others)]
    told = " with other counts" if calls[0] == calls[1] else ""
    return Mismatch(
        f"rank {rank} called {calls[0]}, but rank {other} called {calls[1]}{told}: every rank must make the same call"
    )
