"""Algorithms in virtual time on one machine, for many sizes: how long each takes, and which is the fastest where.

::

    schedule ──┬─ protocol ──┬─ tiles ──▶ Fabric.simulate ──▶ microseconds
               │  simple     │  1
               │  ll128      │  4       until more of them is slower, or there are too many steps
               └─ ll         └─ 16 ..   the fastest of all is the algorithm's time

Every algorithm is given the protocol and the number of tiles that suit it best at that size, as a tuned library would
give it: else it would be settings that are compared. Costs are the fitted constants of `Fabric.predict`, the same for
all. A protocol is tried where NCCL allows it for a ring on that machine, or has no model of it, and constants are
known. A schedule with steps at a switch runs under simple alone: the flags of ll and ll128 travel with the data, and
the switch would fold them too.

What does not run on a machine has a reason in place of times. Source: ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nvcoll._nvcoll import Error, Fabric, InvalidArgument, Prediction, Schedule, Timeline, schedule

PROTOCOLS = {"Simple": "simple", "LL128": "ll128", "LL": "ll"}
"""What NCCL calls the protocols of the simulator."""

LAUNCH = "process_per_gpu"
"""How calls are launched unless it is said."""

FINER = 4
"""By how much the number of tiles grows from one try to the next. Chosen."""

MOST_STEPS = 1 << 17
"""Steps over all tiles beyond which no more tiles are tried. Chosen: some hundredths of a second."""

DTYPE = "uint8"
"""Bytes alone decide the time, and any number of them is a number of these."""


@dataclass(frozen=True)
class SimulatedTime:
    """An algorithm at one size, with what suits it best there."""

    microseconds: float
    protocol: str
    slice_bytes: int
    tiles: int
    bottleneck: str


@dataclass(frozen=True)
class FastestRange:
    """Successive sizes at which one algorithm is the fastest."""

    algorithm: str
    first: int
    last: int


@dataclass(frozen=True)
class Comparison:
    """Every algorithm at every size on one machine. Times are in microseconds, sizes as nccl-tests counts them."""

    fabric: Fabric
    collective: str
    sizes: Sequence[int]
    times: Mapping[str, Sequence[SimulatedTime]]
    absent: Mapping[str, str]
    """Those that do not run there, and why."""
    floor: Sequence[float]
    nccl: Sequence[Prediction] | str
    """What NCCL would pick and what it would take, or why that is not known."""

    def fastest(self, at: int) -> str:
        """Returns who is the fastest at the size with this index; of equals the first."""
        return min(self.times, key=lambda name: self.times[name][at].microseconds)

    def ranges(self) -> list[FastestRange]:
        """Returns who is the fastest where, by size."""
        found: list[FastestRange] = []
        for at, nbytes in enumerate(self.sizes):
            name = self.fastest(at)
            if found and found[-1].algorithm == name:
                found[-1] = FastestRange(name, found[-1].first, nbytes)
            else:
                found.append(FastestRange(name, nbytes, nbytes))
        return found


def protocols_on(fabric: Fabric) -> list[str]:
    """Returns the simulator's names of what NCCL allows for a ring on this machine, and of which constants are known.

    Raises:
        InvalidArgument: there is none, as on one GPU.
    """
    try:
        ways = fabric.nccl("all_reduce", 1).candidates
        allowed = [PROTOCOLS[way.protocol] for way in ways if way.algorithm == "Ring" and way.why_disabled is None]
    except InvalidArgument:
        allowed = [*PROTOCOLS.values()]
    known, error = [], None
    for protocol in allowed:
        try:
            _run(fabric, schedule("all_reduce", "ring", world_size=1), 1, protocol, 1, LAUNCH)
            known.append(protocol)
        except InvalidArgument as refused:
            error = refused
    if not known and error is not None:
        raise error
    return known


def is_at_switch(run: Schedule) -> bool:
    """Says whether a switch has to fold or to multicast."""
    return any(step.at_switch for step in run.steps)


def timed(fabric: Fabric, run: Schedule, nbytes: int, protocols: Sequence[str], launch: str = LAUNCH) -> SimulatedTime:
    """Runs a schedule in virtual time with the protocol and the tiles that suit it best.

    Raises:
        InvalidArgument: it does not run there.
    """
    return _best(fabric, run, nbytes, _able(run, protocols), launch)


def _able(run: Schedule, protocols: Sequence[str]) -> Sequence[str]:
    """Returns those under which a schedule runs: it looks at every step of it."""
    return ["simple"] if is_at_switch(run) else protocols


def _best(fabric: Fabric, run: Schedule, nbytes: int, able: Sequence[str], launch: str) -> SimulatedTime:
    tries = [one for protocol in able for one in _tries(fabric, run, nbytes, protocol, launch)]
    return min(tries, key=lambda one: one.microseconds)


def timeline(fabric: Fabric, run: Schedule, nbytes: int, protocols: Sequence[str], launch: str = LAUNCH) -> Timeline:
    """Returns the timeline of what `timed` finds, with every step in every tile."""
    best = timed(fabric, run, nbytes, protocols, launch)
    return _run(fabric, run, nbytes, best.protocol, best.slice_bytes, launch, spans=True)


def _tries(fabric: Fabric, run: Schedule, nbytes: int, protocol: str, launch: str) -> Iterator[SimulatedTime]:
    """Yields the schedule in more and more tiles, until that makes it slower."""
    chunk = max((end - start for start, end in run.chunk_ranges(nbytes)), default=1) or 1
    wanted, last = 1, float("inf")
    while True:
        slice_bytes = -(-chunk // wanted)
        line = _run(fabric, run, nbytes, protocol, slice_bytes, launch)
        yield SimulatedTime(line.microseconds, protocol, slice_bytes, line.tiles, line.bottleneck)
        wanted *= FINER
        if line.microseconds >= last or wanted > chunk or wanted * run.step_count > MOST_STEPS:
            return
        last = line.microseconds


def _run(
    fabric: Fabric, run: Schedule, nbytes: int, protocol: str, slice_bytes: int, launch: str, spans: bool = False
) -> Timeline:
    return fabric.simulate(
        run, nbytes, dtype=DTYPE, protocol=protocol, slice_bytes=slice_bytes, launch=launch, spans=spans
    )


def compare_schedules(
    fabric: Fabric,
    collective: str,
    schedules: Mapping[str, Schedule | str],
    sizes: Sequence[int],
    launch: str = LAUNCH,
) -> Comparison:
    """Times every schedule at every size.

    Args:
        fabric: where.
        collective: what all of them do.
        schedules: by name, a schedule or why there is none.
        sizes: bytes of a rank's longer buffer, as nccl-tests counts them.
        launch: how calls are launched, as of `Fabric.predict`.

    Raises:
        InvalidArgument: none of them runs there, or the collective has no floor.
    """
    protocols = protocols_on(fabric)
    times: dict[str, list[SimulatedTime]] = {}
    absent: dict[str, str] = {}
    for name, run in schedules.items():
        if isinstance(run, str):
            absent[name] = run
            continue
        try:
            able = _able(run, protocols)
            times[name] = [_best(fabric, run, nbytes, able, launch) for nbytes in sizes]
        except Error as error:
            absent[name] = str(error)
    if not times:
        raise InvalidArgument(f"none runs on {fabric.name}: {'; '.join(f'{n}: {why}' for n, why in absent.items())}")
    nccl = _nccl(fabric, collective, sizes, launch)
    return Comparison(fabric, collective, sizes, times, absent, fabric.floor(collective, sizes), nccl)


def _nccl(fabric: Fabric, collective: str, sizes: Sequence[int], launch: str) -> Sequence[Prediction] | str:
    try:
        return fabric.predict(collective, sizes, launch=launch)
    except InvalidArgument as error:
        return str(error)
