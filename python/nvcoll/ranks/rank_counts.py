"""The calls that ranks have counted, on their way to ``nvcoll run -n``, which started these processes.

::

    nvcoll run                                  rank
    makes a file without a name    ──▶  inherits it, and a variable says which descriptor it is
                                   ◀──  a line when it joins: the rank
                                   ◀──  a line when it ends: the rank and its calls
    reads the last line of each rank

A rank counts the calls of the communicators whose first rank it is, so no call comes twice. Of a rank whose last line
has no calls, nobody knows what it counted: it was killed. SIGTERM does not count as that, because `nvcoll run` itself
sends it when another rank has failed: unless the program handles it, a rank writes its line and ends by the signal.

A line is one write to the end of the file, so lines of several ranks do not mix. Each begins on a new line, so what a
killed rank has left of one spoils no other.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

from nvcoll._nvcoll import CallCounts, Calls, Schedule
from nvcoll.cost.steps import MarkedCounts

VARIABLE = "NVCOLL_COUNTS"
"""The variable of the file: its descriptor, device and inode, and the rank. A program that a rank has started sees the
variable too. There the descriptor is another file, or none."""


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


class Inbox:
    """The file to which ranks append, on the side that reads it. ``with`` closes it."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("nvcoll-counts")
        fcntl.fcntl(self.descriptor, fcntl.F_SETFL, os.O_APPEND)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    def environment_of(self, rank: int) -> dict[str, str]:
        """Returns the variable by which a rank finds the file; it inherits the descriptor."""
        return {VARIABLE: f"{_identity(self.descriptor)}:{rank}"}

    def read(self) -> tuple[list[ToldCounts], list[int]]:
        """Returns what ranks have told, by rank, and the ranks that have joined and did not tell what they counted."""
        text = os.pread(self.descriptor, os.fstat(self.descriptor).st_size, 0)
        last: dict[int, dict[str, Any]] = {}
        for line in text.splitlines():
            try:
                said = json.loads(line)
            except ValueError:  # the rank was killed while it wrote, and its line before says that it has joined
                continue
            if line:
                last[said["rank"]] = said
        told = [heard(said) for _, said in sorted(last.items()) if "calls" in said]
        return told, sorted(rank for rank, said in last.items() if "calls" not in said)


@dataclass
class _Outbox:
    """The file on the side of a rank."""

    descriptor: int
    rank: int
    counts: list[MarkedCounts] = field(default_factory=list)
    process: int = field(default_factory=os.getpid)

    def write(self, **said: object) -> None:
        os.write(self.descriptor, f"\n{json.dumps({'rank': self.rank} | said)}\n".encode())


def tell_at_end(call_counts: MarkedCounts) -> None:
    """Has this process tell these counts when it ends, if `nvcoll run` has asked for them."""
    if _outbox is None or _outbox.process != os.getpid():
        return
    _outbox.counts.append(call_counts)
    _outbox.write()
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _tell_and_end)


def _tell() -> None:
    """Tells all calls that this process has counted."""
    if _outbox is None or _outbox.process != os.getpid() or not _outbox.counts:
        return
    _outbox.write(**said_of(_outbox.counts))


def said_of(marked: Sequence[MarkedCounts]) -> dict[str, Any]:
    """Returns what a rank says about the calls that it has counted, of which `heard` makes them again."""
    schedules: dict[str, int] = {}
    told = []
    for calls, in_steps in (one for counts in marked for one in counts.calls()):
        values = {name: getattr(calls, name) for name in _NAMES}
        text = calls.schedule and str(calls.schedule)  # a send has none
        told.append(values | {"in_steps": in_steps, "schedule": text and schedules.setdefault(text, len(schedules))})
    others = sum(one.counts.others for one in marked)
    steps = max((one.steps for one in marked), default=0)
    return {"calls": told, "others": others, "steps": steps, "schedules": list(schedules)}


def _tell_and_end(number: int, _frame: object) -> None:
    """Ends this process by a signal, after it has told its calls."""
    _tell()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def heard(said: dict[str, Any]) -> ToldCounts:
    """Returns the counts of which a rank has said `said_of`."""
    schedules = [Schedule.parse(text) for text in said["schedules"]]
    told = []
    for one in said["calls"]:
        schedule = None if one["schedule"] is None else schedules[one["schedule"]]
        told.append(ToldCalls(**one | {"ranks": tuple(one["ranks"]), "schedule": schedule}))
    return ToldCounts(told, said["others"], said["steps"])


def _identity(descriptor: int) -> str:
    status = os.fstat(descriptor)
    return f"{descriptor}:{status.st_dev}:{status.st_ino}"


def _find_outbox() -> _Outbox | None:
    """Returns the file that `nvcoll run` has passed on, if it has; programs that this one starts do not get it."""
    identity, _, rank = os.environ.pop(VARIABLE, "").rpartition(":")
    if not identity:
        return None
    descriptor = int(identity.partition(":")[0])
    try:
        if _identity(descriptor) != identity:
            return None
    except OSError:
        return None
    os.set_inheritable(descriptor, False)
    return _Outbox(descriptor, int(rank))


AnyCalls = Calls | ToldCalls
AnyCounts = CallCounts | ToldCounts

_NAMES = [one.name for one in fields(ToldCalls) if one.name not in ("schedule", "in_steps")]
_outbox = _find_outbox()
atexit.register(_tell)
