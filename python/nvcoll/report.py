"""What the collectives of a program would cost on machines that nobody has to own: ``node.report(on=...)``.

A node counts its calls by kind: collective, bytes, dtype, op, algorithm, root, ranks. A report prices each kind once on
each machine (``nvcoll.price``) and multiplies. What it does not know: computing between the calls, calls that overlap
each other or computing, and groups of ranks that share a link at once; every call is alone on the machine.

A total is that of the busiest rank: the sum over the calls that it takes part in. Groups of ranks that work side by
side are not added up, and nobody waits for ranks that come later.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace

from nvcoll._nvcoll import Calls, Fabric, InvalidArgument, Tallies
from nvcoll._nvcoll import fabric as preset
from nvcoll.comparison import LAUNCH
from nvcoll.formatting import aligned, counted, escaped, sized
from nvcoll.price import Price, Pricer

_watchers: list[list[Tallies]] = []


@dataclass(frozen=True)
class ReportRow:
    """Calls of one kind, and what one of them would cost.

    ``nbytes`` are those of the longest buffer of a rank, as nccl-tests counts them. ``grouped`` calls of a group that
    differ in their lengths only are one, of all their bytes: they are launched together. ``algorithm`` is what the
    program asked for; ``root`` is a place in ``ranks``.
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
    prices: tuple[Price, ...]


@dataclass(frozen=True)
class Total:
    """What all calls would cost on one machine, in microseconds: the calls of the busiest rank.

    ``trust`` is that of the calls that take most of it. ``low`` and ``high`` are the sums of the 90 % intervals; a call
    without one counts as what it costs. ``is_least``: for some calls there is a floor only. ``unpriced`` calls have no
    answer and are not in the sum.
    """

    fabric: str
    trust: str
    microseconds: float
    low: float
    high: float
    is_least: bool
    unpriced: int


@dataclass(frozen=True)
class Report:
    """What a program's collectives would cost, call by call and machine by machine. ``print`` shows a table.

    Attributes:
        rows: one for each kind of call, by the first of its ranks, and then in the order in which they were first made.
        totals: one for each machine, in the order in which they were asked for.
        others: calls of kinds that were not told apart, because there were too many; they are in no row.
        launch: how every call is launched, as of ``Fabric.predict``.
    """

    rows: tuple[ReportRow, ...]
    totals: tuple[Total, ...]
    others: int = 0
    launch: str = LAUNCH

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    def _repr_html_(self) -> str:
        names = "".join(f"<th>{escaped(name)}</th>" for name in headings(self))
        lines = "".join(f"<tr>{''.join(f'<td>{escaped(cell)}</td>' for cell in line)}</tr>" for line in cells(self))
        said = "".join(f"<p>{escaped(note)}</p>" for note in notes(self))
        return f'<div style="overflow-x:auto"><table><tr>{names}</tr>{lines}</table>{said}</div>'

    def to_json(self) -> str:
        """Returns everything as JSON, by the names of the attributes: ``rows``, ``totals``, ``others``, ``launch``."""
        return json.dumps(asdict(self), indent=2)


def machine_of(on: str | Fabric, world_size: int) -> Fabric:
    """Returns the machine that a name stands for, if ``world_size`` ranks have a GPU each.

    Raises:
        InvalidArgument: no machine is called so, or it is too small.
    """
    if not isinstance(on, (str, Fabric)):
        raise InvalidArgument(f"`on` is a {type(on).__name__}: pass the name of a machine, or a Fabric")
    found = preset(on) if isinstance(on, str) else on
    if found.world_size < world_size:
        has, needs = counted(found.world_size, "GPU"), counted(world_size, "rank")
        raise InvalidArgument(f"`on` is {found.name}, which has {has}, and the node has {needs}: pass a larger one")
    return found


def machines_of(on: str | Fabric | Iterable[str | Fabric], world_size: int) -> list[Fabric]:
    """Returns the machines of ``on=``: one, or several."""
    several = [on] if isinstance(on, (str, Fabric)) else on
    if not isinstance(several, Iterable):
        raise InvalidArgument(f"`on` is a {type(on).__name__}: pass the name of a machine, a Fabric, or several")
    found = [machine_of(one, world_size) for one in several]
    if not found:
        raise InvalidArgument("`on` names no machine: pass one, as on='hgx-h100'")
    return found


def report_of(tallies: Sequence[Tallies], pricers: Sequence[Pricer]) -> Report:
    """Reports the calls of some nodes together, launched alike on every machine; rank r of each is GPU r."""
    rows: dict[ReportRow, int] = {}
    for of_node in tallies:
        calls = of_node.calls()
        prices = zip(*(pricer.prices(calls) for pricer in pricers), strict=True)
        for one, of_call in zip(calls, prices, strict=True):
            row = _row(one, of_call)
            rows[row] = rows.get(row, 0) + one.times
    # What a rank leads is counted by it, in the order of its program; whose call is the first of all is chance.
    found = tuple(replace(row, times=rows[row]) for row in sorted(rows, key=lambda row: row.ranks[0]))
    totals = tuple(_total(pricer.fabric, found, at) for at, pricer in enumerate(pricers))
    return Report(found, totals, sum(of_node.others for of_node in tallies), pricers[0].launch)


def clock_of(tallies: Tallies, pricer: Pricer) -> float:
    """Returns the microseconds that the busiest rank of a node has spent in its calls.

    Raises:
        InvalidArgument: a call has no price there.
    """
    report = report_of([tallies], [pricer])
    if why := _why_unpriced(report, 0):
        raise InvalidArgument(f"the clock does not know what every call takes: {why}")
    return report.totals[0].microseconds


@contextmanager
def watched() -> Iterator[list[Tallies]]:
    """Collects the tallies of every node that is made meanwhile, and keeps no node alive."""
    found: list[Tallies] = []
    _watchers.append(found)
    try:
        yield found
    finally:
        _watchers[:] = [one for one in _watchers if one is not found]


def announce(tallies: Tallies) -> None:
    """Tells who watches of a new node."""
    for watcher in _watchers:
        watcher.append(tallies)


def _row(one: Calls, prices: tuple[Price, ...]) -> ReportRow:
    """Returns the row of a kind of call, without how often."""
    what = (one.collective, one.nbytes, one.dtype, one.op, one.algorithm, one.root)
    return ReportRow(*what, ranks=one.ranks, grouped=one.grouped, times=0, prices=prices)


def _total(fabric: Fabric, rows: Sequence[ReportRow], at: int) -> Total:
    """Adds up what the busiest rank spends on a machine."""
    spent: defaultdict[int, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for row in rows:
        price = row.prices[at]
        if price.microseconds is None:
            continue
        us, low, high = price.microseconds, price.low, price.high
        interval = (us, us if low is None else low, us if high is None else high)
        for rank in row.ranks:
            spent[rank] = [sum_ + row.times * one for sum_, one in zip(spent[rank], interval, strict=True)]
    us, low, high = max(spent.values(), default=[0.0, 0.0, 0.0])
    unpriced = sum(row.times for row in rows if row.prices[at].microseconds is None)
    is_least = any(row.prices[at].way == "floor only" for row in rows)
    most = _most(rows, at)
    trust = (most and most.prices[at].trust) or "not validated"
    return Total(fabric.name, trust, us, low, high, is_least, unpriced)


def _most(rows: Iterable[ReportRow], at: int) -> ReportRow | None:
    """Returns the calls that take most of the time on a machine."""
    return max(rows, key=lambda row: row.times * (row.prices[at].microseconds or 0.0), default=None)


_WAYS = {
    "simulated schedule": "simulated: there is no prediction; the schedule that ran, in virtual time, not validated",
    "floor only": "floor: there is no estimate; no schedule is faster",
}
"""What is said of prices that are not predictions."""


def headings(report: Report) -> list[str]:
    """Returns the headings of the table of a report."""
    return ["collective", "size", "of", "asked for", "ranks", "times", *_per_machine(report)]


def _per_machine(report: Report) -> Iterator[str]:
    for total in report.totals:
        yield f"{total.fabric} us"
        yield "by"


def cells(report: Report) -> list[list[str]]:
    """Returns the lines of the table of a report, and the totals; groups of ranks that read the same are one line."""
    alike = Counter(_cells(row) for row in report.rows)
    lines = [
        [f"{groups} x {cell}" if at == _RANKS and groups > 1 else cell for at, cell in enumerate(line)]
        for line, groups in alike.items()
    ]
    totals = [cell for total in report.totals for cell in (_at_least(total), _interval(total))]
    return [*lines, ["total", "", "", "", "", "", *totals]]


_RANKS = 4
"""The column that says how many ranks."""


def _cells(row: ReportRow) -> tuple[str, ...]:
    of = " ".join(filter(None, (row.dtype, row.op)))
    grouped = f" in {counted(row.grouped, 'call')}" if row.grouped > 1 else ""
    size = f"{sized(row.nbytes)}{grouped}" if row.dtype else ""
    prices = [cell for price in row.prices for cell in (microseconds(price.microseconds), _by(price))]
    return row.collective, size, of, row.algorithm, str(len(row.ranks)), str(row.times), *prices


def _at_least(total: Total) -> str:
    return f"{'>= ' if total.is_least else ''}{microseconds(total.microseconds)}"


def _by(price: Price) -> str:
    """Says how a call goes, or which answer its price is."""
    match price.way:
        case "predicted":
            return f"{price.algorithm} {price.protocol}"
        case "simulated schedule":
            return f"{price.algorithm}, simulated"
        case "floor only":
            return "floor"
        case _:
            return ""


def _interval(total: Total) -> str:
    if (total.low, total.high) == (total.microseconds, total.microseconds):
        return ""
    return f"{microseconds(total.low)} to {microseconds(total.high)}"


def microseconds(us: float | None) -> str:
    """Writes a time: three digits, none behind the point from 100 on."""
    return "-" if us is None else f"{us:,.0f}" if us >= 100 else f"{us:.3g}"


def notes(report: Report) -> Iterator[str]:
    """Says what the numbers are, and what most of the time is spent on."""
    yield f"microseconds of a call, launched {report.launch}"
    yield "the total is of the busiest rank, every call alone on the machine, without computing"
    for at, total in enumerate(report.totals):
        most = _most(report.rows, at)
        if most is not None and (bottleneck := most.prices[at].bottleneck):
            yield f"bound by  {total.fabric}, in {most.collective} of {sized(most.nbytes)}: {bottleneck}"
    yield from (f"numbers   {total.fabric}: {total.trust}" for total in report.totals)
    found = {price.way for row in report.rows for price in row.prices}
    yield from (f"note      {meaning}" for way, meaning in _WAYS.items() if way in found)
    for at, total in enumerate(report.totals):
        if why := _why_unpriced(report, at):
            yield f"note      {counted(total.unpriced, 'call')} without an answer, not in the total: {why}"
    if report.others:
        yield f"note      {counted(report.others, 'call')} more, of more kinds than a node tells apart: in no row"


def _why_unpriced(report: Report, at: int) -> str | None:
    """Says why some call has no price on a machine; None if all have."""
    prices = (row.prices[at] for row in report.rows)
    return next((price.why for price in prices if price.microseconds is None), None)


def _lines(report: Report) -> Iterator[str]:
    if not report.rows and not report.others:
        yield "no collectives were made"
        return
    names, rows = headings(report), cells(report)
    left = [at for at, name in enumerate(names) if name in ("collective", "of", "asked for", "by")]
    yield from aligned([names, *rows], left)
    yield from notes(report)
