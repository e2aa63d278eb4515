"""Algorithms in virtual time on one machine, for many sizes: how long each takes, and which is the fastest where.

::

    schedule ──┬─ protocol ──┬─ tiles ──▶ Fabric.simulate ──▶ microseconds
               │  simple     │  1
               │  ll128      │  4       until more of them is slower, or there are too many steps
               └─ ll         └─ 16 ..   the fastest of all is the algorithm's time

Every algorithm is given the protocol and the number of tiles that suit it best at that size, as a tuned library would
give it: else it would be settings that are compared. A protocol is tried where NCCL allows it for a ring on that
machine; where NCCL has no model, all are. A schedule that folds in the switch runs under simple alone: the flags of ll
and ll128 travel with the data, and the switch would fold them too.

What does not run on a machine has a reason in place of times. Source: ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nvcoll._nvcoll import Error, Fabric, InvalidArgument, NcclEstimate, Schedule

PROTOCOLS = {"Simple": "simple", "LL128": "ll128", "LL": "ll"}
"""What NCCL calls the protocols of the simulator."""

FINER = 4
"""By how much the number of tiles grows from one try to the next. Chosen."""

MOST_STEPS = 1 << 17
"""Steps over all tiles beyond which no more tiles are tried. Chosen: some hundredths of a second."""

DTYPE = "uint8"
"""Bytes alone decide the time, and any number of them is a number of these."""


@dataclass(frozen=True)
class Timed:
    """An algorithm at one size, with what suits it best there."""

    microseconds: float
    protocol: str
    tiles: int
    bottleneck: str


@dataclass(frozen=True)
class Range:
    """Successive sizes at which one algorithm is the fastest."""

    algorithm: str
    first: int
    last: int


@dataclass(frozen=True)
class Contest:
    """Every algorithm at every size on one machine. Times are in microseconds, sizes as nccl-tests counts them."""

    fabric: Fabric
    collective: str
    sizes: Sequence[int]
    times: Mapping[str, Sequence[Timed]]
    absent: Mapping[str, str]
    """Those that do not run there, and why."""
    floor: Sequence[float]
    nccl: Sequence[NcclEstimate] | str
    """What NCCL would choose, or why that is not known."""

    def fastest(self, at: int) -> str:
        """Returns who is the fastest at the size with this index; of equals the first."""
        return min(self.times, key=lambda name: self.times[name][at].microseconds)

    def ranges(self) -> list[Range]:
        """Returns who is the fastest where, by size."""
        found: list[Range] = []
        for at, nbytes in enumerate(self.sizes):
            name = self.fastest(at)
            if found and found[-1].algorithm == name:
                found[-1] = Range(name, found[-1].first, nbytes)
            else:
                found.append(Range(name, nbytes, nbytes))
        return found


def protocols_on(fabric: Fabric) -> list[str]:
    """Returns the simulator's names of what NCCL allows for a ring on this machine; all if it has no model."""
    try:
        ways = fabric.nccl("all_reduce", 1).candidates
    except InvalidArgument:
        return [*PROTOCOLS.values()]
    return [PROTOCOLS[way.protocol] for way in ways if way.algorithm == "Ring" and way.why_disabled is None]


def folds_at_switch(schedule: Schedule) -> bool:
    """Says whether a switch has to fold."""
    return any(step.at_switch and len(step.src) > 1 for step in schedule.steps)


def timed(fabric: Fabric, schedule: Schedule, nbytes: int, protocols: Sequence[str]) -> Timed:
    """Runs a schedule in virtual time with the protocol and the tiles that suit it best.

    Raises:
        InvalidArgument: it does not run there.
    """
    tries = [one for protocol in protocols for one in _tries(fabric, schedule, nbytes, protocol)]
    return min(tries, key=lambda one: one.microseconds)


def _tries(fabric: Fabric, schedule: Schedule, nbytes: int, protocol: str) -> Iterator[Timed]:
    """Yields the schedule in more and more tiles, until that makes it slower."""
    chunk = max((end - start for start, end in schedule.chunk_ranges(nbytes)), default=1) or 1
    wanted, last = 1, float("inf")
    while True:
        slice_bytes = -(-chunk // wanted)
        line = fabric.simulate(schedule, nbytes, dtype=DTYPE, protocol=protocol, slice_bytes=slice_bytes)
        yield Timed(line.microseconds, protocol, line.tiles, line.bottleneck)
        wanted *= FINER
        if line.microseconds >= last or wanted > chunk or wanted * schedule.step_count > MOST_STEPS:
            return
        last = line.microseconds


def contest(fabric: Fabric, collective: str, schedules: Mapping[str, Schedule | str], sizes: Sequence[int]) -> Contest:
    """Times every schedule at every size.

    Args:
        fabric: where.
        collective: what all of them do.
        schedules: by name, a schedule or why there is none.
        sizes: bytes of a rank's longer buffer, as nccl-tests counts them.

    Raises:
        InvalidArgument: none of them runs there, or the collective has no floor.
    """
    protocols, times, absent = protocols_on(fabric), {}, {}
    for name, schedule in schedules.items():
        if isinstance(schedule, str):
            absent[name] = schedule
            continue
        able = ["simple"] if folds_at_switch(schedule) else protocols
        try:
            times[name] = [timed(fabric, schedule, nbytes, able) for nbytes in sizes]
        except Error as error:
            absent[name] = str(error)
    if not times:
        raise InvalidArgument(f"none runs on {fabric.name}: {'; '.join(f'{n}: {why}' for n, why in absent.items())}")
    floor = [fabric.floor(collective, nbytes) for nbytes in sizes]
    return Contest(fabric, collective, sizes, times, absent, floor, _nccl(fabric, collective, sizes))


def _nccl(fabric: Fabric, collective: str, sizes: Sequence[int]) -> Sequence[NcclEstimate] | str:
    try:
        return fabric.nccl(collective, sizes)
    except InvalidArgument as error:
        return str(error)
