"""What the collectives of a program would cost on machines that you do not have: ``node.report(on=...)``.

A node counts its calls and its sends by kind: collective, bytes, dtype, op, algorithm, root, ranks. A report prices
each kind once on each machine (``nvcoll.cost.price``) and multiplies. It does not know compute between calls, overlap
of calls with each other or with compute, or groups of ranks that share a link: each call is alone on the machine.

A total is that of the busiest rank: the sum over the calls that this rank takes part in. Groups of ranks that work side
by side are not added up, and no rank waits for ranks that come later.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, TypeAlias

from nvcoll._nvcoll import CallCounts, Fabric, InvalidArgument, machines
from nvcoll.cost.buckets import bucket_hints
from nvcoll.cost.comparison import LAUNCH
from nvcoll.cost.counts import AnyCalls, AnyCounts
from nvcoll.cost.price import Price, Pricer
from nvcoll.cost.rows import ReportRow, Total
from nvcoll.text.formatting import counted, escaped, listed, number, sized
from nvcoll.text.tables import LABEL, fitted, labelled, terminal_columns

if TYPE_CHECKING:
    from nvcoll._nvcoll import _Launch as Launch


@dataclass(frozen=True)
class Report:
    """What a program's collectives would cost, call by call and machine by machine. ``print`` shows a table.

    Attributes:
        rows: one for each kind of call, by the first of its ranks, and then in the order in which they were first made.
        totals: one for each machine, in the order in which they were asked for.
        others: calls of kinds that were not told apart, because there were too many; they are in no row.
        launch: how every call is launched, as of ``Fabric.predict``.
        silent: ranks that failed and did not tell which calls they had counted, those of communicators whose first
            rank they are. Those calls are missing.
        steps: the number of steps of training that the program has marked.
    """

    rows: tuple[ReportRow, ...]
    totals: tuple[Total, ...]
    others: int = 0
    launch: Launch = LAUNCH
    silent: tuple[int, ...] = ()
    steps: int = 0

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    def _repr_html_(self) -> str:
        names = "".join(f"<th>{escaped(name)}</th>" for name in headings(self))
        lines = "".join(f"<tr>{''.join(f'<td>{escaped(cell)}</td>' for cell in line)}</tr>" for line in cells(self))
        said = "".join(f"<p>{escaped(note)}</p>" for note in notes(self))
        return f'<div style="overflow-x:auto"><table><tr>{names}</tr>{lines}</table>{said}</div>'

    def to_json(self) -> str:
        """Returns everything as JSON, by the names of the attributes: ``rows``, ``totals`` and so on."""
        return json.dumps({"schema": "nvcoll.run/1", **asdict(self)}, indent=2)


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


def report_of(call_counts: Sequence[AnyCounts], pricers: Sequence[Pricer], silent: Sequence[int] = ()) -> Report:
    """Reports the calls of some nodes or processes together, launched alike everywhere; rank r of each is GPU r."""
    times: Counter[ReportRow] = Counter()
    in_steps: Counter[ReportRow] = Counter()
    for of_node in call_counts:
        calls: Sequence[AnyCalls] = of_node.calls()
        prices = zip(*(pricer.prices(calls) for pricer in pricers), strict=True)
        for one, of_call in zip(calls, prices, strict=True):
            row = _row(one, of_call)
            times[row] += one.times
            in_steps[row] += getattr(one, "in_steps", 0)
    # What a rank leads is counted by it, in the order of its program; whose call is the first of all is chance.
    found = tuple(
        replace(row, times=times[row], in_steps=in_steps[row]) for row in sorted(times, key=lambda row: row.ranks[0])
    )
    steps = max((getattr(of_node, "steps", 0) for of_node in call_counts), default=0)
    totals = tuple(_total(pricer, found, at, steps) for at, pricer in enumerate(pricers))
    others = sum(of_node.others for of_node in call_counts)
    return Report(found, totals, others, pricers[0].launch, tuple(silent), steps)


def clock_of(call_counts: CallCounts, pricer: Pricer) -> float:
    """Returns the microseconds that the busiest rank of a node has spent in its calls.

    Raises:
        InvalidArgument: a call has no price there.
    """
    report = report_of([call_counts], [pricer])
    if why := _why_unpriced(report, 0):
        raise InvalidArgument(f"the clock does not know what every call takes: {why}")
    return report.totals[0].time_us or 0.0


def _row(one: AnyCalls, prices: tuple[Price, ...]) -> ReportRow:
    """Returns the row of a kind of call, without how often."""
    what = (one.collective, one.nbytes, one.dtype, one.op, one.algorithm, one.root)
    return ReportRow(*what, ranks=one.ranks, grouped=one.grouped, times=0, in_steps=0, prices=prices)


def _total(pricer: Pricer, rows: Sequence[ReportRow], at: int, steps: int) -> Total:
    """Adds up what the busiest rank spends on a machine."""
    fabric = pricer.fabric
    spent: defaultdict[int, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    in_steps: defaultdict[int, float] = defaultdict(float)
    for row in rows:
        price = row.prices[at]
        if price.time_us is None:
            continue
        us, low, high = price.time_us, price.low_us, price.high_us
        interval = (us, us if low is None else low, us if high is None else high)
        for rank in row.ranks:
            spent[rank] = [sum_ + row.times * one for sum_, one in zip(spent[rank], interval, strict=True)]
            in_steps[rank] += row.in_steps * us
    us, low, high = max(spent.values(), default=[0.0, 0.0, 0.0])
    unpriced = sum(row.times for row in rows if row.prices[at].time_us is None)
    is_least = any(row.prices[at].way == "floor only" for row in rows)
    most = _most(rows, at)
    trust = (most and most.prices[at].trust) or "not validated"
    note = _idle_nodes(fabric, rows)
    if not spent and unpriced:
        return Total(fabric.name, trust, None, None, None, is_least, unpriced, note)
    step_us = max(in_steps.values(), default=0.0) / steps if steps else None
    hints = tuple(bucket_hints(pricer, rows, at, steps)) if steps else ()
    return Total(fabric.name, trust, us, low, high, is_least, unpriced, note, step_us, hints)


def _idle_nodes(fabric: Fabric, rows: Sequence[ReportRow]) -> str | None:
    """Says that nodes of a cluster have no rank; None if all have one."""
    ranks = 1 + max((rank for row in rows for rank in row.ranks), default=0)
    per_node = fabric.world_size // fabric.nodes
    used = -(-ranks // per_node)
    if not rows or used >= fabric.nodes:
        return None
    idle = counted(fabric.nodes - used, "node")
    return f"{counted(ranks, 'rank')} fill {used} of {fabric.nodes} nodes, {idle} idle"


def _most(rows: Iterable[ReportRow], at: int) -> ReportRow | None:
    """Returns the calls that take most of the time on a machine."""
    return max(rows, key=lambda row: row.times * (row.prices[at].time_us or 0.0), default=None)


_WAYS = {
    "simulated schedule": "simulated: no prediction; the schedule that ran here, in virtual time, not validated",
    "floor only": "lower bound: there is no prediction, and no schedule is faster",
}
"""Notes on prices that are not predictions."""


CALL = ("collective", "size", "dtype/op", "run here", "ranks", "calls")
"""The headings of the columns that describe a call."""

PER_STEP = "per step"
"""The heading of one more such column, if the program has marked steps."""


def of_call(report: Report) -> tuple[str, ...]:
    """Returns the headings of the columns that describe a call."""
    return (*CALL, PER_STEP) if report.steps else CALL


NCCL_USES = "NCCL uses"


def headings(report: Report) -> list[str]:
    """Returns the headings of the table of a report."""
    return [*of_call(report), *_per_machine(report)]


def _per_machine(report: Report) -> Iterator[str]:
    for total in report.totals:
        yield f"{total.machine} us"
        yield NCCL_USES


def cells(report: Report) -> list[list[str]]:
    """Returns the lines of the table of a report, and the totals; groups of ranks that read the same are one line."""
    alike = Counter(_cells(row, report.steps) for row in report.rows)
    lines = [
        [f"{groups} x {cell}" if at == _RANKS and groups > 1 else cell for at, cell in enumerate(line)]
        for line, groups in alike.items()
    ]
    totals = [cell for total in report.totals for cell in (_at_least(total), _interval(total))]
    per_step = [cell for total in report.totals for cell in (microseconds(total.step_us), "")]
    empty = [""] * (len(of_call(report)) - 1)
    return [*lines, ["total", *empty, *totals], *([["one step", *empty, *per_step]] if report.steps else [])]


_RANKS = 4
"""The column that says how many ranks."""


def _cells(row: ReportRow, steps: int) -> tuple[str, ...]:
    of = " ".join(filter(None, (row.dtype, row.op)))
    grouped = f" in {counted(row.grouped, 'call')}" if row.grouped > 1 else ""
    size = f"{sized(row.nbytes)}{grouped}" if row.dtype else ""
    prices = [cell for price in row.prices for cell in (microseconds(price.time_us), _by(price))]
    per_step = (f"{row.in_steps / steps:.3g}",) if steps else ()
    return row.collective, size, of, row.algorithm, str(len(row.ranks)), str(row.times), *per_step, *prices


def _at_least(total: Total) -> str:
    least = ">= " if total.is_least and total.time_us is not None else ""
    return f"{least}{microseconds(total.time_us)}"


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


def _interval(total: Total) -> str:
    if (total.low_us, total.high_us) == (total.time_us, total.time_us):
        return ""
    return f"90 %: {microseconds(total.low_us)} to {microseconds(total.high_us)} us"


def microseconds(us: float | None) -> str:
    """Writes a time; ``-`` if there is none."""
    return "-" if us is None else number(us)


def notes(report: Report) -> Iterator[str]:
    """Yields the notes below the table: units, bottlenecks, accuracy, and what is missing, each with its label."""
    yield from (f"{label:{LABEL}}{words}" for label, words in _notes(report))


def _notes(report: Report) -> Iterator[tuple[str, str]]:
    yield "us", f"microseconds of one call, launched {report.launch}"
    yield "ranks", "ranks of a call; 2 x 4: two communicators of four ranks make the same calls"
    yield "calls", "calls of one rank; the calls of a group() count as one"
    if any(row.collective == "sendrecv" for row in report.rows):
        yield "sendrecv", "sends, counted by the sender and priced as if both ranks sent at once"
    yield "total", "sum over the calls of the busiest rank; calls overlap neither each other nor compute"
    if report.steps:
        yield "one step", f"the average of {counted(report.steps, 'step')} after the first"
    for at, total in enumerate(report.totals):
        most = _most(report.rows, at)
        if most is not None and (bottleneck := most.prices[at].bottleneck):
            yield "bottleneck", f"{total.machine}, {_named(most)}: {bottleneck}"
    for at, total in enumerate(report.totals):
        if total.time_us and (most := _most(report.rows, at)):
            yield "accuracy", f"{total.machine}, {_named(most)}: {total.trust}"
    found = {price.way for row in report.rows for price in row.prices}
    yield from (("note", meaning) for way, meaning in _WAYS.items() if way in found)
    for at, total in enumerate(report.totals):
        yield from (("hint", f"{total.machine}: {words}") for words in total.hints)
        if total.note:
            yield "note", f"{total.machine}: {total.note}"
        if why := _why_unpriced(report, at):
            yield "note", f"{counted(total.unpriced, 'call')} without an answer, not in the total: {why}"
    if report.others:
        yield "note", f"{counted(report.others, 'more call')} in no row and no total: too many kinds of calls"
    if report.silent:
        yield "note", _of_silent(report.silent)


def _of_silent(ranks: Sequence[int]) -> str:
    whose, led = ("its calls", "it is") if len(ranks) == 1 else ("their calls", "they are")
    return f"{listed(ranks)} ended without telling {whose}: calls of communicators whose first rank {led} are missing"


def _named(row: ReportRow) -> str:
    return f"{row.collective} of {sized(row.nbytes)} on {counted(len(row.ranks), 'rank')}"


def _why_unpriced(report: Report, at: int) -> str | None:
    """Says why some call has no price on a machine; None if all have."""
    prices = (row.prices[at] for row in report.rows)
    return next((price.why for price in prices if price.time_us is None), None)


def _lines(report: Report) -> Iterator[str]:
    if not report.rows and not report.others:
        yield from labelled("note", _of_silent(report.silent), terminal_columns()) if report.silent else [NOTHING]
        return
    names, rows, width = headings(report), cells(report), terminal_columns()
    is_wide = sum(2 + max(map(len, column)) for column in zip(names, *rows, strict=True)) > width + 2
    first = len(of_call(report))
    for at in range(len(report.totals)) if is_wide else [None]:
        columns = [*range(len(names))] if at is None else [*range(first), first + 2 * at, first + 2 * at + 1]
        table = [[row[column] for column in columns] for row in rows]
        shown = [names[column] for column in columns]
        yield from fitted(shown, table, left=LEFT, optional=OPTIONAL, width=width)
        if is_wide:
            yield ""
    for label, words in _notes(report):
        yield from labelled(label, words, width)


NOTHING = "no collectives were made"

LEFT = ("collective", "dtype/op", "run here", NCCL_USES)
"""The headings of the columns that are aligned left."""

OPTIONAL = ("run here", "dtype/op")
"""The headings of the columns that narrow terminals do not show."""
