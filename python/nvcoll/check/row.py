"""A row of a log: what was measured at one size."""

from __future__ import annotations

from dataclasses import dataclass

UNEVEN = 1.15
"""In place and out of place differ at a size where one takes this much longer. Chosen."""


@dataclass(frozen=True)
class Row:
    """One size: the times in microseconds out of place and in place; one may be missing."""

    line: int
    nbytes: int
    out_of_place_us: float | None
    in_place_us: float | None
    case: str = ""
    """What the row is, where size and collective do not show it."""

    @property
    def time_us(self) -> float:
        """The less of the two times."""
        return min(time for time in (self.out_of_place_us, self.in_place_us) if time is not None)

    @property
    def is_uneven(self) -> bool:
        """Says whether in place and out of place differ much."""
        both = [time for time in (self.out_of_place_us, self.in_place_us) if time is not None]
        return max(both) > UNEVEN * min(both)
