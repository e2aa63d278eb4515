"""The rows of a report, and its totals."""

from __future__ import annotations

from dataclasses import dataclass

from nvcoll.cost.price import Price


@dataclass(frozen=True)
class ReportRow:
    """Calls of one kind, and what one of them would cost.

    ``nbytes`` are those of the longest buffer of a rank, as nccl-tests counts them. ``grouped`` calls of a group that
    differ in their lengths only are one, of all their bytes: they are launched together. ``algorithm`` is what the
    program asked for; ``root`` is a place in ``ranks``. ``in_steps`` of the calls are in the steps of training.
    """

    collective: str
    nbytes: int
    dtype: str | None
    op: str | None
    algorithm: str
    root: int | None
    ranks: tuple[int, ...]
    grouped: int
    times: int
    in_steps: int
    prices: tuple[Price, ...]


@dataclass(frozen=True)
class Total:
    """What all calls would cost on one machine, in microseconds: the calls of the busiest rank.

    ``trust`` is the accuracy of the calls that take most of the time. ``low_us`` and ``high_us`` are the sums of the
    ends of the 90 % intervals; a call without an interval counts with its time. ``is_least``: some calls have a lower
    bound only. ``unpriced`` calls have no answer and are not in the sum; if no call has an answer, the times are None.
    ``note`` says which nodes of the machine are idle. ``step_us`` is the time of one step of training, if the program
    has marked steps, and ``hints`` say which buckets are too small or too large for the machine.
    """

    machine: str
    trust: str
    time_us: float | None
    low_us: float | None
    high_us: float | None
    is_least: bool
    unpriced: int
    note: str | None = None
    step_us: float | None = None
    hints: tuple[str, ...] = ()
