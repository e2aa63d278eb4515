"""What became of ranks: the outcome of each, and of the run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nvcoll.failures import ending, text_of
from nvcoll.testing.residue import Residue


@dataclass
class Outcome:
    """What became of one rank.

    Attributes:
        rank: the rank.
        value: what its program returned.
        error: what its program raised.
        trace: the traceback of the error.
        status: how its process ended, as ``subprocess`` says it: a negative status is that of a signal. None: nobody
            saw it, because it was a thread or because its launcher had been killed.
        ended_s: when its program returned or raised, as ``time.monotonic`` has it.
        residue: what the run left in its process after ``nvcoll.finalize()``: nothing, if it is clean.
        is_overdue: it had not ended in time, and was killed.
        was_stopped: its process was stopped, and went on when the other ranks had ended.
    """

    rank: int
    value: Any = None
    error: BaseException | None = None
    trace: str = ""
    status: int | None = None
    ended_s: float | None = None
    residue: Residue = field(default_factory=Residue)
    is_overdue: bool = False
    was_stopped: bool = False

    @property
    def returned(self) -> bool:
        """Whether its program returned."""
        return self.error is None and self.ended_s is not None

    def __str__(self) -> str:
        if self.error is not None:
            return f"rank {self.rank} raised {text_of(self.error)}"
        if self.ended_s is not None:
            return f"rank {self.rank} returned {self.value!r}"
        how = ending(self.status) if self.status is not None else "ended"
        return f"rank {self.rank} {'had not ended in time, and ' if self.is_overdue else ''}{how}"


class Run(list[Outcome]):
    """The outcomes of all ranks, by rank.

    Attributes:
        struck_s: when the fault struck, as ``time.monotonic`` has it; None if there was none.
        steps: the number of steps of the call that the struck rank had done.
        left: the processes that ranks had started and left running; they were killed.
    """

    def __init__(self, outcomes: list[Outcome], struck: tuple[int, int] | None, left: list[int]) -> None:
        super().__init__(outcomes)
        self.struck_s = None if struck is None else struck[0] / 1e9
        self.steps = None if struck is None else struck[1]
        self.left = left

    def __str__(self) -> str:
        return "; ".join(map(str, self))
