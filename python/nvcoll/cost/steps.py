"""Training steps: the calls of a rank that belong to one.

A program marks the end of each training step by ``nvcoll.step()``; optimizers of torch do it themselves. The calls
between the first mark and the last belong to training steps. The calls of the set-up, for example the broadcast of the
parameters, and the calls of the first step are not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from nvcoll._nvcoll import CallCounts, Calls

if TYPE_CHECKING:
    from nvcoll.ranks.rank_counts import AnyCalls

Kind = tuple[object, ...]


def kind_of(one: AnyCalls) -> Kind:
    """Returns what tells kinds of calls apart."""
    return one.collective, one.root, one.algorithm, one.dtype, one.op, one.nbytes, one.grouped, one.ranks


class MarkedCounts:
    """The counts of a rank's calls, and the marks of its steps.

    Attributes:
        counts: the counts.
        steps: the number of whole steps: one less than the marks.
    """

    def __init__(self, counts: CallCounts) -> None:
        self.counts = counts
        self.steps = 0
        self._first: Counter[Kind] | None = None
        self._last: Counter[Kind] = Counter()

    def mark(self) -> None:
        """Marks the end of a step."""
        now = Counter({kind_of(one): one.times for one in self.counts.calls()})
        if self._first is None:
            self._first = now
        else:
            self.steps += 1
        self._last = now

    def calls(self) -> Iterator[tuple[Calls, int]]:
        """Yields the kinds of calls in the order of their first call, each with the number of its calls in steps."""
        first = self._first or Counter()
        for one in self.counts.calls():
            kind = kind_of(one)
            yield one, self._last[kind] - first[kind]
