"""One iteration of a model server, as its scheduler told it, and the cache of keys and values that the server made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

KINDS = "decode", "prefill"
"""Kinds of iterations, in the order of reports."""


@dataclass(frozen=True)
class KvCache:
    """The cache of keys and values of a rank, as the server counts it."""

    tokens: int
    """Tokens for which it has room, as the server prints."""
    bytes: int
    """Bytes that the server gives it."""
    context: int
    """Tokens of the longest sequence that the server takes."""
    sequences: int = 0
    """The most sequences of an iteration: rows of the server's tables."""
    element_bytes: int = 2
    """Bytes of an element of a key or a value."""


@dataclass(frozen=True)
class Served:
    """An iteration.

    Attributes:
        server: the server and its version.
        new: for each sequence the tokens that the iteration computes.
        seen: for each sequence the tokens before them, whose keys and values are in the cache.
        cache: the cache.
        ranks: the ranks that share each layer (tensor parallelism), this one included.
        holders: the number of ranks each of which holds a part of the experts; 1: all have all.
        windows: for each layer of attention the keys that a token sees at most; 0: all. Empty: all layers see all.
    """

    server: str
    new: tuple[int, ...]
    seen: tuple[int, ...]
    cache: KvCache
    ranks: tuple[int, ...] = (0,)
    holders: int = 1
    windows: tuple[int, ...] = ()

    @property
    def kind(self) -> Literal["decode", "prefill"]:
        """A decode iteration makes one token of each sequence, all others are prefill: of whole prompts, or mixed."""
        return "decode" if all(new == 1 and seen for new, seen in zip(self.new, self.seen, strict=True)) else "prefill"

    def pairs(self, window: int = 0) -> float:
        """Returns the pairs of a token and a token that it sees: those before it in its window, and itself."""
        each = zip(self.new, self.seen, strict=True)
        return sum(_pairs(seen + new, window) - _pairs(seen, window) for new, seen in each)

    def read(self, window: int = 0) -> int:
        """Returns the tokens in the cache that the new ones see."""
        return sum(min(seen, window - 1) if window else seen for seen in self.seen)

    @property
    def joined(self) -> float:
        """The part of the tokens that are alone in their sequence: for them results of parts of the keys are joined."""
        return sum(new == 1 for new in self.new) / sum(self.new)

    @property
    def context(self) -> int:
        """The mean number of keys that the last token of a sequence sees."""
        return round((sum(self.new) + sum(self.seen)) / len(self.new))

    @property
    def words(self) -> str:
        """What the iteration computes, in words."""
        many = f"{len(self.new)} sequences" if len(self.new) != 1 else "1 sequence"
        if self.kind == "decode":
            return f"a token of {many} at {self.context:,} tokens"
        return f"{sum(self.new):,} tokens of {many}"


def _pairs(tokens: int, window: int) -> float:
    """Returns the pairs of each of some tokens and those that it sees; 0: no window."""
    beyond = max(0, tokens - window) if window else 0
    return (tokens * (tokens + 1) - beyond * (beyond + 1)) / 2
