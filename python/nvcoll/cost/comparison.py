"""Algorithms in virtual time on one machine, for many sizes: the time of each, and the fastest at each size.

::

    schedule ──┬─ protocol ──┬─ tiles ──▶ Fabric.simulate ──▶ microseconds
               │  simple     │  1
               │  ll128      │  4       until more of them is slower, or there are too many steps
               └─ ll         └─ 16 ..   the fastest of all is the algorithm's time

Each algorithm gets the protocol and the number of tiles that suit it best at that size, as a tuned library would choose
them; otherwise the comparison would be one of settings. All algorithms share the fitted constants of `Fabric.predict`.
The simulated times themselves are compared with no measurement. A protocol is tried if NCCL allows it for a ring on
that machine, or has no model of the machine, and its constants are known. A schedule with steps at a switch runs under
simple only: the flags of ll and ll128 travel with the data, and the switch would reduce them too.

An algorithm that does not run on a machine has a reason in place of times. Source: ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from os import PathLike
from typing import TYPE_CHECKING, Final

from nvcoll._nvcoll import (
    Error,
    Fabric,
    InvalidArgument,
    Prediction,
    Schedule,
    Timeline,
    collective_spelled,
    parse_size,
    schedule,
    verify,
)
from nvcoll._nvcoll import algorithms as registry
from nvcoll._nvcoll import fabric as preset
from nvcoll.authoring.algorithms import Algorithm
from nvcoll.text.blocks import Block, Blocks, Line, Table
from nvcoll.text.formatting import number, sized

if TYPE_CHECKING:
    from nvcoll._nvcoll import _Launch as Launch

PROTOCOLS = {"Simple": "simple", "LL128": "ll128", "LL": "ll"}
"""The simulator's protocols by NCCL's names."""

LAUNCH: Final = "process_per_gpu"
"""The default launch of calls."""

FINER = 4
"""The factor between the numbers of tiles of successive tries. Chosen."""

MOST_STEPS = 1 << 17
"""The number of steps over all tiles beyond which no more tiles are tried. Chosen: a tenth of a second a run."""

MOST_PAIRS = 1 << 14
"""Pairs of ranks that exchange bytes beyond which a schedule is not timed: of 128 ranks every pair. Chosen: sharing
links among this number of transfers takes a second for every size, and their routes a hundred megabytes."""

PROBE = 32
"""Ranks of the schedule by which an algorithm is recognised whose ranks all exchange bytes. Chosen."""

DTYPE = "uint8"
"""The dtype of simulated calls: only bytes decide the time, and any size is a number of bytes."""

SIZES = tuple(1 << power for power in range(10, 31))
"""The sizes of a comparison unless others are given."""

ASKED = 4
"""The most algorithms whose columns every table keeps. Chosen: of more, a narrow table answers which is the fastest."""

NCCL = ("NCCL picks", "NCCL us", "vs fastest")
"""The headings of the columns about NCCL."""


@dataclass(frozen=True)
class SimulatedTime:
    """The simulated time of an algorithm at one size, with the protocol and tiles that suit it best there."""

    time_us: float
    protocol: str
    slice_bytes: int
    tiles: int
    bottleneck: str


@dataclass(frozen=True)
class FastestRange:
    """Successive sizes of a comparison at which one algorithm is the fastest."""

    algorithm: str
    first: int
    last: int


@dataclass(frozen=True)
class ComparisonRow:
    """All algorithms at one size on one machine; times in microseconds.

    Attributes:
        nbytes: the size, as nccl-tests counts it.
        fastest: the name of the fastest algorithm; of equals the first.
        times: by algorithm, its simulated time with protocol, tiles and bottleneck.
        ahead: the time of the second fastest, divided by the time of the fastest; None if there is one algorithm.
        nccl: NCCL's choice with its predicted time; None if there is no prediction.
        floor_us: a lower bound for any schedule.

    Example:
        >>> import nvcoll
        >>> row = nvcoll.compare("hgx-h100", ["ring", "tree"], sizes=["1G"]).rows[0]
        >>> row.fastest, row.floor_us < row.times["ring"].time_us
        ('ring', True)
    """

    nbytes: int
    fastest: str
    times: Mapping[str, SimulatedTime]
    ahead: float | None
    nccl: Prediction | None
    floor_us: float

    @property
    def fastest_us(self) -> float:
        """The time of the fastest algorithm."""
        return self.times[self.fastest].time_us

    @property
    def nccl_us(self) -> float | None:
        """The predicted time of NCCL; None if there is no prediction."""
        return self.nccl and self.nccl.time_us

    def to_dict(self) -> dict[str, object]:
        """Returns everything as plain objects, for JSON."""
        nccl = {f"nccl_{name}": self.nccl and getattr(self.nccl, name) for name in ("algorithm", "protocol")}
        of = {"nbytes": self.nbytes, "fastest": self.fastest, "times": {n: vars(one) for n, one in self.times.items()}}
        return {**of, **nccl, "nccl_us": self.nccl_us, "floor_us": self.floor_us}


@dataclass(frozen=True, repr=False)
class Comparison(Blocks):
    """Algorithms of one collective at several sizes on one machine, in virtual time. ``print`` shows a table.

    Attributes:
        fabric: the machine.
        collective: what all algorithms do.
        rows: one for each size.
        absent: by name, the algorithms that do not run there, and why.
        why_no_nccl: why there is no prediction for NCCL; None if there is one.

    Example:
        >>> import nvcoll
        >>> comparison = nvcoll.compare("hgx-h100", ["ring", "tree"], sizes=["64K", "1G"])
        >>> [row.fastest for row in comparison.rows]
        ['tree', 'ring']
    """

    fabric: Fabric
    collective: str
    rows: Sequence[ComparisonRow]
    absent: Mapping[str, str]
    why_no_nccl: str | None

    @property
    def algorithms(self) -> list[str]:
        """The names of the algorithms that run there."""
        return [*self.rows[0].times]

    def ranges(self) -> list[FastestRange]:
        """Returns the fastest algorithm by size; successive sizes with the same one are one range."""
        found: list[FastestRange] = []
        for row in self.rows:
            if found and found[-1].algorithm == row.fastest:
                found[-1] = FastestRange(row.fastest, found[-1].first, row.nbytes)
            else:
                found.append(FastestRange(row.fastest, row.nbytes, row.nbytes))
        return found

    def __repr__(self) -> str:
        return f"<nvcoll.Comparison of {self.collective} on {self.fabric.name}, {self.summary()}>"

    def summary(self) -> str:
        """Names the fastest algorithm of each range of sizes, as ``ring at 1 KiB to 32 KiB; tree at 1 MiB``."""
        words = []
        for one in self.ranges():
            sizes = sized(one.first) if one.first == one.last else f"{sized(one.first)} to {sized(one.last)}"
            words.append(f"{one.algorithm} at {sizes}")
        return f"of the sizes tried: {'; '.join(words)}"

    def blocks(self) -> Iterator[Block]:
        """Yields the parts of the text: the table, what does not run, how accurate it is, and the fastest."""
        yield Line("", f"{self.fabric.name}   {self.fabric.title}")
        yield Line("", f"{self.collective}, simulated times in us")
        names = [f"{name} " for name in self.algorithms]
        optional = ["x bound", "ahead", NCCL[1], "lower bound", NCCL[0], "time", NCCL[2]]
        if len(names) > ASKED:
            slowest = sorted(self.algorithms, key=lambda name: -sum(row.times[name].time_us for row in self.rows))
            slowest.sort(key=lambda name: any(row.fastest == name for row in self.rows))
            optional = [*(f"{name} " for name in slowest), "x bound", "ahead", NCCL[1]]
        heads = ("size", "fastest", "time", "ahead", *names, *NCCL, "lower bound", "x bound")
        yield Table(heads, [*self._cells()], ("fastest", NCCL[0]), optional)
        for name, why in self.absent.items():
            yield Line("not here", f"{name}: {why}")
        if self.why_no_nccl is not None:
            yield Line("NCCL", self.why_no_nccl)
        if self.fabric.nodes > 1 or is_mesh(self.fabric):
            words = "NCCL lays several rings here and uses every link and card; a schedule of one ring does not"
            yield Line("note", words)
        yield Line("accuracy", f"of NCCL's times: {self.trust}; algorithms are simulated, not validated")
        yield Line("fastest", self.summary())

    @property
    def trust(self) -> str:
        """The accuracy of the predictions for NCCL, whose constants the simulation uses."""
        found = [row.nccl for row in self.rows if row.nccl is not None]
        return accuracy(found) if found else "not validated"

    def to_dict(self) -> dict[str, object]:
        """Returns everything as plain objects, for JSON."""
        of = {"machine": self.fabric.name, "trust": self.trust, "world_size": self.fabric.world_size}
        ranges = [asdict(one) for one in self.ranges()]
        of_rows = [one.to_dict() for one in self.rows]
        return of | {"rows": of_rows, "ranges": ranges, "absent": self.absent, "why_no_nccl": self.why_no_nccl}

    def _cells(self) -> Iterator[Sequence[str]]:
        for row in self.rows:
            times = [f"{number(t.time_us)}{'*' if name == row.fastest else ' '}" for name, t in row.times.items()]
            ahead = "-" if row.ahead is None else f"{row.ahead:.2f}x"
            nccl: tuple[str, ...] = ("-", "-", "-")
            if row.nccl is not None and row.nccl_us is not None:
                choice = f"{row.nccl.algorithm}/{row.nccl.protocol}"
                nccl = (choice, number(row.nccl_us), f"{row.nccl_us / row.fastest_us:.2f}x")
            over = f"{row.fastest_us / row.floor_us:.2f}" if row.floor_us else "-"
            fastest = (f"{row.fastest} {row.times[row.fastest].protocol}", number(row.fastest_us), ahead)
            yield sized(row.nbytes), *fastest, *times, *nccl, number(row.floor_us), over


def accuracy(found: Sequence[Prediction]) -> str:
    """Returns the accuracy of predictions of rising sizes: once if it is the same for all, else from which size on."""
    later = (one for before, one in pairwise(found) if before.trust != one.trust)
    return "; ".join([found[0].trust, *(f"from {sized(one.nbytes)} {one.trust}" for one in later)])


def is_mesh(fabric: Fabric) -> bool:
    """Says whether a GPU is joined to several others directly."""
    gpus = {name for name, kind, *_ in fabric.devices if kind == "gpu"}
    pairs = {(source, target) for source, target, *_ in fabric.links if source in gpus and target in gpus}
    return max(Counter(source for source, _ in pairs).values(), default=0) > 1


def protocols_on(fabric: Fabric) -> list[str]:
    """Returns the simulator's protocols that NCCL allows for a ring on this machine; all if it has no model of it."""
    try:
        ways = fabric.nccl("all_reduce", 1).candidates
    except InvalidArgument:
        return [*PROTOCOLS.values()]
    return [PROTOCOLS[way.protocol] for way in ways if way.algorithm == "Ring" and way.why_disabled is None]


def too_many(pairs: int) -> str | None:
    """Says why a schedule with this number of pairs that exchange bytes is not timed; None if it can be."""
    if pairs <= MOST_PAIRS:
        return None
    return f"{pairs:,} pairs of ranks exchange bytes, at most {MOST_PAIRS:,} are simulated: too slow at this size"


def too_many_of(collective: str, algorithm: str, ranks: int) -> str | None:
    """Says the same of an algorithm before its schedule is built: all of its ranks exchange bytes if all of few do."""
    if ranks <= PROBE or schedule(collective, algorithm, world_size=PROBE).pairs < PROBE * (PROBE - 1):
        return None
    return too_many(ranks * (ranks - 1))


def timed(
    fabric: Fabric, run: Schedule, nbytes: int, protocols: Sequence[str], launch: Launch = LAUNCH
) -> SimulatedTime:
    """Runs a schedule in virtual time with the protocol and the tiles that suit it best.

    Raises:
        InvalidArgument: it does not run there.
    """
    return _best(fabric, run, [nbytes], protocols, launch)[0]


def _best(
    fabric: Fabric, run: Schedule, sizes: Sequence[int], protocols: Sequence[str], launch: Launch
) -> list[SimulatedTime]:
    """Returns the best run for each size. All sizes are run at once, so that routes are found once for them.

    Protocols whose constants are not known are left out.
    """
    tries: dict[int, list[SimulatedTime]] = {nbytes: [] for nbytes in sizes}
    refused: list[InvalidArgument] = []
    for protocol in ["simple"] if run.needs_switch else protocols:
        try:
            _try(fabric, run, tries, protocol, launch)
        except InvalidArgument as error:
            refused.append(error)
    if refused and not all(tries.values()):
        raise refused[0]
    return [min(tries[nbytes], key=lambda one: one.time_us) for nbytes in sizes]


def _longest_chunk(run: Schedule, nbytes: int) -> int:
    return max((end - start for start, end in run.chunk_ranges(nbytes)), default=1) or 1


def _try(
    fabric: Fabric, run: Schedule, tries: Mapping[int, list[SimulatedTime]], protocol: str, launch: Launch
) -> None:
    """Adds runs of the schedule in more and more tiles, for each size until that makes it slower."""
    chunks = {nbytes: _longest_chunk(run, nbytes) for nbytes in tries}
    last = dict.fromkeys(tries, float("inf"))
    wanted, steps = 1, run.step_count
    while last:
        slices = [-(-chunks[nbytes] // wanted) for nbytes in last]
        lines = _run(fabric, run, [*last], protocol, slices, launch)
        wanted *= FINER
        faster = {}
        for nbytes, slice_bytes, line in zip(last, slices, lines, strict=True):
            tries[nbytes].append(SimulatedTime(line.time_us, protocol, slice_bytes, line.tiles, line.bottleneck))
            if line.time_us < last[nbytes] and wanted <= chunks[nbytes] and wanted * steps <= MOST_STEPS:
                faster[nbytes] = line.time_us
        last = faster


def _run(
    fabric: Fabric,
    run: Schedule,
    sizes: Sequence[int],
    protocol: str,
    slices: Sequence[int],
    launch: Launch,
    spans: bool = False,
) -> list[Timeline]:
    return fabric.simulate(run, sizes, dtype=DTYPE, protocol=protocol, slice_bytes=slices, launch=launch, spans=spans)


def compare_schedules(
    fabric: Fabric,
    collective: str,
    schedules: Mapping[str, Schedule | str],
    sizes: Sequence[int],
    launch: Launch = LAUNCH,
    tell: Callable[[str], None] = lambda _: None,
    version: str | None = None,
    settings: Mapping[str, str | int] | None = None,
) -> Comparison:
    """Times every schedule at every size.

    Args:
        fabric: the machine.
        collective: what all schedules do.
        schedules: by name, a schedule, or why there is none.
        sizes: bytes of a rank's longer buffer, as nccl-tests counts them.
        launch: how calls are launched, as in `Fabric.predict`.
        tell: gets the name of each schedule before it is timed.
        version, settings: NCCL's, as in `Fabric.predict`.

    Raises:
        InvalidArgument: none of them runs there, or the collective has no lower bound.
    """
    protocols = protocols_on(fabric)
    times: dict[str, list[SimulatedTime]] = {}
    absent: dict[str, str] = {}
    for name, run in schedules.items():
        if isinstance(run, str):
            absent[name] = run
            continue
        if (why := too_many(run.pairs)) is not None:
            absent[name] = why
            continue
        tell(name)
        try:
            times[name] = _best(fabric, run, sizes, protocols, launch)
        except Error as error:
            absent[name] = str(error)
    if not times:
        raise InvalidArgument(f"none runs on {fabric.name}: {'; '.join(f'{n}: {why}' for n, why in absent.items())}")
    nccl: Sequence[Prediction | None] = [None] * len(sizes)
    why_no_nccl = None
    try:
        nccl = fabric.predict(collective, sizes, launch=launch, version=version, settings=settings)
    except InvalidArgument as error:
        why_no_nccl = str(error)
    floors = fabric.floor(collective, sizes)
    rows = [
        _row(nbytes, {name: of_all[at] for name, of_all in times.items()}, nccl[at], floors[at])
        for at, nbytes in enumerate(sizes)
    ]
    return Comparison(fabric, collective, rows, absent, why_no_nccl)


def _row(nbytes: int, times: Mapping[str, SimulatedTime], nccl: Prediction | None, floor_us: float) -> ComparisonRow:
    fastest, *others = sorted(times, key=lambda name: times[name].time_us)
    least = times[fastest].time_us
    ahead = times[others[0]].time_us / least if others and least else None
    return ComparisonRow(nbytes, fastest, times, ahead, nccl, floor_us)


def compare(
    on: str | PathLike[str] | Fabric,
    algorithms: Iterable[str | Algorithm | Schedule] | None = None,
    *,
    sizes: int | str | Iterable[int | str] = SIZES,
    collective: str | None = None,
    launch: Launch = LAUNCH,
    version: str | None = None,
    settings: Mapping[str, str | int] | None = None,
) -> Comparison:
    """Compares algorithms on a machine in virtual time, as ``nvcoll compare`` does.

    Args:
        on: one machine: a name, a file, or a :class:`Fabric`, as in :func:`nvcoll.machines`.
        algorithms: names, decorated functions, or schedules; default: all that are known for the collective. Functions
            and schedules are proved first.
        sizes: bytes of a rank's longer buffer, as nccl-tests counts them, or text such as ``"1M"``; default: 1 KiB to
            1 GiB, each twice the last.
        collective: what the algorithms do; default: as the first function or schedule, else ``all_reduce``.
        launch: how calls are launched, as in ``Fabric.predict``.
        version, settings: NCCL's, as in ``Fabric.predict``, for what NCCL picks.

    Returns:
        A row for each size, with the simulated time of each algorithm, the fastest, NCCL's choice and the lower bound.

    Raises:
        InvalidArgument: no machine, algorithm or collective has this name, or no algorithm runs there.
        Refuted: an algorithm of yours is not proved.

    Example:
        >>> import nvcoll
        >>> found = nvcoll.compare("hgx-a100", ["ring", "one_shot"], sizes=[1 << 10, 1 << 30])
        >>> [row.fastest for row in found.rows]
        ['one_shot', 'ring']
    """
    if isinstance(algorithms, str):
        raise InvalidArgument(f"`algorithms` is '{algorithms}': pass a list, as ['{algorithms}']")
    fabric = preset(on)
    given = None if algorithms is None else [*algorithms]
    named = collective and (collective_spelled(collective) or collective)
    wanted = named or next((one.collective for one in given or [] if not isinstance(one, str)), "all_reduce")
    known = [row.name for row in registry() if row.collective == wanted]
    schedules: dict[str, Schedule | str] = {}
    for one in known if given is None else given:
        if isinstance(one, str):
            schedules[one] = schedule(wanted, one, world_size=fabric.world_size)
            continue
        built = one if isinstance(one, Schedule) else one.schedule(fabric.world_size)
        if built.collective != wanted:
            raise InvalidArgument(f"{built.algorithm} is an algorithm of {built.collective}: pass one of {wanted}")
        verify(built)
        key = built.algorithm if built.algorithm not in schedules else f"{built.algorithm} ({len(schedules)})"
        schedules[key] = built
    given_sizes = [sizes] if isinstance(sizes, (int, str)) else sizes
    nbytes = sorted({parse_size(size) if isinstance(size, str) else size for size in given_sizes})
    if not nbytes:
        raise InvalidArgument("`sizes` is empty: pass bytes, as [1 << 20]")
    return compare_schedules(fabric, wanted, schedules, nbytes, launch, version=version, settings=settings)
