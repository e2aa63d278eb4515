"""What the collectives of a program would cost on machines that you do not have: ``node.report(on=...)``.

A node counts its calls and its sends by kind: collective, bytes, dtype, op, algorithm, root, ranks. A report prices
each kind once on each machine (``nvcoll.cost.price``) and multiplies. It does not know compute between calls, overlap
of calls with each other or with compute, or groups of ranks that share a link: each call is alone on the machine.

A total belongs to the busiest rank: the sum over the calls that this rank takes part in. Groups of ranks that work side
by side are not added up, and no rank waits for ranks that come later.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from typing import TYPE_CHECKING, Final, TypeAlias

from nvcoll._nvcoll import Fabric, InvalidArgument, machines
from nvcoll.cost.buckets import bucket_hints
from nvcoll.cost.comparison import LAUNCH
from nvcoll.cost.counts import CallKind, CountedCalls, Counts
from nvcoll.cost.price import Price, PricedCalls, Pricer
from nvcoll.text.blocks import Block, Blocks, Line, Table, Time, beside, taken, under
from nvcoll.text.formatting import counted, json_text, listed, sized

if TYPE_CHECKING:
    from nvcoll._nvcoll import _Launch as Launch

NOTHING: Final = "no collectives were made"

WAYS: Final = {
    "simulated schedule": "simulated: no prediction; the schedule that ran here, in virtual time, not validated",
    "floor only": "lower bound: there is no prediction, and no schedule is faster",
}
"""Notes on prices that are not predictions."""

SIDE_BY_SIDE: Final = 2
"""The machines in one table of calls. Chosen: with two, the terminal of 80 columns has room for every time."""

USES: Final = "NCCL uses"
"""The heading of the column about how a call goes on a machine."""


@dataclass(frozen=True)
class CallTotal:
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

    @property
    def time(self) -> Time:
        """The time and its interval for tables; no interval if no call has a known one."""
        has_interval = (self.low_us, self.high_us) != (self.time_us, self.time_us)
        low_us, high_us = (self.low_us, self.high_us) if has_interval else (None, None)
        return Time(self.machine, _s(self.time_us), _s(low_us), _s(high_us), self.is_least)


@dataclass(frozen=True, repr=False)
class CallReport(Blocks):
    """What a program's collectives would cost, call by call and machine by machine. ``print`` shows tables.

    Attributes:
        calls: one for each kind of call, by the first of its ranks, then in the order in which they were first made.
        totals: one for each machine, in the order in which they were asked for.
        others: calls of kinds that were counted together, because there were too many; they are in no row.
        launch: how every call is launched, as of ``Fabric.predict``.
        silent: ranks that failed and did not report their counted calls, the ranks of communicators whose first
            rank they are. Those calls are missing.
        steps: the number of steps of training that the program has marked.
        title: the program.

    Example:
        >>> import numpy as np, nvcoll
        >>> node = nvcoll.Node(8)
        >>> _ = node.all_reduce(np.ones((8, 1 << 20), "f4"))
        >>> report = node.report(on="hgx-h100")
        >>> report.totals[0].machine, report.calls[0].times
        ('hgx-h100', 1)
    """

    calls: tuple[PricedCalls, ...]
    totals: tuple[CallTotal, ...]
    others: int = 0
    launch: Launch = LAUNCH
    silent: tuple[int, ...] = ()
    steps: int = 0
    title: str = ""

    def __repr__(self) -> str:
        """The number of calls, and the time on each machine."""
        times = ", ".join(f"{one.machine}: {taken(one.time.seconds)}" for one in self.totals)
        return f"<nvcoll.CallReport of {counted(sum(one.times for one in self.calls), 'call')}, {times}>"

    def to_json(self) -> str:
        """Returns everything as JSON of ``nvcoll.run/1``: ``reports``, one for each machine, ``calls`` and so on."""
        head = {"command": "run", "launch": self.launch}
        row: dict[str, object] = {
            **head,
            "reports": [asdict(one) for one in self.totals],
            "calls": [asdict(one) for one in self.calls],
        }
        row |= {"others": self.others, "silent": self.silent, "steps": self.steps}
        return json_text("nvcoll.run/1", row)

    def rows(self) -> list[dict[str, object]]:
        """Returns a row for each kind of call and machine."""
        rows = []
        for one in self.calls:
            of_call: dict[str, object] = asdict(one) | {"ranks": " ".join(map(str, one.ranks))}
            del of_call["prices"]
            for price in one.prices:
                times = {name: getattr(price, name) for name in ("way", "time_us", "low_us", "high_us")}
                rows.append({"machine": price.machine, **of_call, **times, "uses": _by(price)})
        return rows

    def blocks(self) -> Iterator[Block]:
        """Yields the parts of the text: totals, notes on machines, the calls, notes on the calls."""
        if self.title:
            yield Line("", f"what the collectives of {self.title} would cost")
        if not self.calls and not self.others:
            yield Line("note", _of_silent(self.silent)) if self.silent else Line("", NOTHING)
            return
        yield from self._of_totals()
        for at, total in enumerate(self.totals):
            yield from self._of_machine(at, total)
        for first in range(0, len(self.totals), SIDE_BY_SIDE):
            yield from (None, self._of_calls(slice(first, first + SIDE_BY_SIDE)))
        yield None
        yield from self._legend()

    def _of_totals(self) -> Iterator[Block]:
        if len(self.totals) > 1:
            steps = {"one step": [_microseconds(one.step_us) for one in self.totals]} if self.steps else {}
            yield beside("total", [one.time for one in self.totals], steps)
            return
        (total,) = self.totals
        one = total.time
        interval = "" if one.low_s is None else f" (90 %: {taken(one.low_s, one.high_s)})"
        yield Line("total", f"{'>= ' * one.is_least}{taken(one.seconds)}{interval} on {total.machine}")
        if self.steps:
            yield Line("one step", _microseconds(total.step_us))

    def _of_machine(self, at: int, total: CallTotal) -> Iterator[Line]:
        """Yields what limits the calls of a machine that take most of the time, how accurate that is, and hints."""
        most, name = _most(self.calls, at), total.machine
        if most is not None and (bottleneck := most.prices[at].bottleneck):
            yield Line("bottleneck", f"{name}, {_named(most)}: {bottleneck}")
        if most is not None and total.time_us:
            yield Line("accuracy", f"{name}, {_named(most)}: {total.trust}")
        yield from under("hint", (f"{name}: {words}" for words in total.hints))
        if total.note:
            yield Line("note", f"{name}: {total.note}")
        if why := _why_unpriced(self.calls, at):
            yield Line("note", f"{counted(total.unpriced, 'call')} without an answer, not in the total: {why}")

    def _of_calls(self, some: slice) -> Table:
        """Returns the table of calls on some machines; groups of ranks that read the same are one line."""
        of_call = ["collective", "size", "dtype/op", "run here", "ranks", "calls", *["per step"] * bool(self.steps)]
        heads = [*of_call, *(head for total in self.totals[some] for head in (total.machine, USES))]
        alike = Counter(_cells(one, one.prices[some], self.steps) for one in self.calls)
        ranks = of_call.index("ranks")
        rows = [
            [f"{groups} x {cell}" if at == ranks and groups > 1 else cell for at, cell in enumerate(row)]
            for row, groups in alike.items()
        ]
        return Table(heads, rows, ("collective", "dtype/op", "run here", USES), ("run here", "dtype/op", USES))

    def _legend(self) -> Iterator[Line]:
        yield Line("ranks", "ranks of a call; 2 x 4: two communicators of four ranks make the same calls")
        yield Line("calls", "calls of one rank; the calls of a group() count as one")
        if any(one.collective == "sendrecv" for one in self.calls):
            yield Line("sendrecv", "sends, counted by the sender and priced as if both ranks sent at once")
        yield Line("times", f"of one call, launched {self.launch}")
        yield Line("total", "sum over the calls of the busiest rank; calls overlap neither each other nor compute")
        if self.steps:
            yield Line("one step", f"the average of {counted(self.steps, 'step')} after the first")
        found = {price.way for one in self.calls for price in one.prices}
        yield from under("note", (meaning for way, meaning in WAYS.items() if way in found))
        if self.others:
            yield Line("note", f"{counted(self.others, 'more call')} in no row and no total: too many kinds of calls")
        if self.silent:
            yield Line("note", _of_silent(self.silent))


Machines: TypeAlias = "str | PathLike[str] | Fabric | Sequence[str | PathLike[str] | Fabric]"
"""What ``on=`` takes: see `nvcoll.machines`."""


def machines_of(on: Machines, world_size: int) -> list[Fabric]:
    """Returns the machines of ``on=``, if ``world_size`` ranks have a GPU each.

    Raises:
        InvalidArgument: no machine is called so, or one is too small.
        OSError: a file cannot be read.
    """
    found = machines(on)
    for one in found:
        if one.world_size < world_size:
            has, needs = counted(one.world_size, "GPU"), counted(world_size, "rank")
            raise InvalidArgument(f"`on` is {one.name}, which has {has}, and the node has {needs}: pass a larger one")
    return found


def report_of(
    of_nodes: Sequence[Counts], pricers: Sequence[Pricer], silent: Sequence[int] = (), title: str = ""
) -> CallReport:
    """Reports the calls of some nodes or processes together, launched alike everywhere; rank r of each is GPU r."""
    first: dict[CallKind, CountedCalls] = {}
    times, in_steps = Counter[CallKind](), Counter[CallKind]()
    for one in (calls for counts in of_nodes for calls in counts.calls):
        first.setdefault(one.kind, one)
        times[one.kind] += one.times
        in_steps[one.kind] += one.in_steps
    # What a rank leads is counted by it, in the order of its program; whose call is the first of all is chance.
    calls = sorted(first.values(), key=lambda one: one.kind.ranks[0])
    prices = zip(*(pricer.prices(calls) for pricer in pricers), strict=True)
    rows = tuple(
        PricedCalls(**vars(one.kind), times=times[one.kind], in_steps=in_steps[one.kind], prices=of_call)
        for one, of_call in zip(calls, prices, strict=True)
    )
    steps = max((counts.steps for counts in of_nodes), default=0)
    totals = tuple(_total(pricer, rows, at, steps) for at, pricer in enumerate(pricers))
    others = sum(counts.others for counts in of_nodes)
    return CallReport(rows, totals, others, pricers[0].launch, tuple(silent), steps, title)


def clock_of(counts: Counts, pricer: Pricer) -> float:
    """Returns the microseconds that the busiest rank of a node has spent in its calls.

    Raises:
        InvalidArgument: a call has no price there.
    """
    report = report_of([counts], [pricer])
    if why := _why_unpriced(report.calls, 0):
        raise InvalidArgument(f"the clock has no time for some calls: {why}")
    return report.totals[0].time_us or 0.0


def _total(pricer: Pricer, calls: Sequence[PricedCalls], at: int, steps: int) -> CallTotal:
    """Adds up what the busiest rank spends on a machine."""
    spent: defaultdict[int, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    in_steps: defaultdict[int, float] = defaultdict(float)
    unpriced = 0
    for row in calls:
        price = row.prices[at]
        if price.time_us is None:
            unpriced += row.times
            continue
        interval = [price.time_us if us is None else us for us in (price.time_us, price.low_us, price.high_us)]
        for rank in row.ranks:
            spent[rank] = [sum_ + row.times * one for sum_, one in zip(spent[rank], interval, strict=True)]
            in_steps[rank] += row.in_steps * price.time_us
    is_least = any(row.prices[at].way == "floor only" for row in calls)
    most = _most(calls, at)
    trust = (most and most.prices[at].trust) or "not validated"
    note = _idle_nodes(pricer.fabric, calls)
    if not spent and unpriced:
        return CallTotal(pricer.fabric.name, trust, None, None, None, is_least, unpriced, note)
    us, low, high = max(spent.values(), default=[0.0, 0.0, 0.0])
    step_us = max(in_steps.values(), default=0.0) / steps if steps else None
    hints = tuple(bucket_hints(pricer, calls, at, steps)) if steps else ()
    return CallTotal(pricer.fabric.name, trust, us, low, high, is_least, unpriced, note, step_us, hints)


def _idle_nodes(fabric: Fabric, calls: Sequence[PricedCalls]) -> str | None:
    """Says that nodes of a cluster have no rank; None if all have one."""
    ranks = 1 + max((rank for row in calls for rank in row.ranks), default=0)
    per_node = fabric.world_size // fabric.nodes
    used = -(-ranks // per_node)
    if not calls or used >= fabric.nodes:
        return None
    idle = counted(fabric.nodes - used, "node")
    return f"{counted(ranks, 'rank')} fill {used} of {fabric.nodes} nodes, {idle} idle"


def _most(calls: Sequence[PricedCalls], at: int) -> PricedCalls | None:
    """Returns the calls that take most of the time on a machine."""
    return max(calls, key=lambda row: row.times * (row.prices[at].time_us or 0.0), default=None)


def _why_unpriced(calls: Sequence[PricedCalls], at: int) -> str | None:
    """Says why some call has no price on a machine; None if all have."""
    prices = (row.prices[at] for row in calls)
    return next((price.why for price in prices if price.time_us is None), None)


def _cells(row: PricedCalls, prices: Sequence[Price], steps: int) -> tuple[str, ...]:
    of = " ".join(filter(None, (row.dtype, row.op)))
    grouped = f" in {counted(row.grouped, 'call')}" if row.grouped > 1 else ""
    size = f"{sized(row.nbytes)}{grouped}" if row.dtype else ""
    times = [cell for price in prices for cell in (_microseconds(price.time_us), _by(price))]
    per_step = (f"{row.in_steps / steps:.3g}",) if steps else ()
    return row.collective, size, of, row.algorithm, str(len(row.ranks)), str(row.times), *per_step, *times


def _s(us: float | None) -> float | None:
    return None if us is None else us / 1e6


def _microseconds(us: float | None) -> str:
    return taken(_s(us))


def _by(price: Price) -> str:
    """Says how a call goes, or which answer its price is."""
    match price.way:
        case "predicted":
            return f"{price.algorithm} {price.protocol}"
        case "simulated schedule":
            return f"{price.algorithm}, simulated"
        case "floor only":
            return "lower bound"
        case _:
            return ""


def _named(row: PricedCalls) -> str:
    return f"{row.collective} of {sized(row.nbytes)} on {counted(len(row.ranks), 'rank')}"


def _of_silent(ranks: Sequence[int]) -> str:
    whose, first = ("its calls", "it") if len(ranks) == 1 else ("their calls", "one of them")
    missing = f"calls of communicators with {first} as first rank are missing"
    return f"{listed(ranks)} ended without reporting {whose}: {missing}"
