"""Messages on the host between ranks that run at the same time: a folder in which each message is a file.

A folder needs no server, no order of starting and no port, and is removed with the folder of the dry run. No rank reads
half of a message (`wire.whole`). Its name has the kind, both ranks and a counter. A rank that ends leaves a file that
says so, and ranks that wait for it fail at once.
"""

from __future__ import annotations

import hashlib
import pickle
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from nvcoll.dryrun.wire.whole import write_whole
from nvcoll.errors import DryRunError

PATIENCE_S = 600.0
"""Seconds for which a rank waits for a message of another. Chosen: compiling takes minutes."""


class Waits(DryRunError):
    """A message of another rank does not come: that rank knows the cause."""


class Mail:
    """The mail of one rank.

    Args:
        folder: the folder that all ranks of the dry run share.
        rank: the global rank of this process.
        ranks: the global ranks that run.
    """

    def __init__(self, folder: str, rank: int, ranks: Sequence[int], patience_s: float = PATIENCE_S) -> None:
        self.folder, self.rank, self.ranks, self.patience_s = Path(folder), rank, frozenset(ranks), patience_s
        self._sent: Counter[tuple[int, int, str]] = Counter()

    def send(self, to: int, what: str, message: object) -> None:
        """Sends a message to a rank that runs."""
        write_whole(self._next(self.rank, to, what), pickle.dumps(message))

    def receive(self, source: int, what: str) -> object:
        """Waits for the next message of a rank that runs.

        Raises:
            Waits: the rank ended, or sent nothing in time.
        """
        path, ended = self._next(source, self.rank, what), self.folder / f"ended-{source}"
        until = time.monotonic() + self.patience_s
        while True:
            has_ended = ended.exists()
            if path.exists():
                found: object = pickle.loads(path.read_bytes())
                return found
            if has_ended or time.monotonic() > until:
                why = "ended" if has_ended else f"did not within {self.patience_s:g} s"
                raise Waits(f"rank {self.rank} waits for rank {source} to say `{what}`, which {why}")
            time.sleep(0.005)

    def exchange(self, members: Sequence[int], what: str, mine: object) -> dict[int, object]:
        """Sends a message to all members that run, and returns theirs by rank."""
        others = [rank for rank in members if rank in self.ranks and rank != self.rank]
        for rank in others:
            self.send(rank, what, mine)
        return {rank: self.receive(rank, what) for rank in others} | {self.rank: mine}

    def publish(self, key: str, value: bytes) -> None:
        """Sets a key of the store for all ranks."""
        write_whole(self._key(key), value)

    def published(self, key: str) -> bytes | None:
        """Returns a key of the store that a rank has set."""
        path = self._key(key)
        return path.read_bytes() if path.exists() else None

    def end(self) -> None:
        """Says that this rank sends nothing more."""
        write_whole(self.folder / f"ended-{self.rank}", b"")

    def _key(self, key: str) -> Path:
        return self.folder / f"key-{hashlib.sha256(key.encode()).hexdigest()[:32]}"

    def _next(self, source: int, to: int, what: str) -> Path:
        self._sent[source, to, what] += 1
        return self.folder / f"{what}-{source}-{to}-{self._sent[source, to, what]}"
