"""The counts of a rank's calls: what an engine counted here, or what a rank told as text.

`nvcoll.cost.steps.said_of` writes them as data for JSON, and `heard` makes counts of the data again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from nvcoll._nvcoll import CallCounts, Calls, Schedule

Kind = tuple[object, ...]


@dataclass(frozen=True)
class ToldCalls:
    """Calls of one kind, as a rank has told them.

    The attributes are those of ``Calls``. ``in_steps`` is the number of these calls in the steps of training.
    """

    collective: str
    root: int | None
    algorithm: str
    dtype: str | None
    op: str | None
    nbytes: int
    grouped: int
    ranks: tuple[int, ...]
    times: int
    in_steps: int
    schedule: Schedule | None


@dataclass(frozen=True)
class ToldCounts:
    """The counts of a rank, as it has told them; used as ``CallCounts``."""

    told: Sequence[ToldCalls]
    others: int
    steps: int

    def calls(self) -> Sequence[ToldCalls]:
        """Returns the kinds of calls in the order of their first call."""
        return self.told


AnyCalls = Calls | ToldCalls
AnyCounts = CallCounts | ToldCounts

NAMES = [one.name for one in fields(ToldCalls) if one.name not in ("schedule", "in_steps")]
"""The attributes of ``Calls`` that are told as they are."""


def kind_of(one: AnyCalls) -> Kind:
    """Returns what tells kinds of calls apart."""
    return one.collective, one.root, one.algorithm, one.dtype, one.op, one.nbytes, one.grouped, one.ranks


def heard(said: dict[str, Any]) -> ToldCounts:
    """Returns the counts of which a rank has said `said_of`."""
    schedules = [Schedule.parse(text) for text in said["schedules"]]
    told = []
    for one in said["calls"]:
        schedule = None if one["schedule"] is None else schedules[one["schedule"]]
        told.append(ToldCalls(**one | {"ranks": tuple(one["ranks"]), "schedule": schedule}))
    return ToldCounts(told, said["others"], said["steps"])
