"""The outcome of each rank, and of the run."""

from __future__ import annotations

from dataclasses import dataclass, field

from nvcoll.ranks.failures import ending, text_of
from nvcoll.testing.residue import Residue


@dataclass
class Outcome:
    """The outcome of one rank.

    Attributes:
        rank: the rank.
        value: the result of its program.
        error: the exception that its program raised.
        trace: the traceback of the error.
        status: the exit status of its process, as in ``subprocess``: a negative status is the number of a signal.
        ended_s: the time when its program returned or raised, by ``time.monotonic``.
        residue: the resources that the run left open in its process after ``nvcoll.finalize()``. A clean run leaves
            none.
        is_overdue: whether the rank had not ended in time. nvcoll killed it then.
        was_stopped: whether its process was stopped. It continued when the other ranks had ended.
    """

    rank: int
    value: object = None
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
        struck_s: the time when the fault struck, by ``time.monotonic``. None: no fault struck.
        steps: the number of steps of the call that the rank had done when the fault struck. None: no fault struck.
        left: the processes that ranks started and left running. nvcoll killed them.
    """

    def __init__(self, outcomes: list[Outcome], struck: tuple[int, int] | None, left: list[int]) -> None:
        super().__init__(outcomes)
        self.struck_s = None if struck is None else struck[0] / 1e9
        self.steps = None if struck is None else struck[1]
        self.left = left

    def __str__(self) -> str:
        return "; ".join(map(str, self))
