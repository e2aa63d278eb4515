"""The report of priced steps: text, rows, JSON, and the files of pages and traces.

``nvcoll plan``, ``dryrun`` and ``price`` and `nvcoll.testing.dryrun` make a `Report`, and all print it alike::

    head                     what it is: the step and its layout, the script that ran, the file
    what was measured        beside what is predicted
    one machine              the step in detail: time, memory, limit, hints; parts, memory, lines, collectives
    several machines         side by side
    sweep                    layouts, best first

What one command alone knows is data of the report: `Report.head`, `Report.measured`, `Detail`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib.resources import files
from itertools import repeat
from typing import Final, Literal

from nvcoll._nvcoll import CollectivePrice, InvalidArgument, StepPrediction
from nvcoll.text.blocks import Block, Blocks, Line, Table, Time, beside, under
from nvcoll.text.formatting import counted, duration, json_text, sized
from nvcoll.training import page
from nvcoll.training.options import RECIPE
from nvcoll.training.planning import Machine
from nvcoll.training.prediction import FITS, PARTS, TITLES, fit_words, host_ram
from nvcoll.training.sweep import Sweep
from nvcoll.training.trace import Document

SCHEMA: Final = "nvcoll.report/1"

HIDES: Final = {
    "nothing": "nothing",
    "tiles": "its product",
    "other_micro_batch": "another micro-batch",
    "attention": "attention",
    "other_layer": "another layer",
    "last_backward": "the last backward pass",
    "first_forward": "the first forward pass",
    "half": "half of the pipeline",
}

MOST: Final = 12
"""The rows of a sweep and of collectives that are shown. Chosen."""

MOST_SWEPT: Final = 3
"""The machines up to which all their layouts are shown, not the best alone. Chosen."""

MOST_LINES: Final = 8
"""The rows of lines of a script that are shown. Chosen."""

CANDIDATE: Final = (
    *("gpus", "layout", "seconds", "low_s", "high_s", "extrapolated", "tokens_per_second", "mfu", "parts"),
    *("memory_gib", "fit", "ram_gib", "ram_fit"),
)
"""What JSON has of a layout of a sweep."""

DOLLARS: Final = "dollars_per_1e12_tokens"
"""The name of the price of tokens in JSON and CSV."""

LEAST: Final = 5e-4
"""The least share of a part of the time that is shown. Chosen: tables show tenths of a per cent."""

ALL: Final = 0.995
"""The part of a collective's time from which on all of it is exposed, as far as three digits show. Chosen."""


@dataclass(frozen=True)
class Detail:
    """What a command knows of one step besides its prediction.

    ``memory`` replaces the sentence about the memory, ``peak`` is the line of a script at which it is fullest, ``last``
    are sentences at the end: layouts to try, assumptions. ``passes`` is a further table of times, ``host`` says
    whether the processor limits the step, ``iteration`` which iteration of a server it is: ``decode``, ``prefill``,
    ``all_reduce`` what runs the all_reduce of a server.
    """

    memory: str = ""
    peak: str = ""
    hints: Sequence[str] = ()
    last: Sequence[Line] = ()
    passes: Table | None = None
    host: str = ""
    iteration: str = ""
    all_reduce: str = ""


@dataclass(frozen=True)
class MeasuredStep:
    """A step as it was measured, in seconds; what was not measured is None.

    ``machine`` names the prediction to compare with. ``collectives``: pattern, group, bytes, seconds. ``replayed_s``:
    the step as predicted with the measured times of collectives. ``scale``: the factor of all predicted times.
    ``shown`` is the comparison as text.
    """

    seconds: float
    machine: str | None = None
    computes_s: float | None = None
    exposed_s: float | None = None
    idle_s: float | None = None
    replayed_s: float | None = None
    scale: float | None = None
    collectives: Sequence[Mapping[str, str | float]] = ()
    shown: Sequence[Block] = field(default=(), repr=False)


@dataclass(frozen=True)
class TooLarge:
    """A machine on which a script ran out of memory, with the message of torch and the line."""

    machine: str
    message: str
    line: str | None


@dataclass(frozen=True, repr=False)
class Report(Blocks):
    """Predictions of a step on machines, one for each of `machines`, and what only its command knows.

    Attributes:
        command: the command that made it.
        title: what was priced: a model, a script, a step.
        machines: the machines on which steps were priced.
        found: the prediction for each machine; with sweeps the prediction of the best layout.
        head: sentences before the predictions.
        details: one for each prediction, or none.
        dollars: prices of a GPU and hour, by the name of the machine.
        measured: what was measured.
        sweeps: the layouts on each machine, by its name.
        recordings: facts of recordings, by the model of GPU.
        out_of_memory: machines on which the script ran out of memory.
        assumed: what was assumed, in sentences.
    """

    command: Literal["plan", "dryrun", "price"]
    title: str
    machines: Sequence[Machine]
    found: Sequence[StepPrediction]
    head: Sequence[Block] = ()
    details: Sequence[Detail] = ()
    dollars: Mapping[str, float] = field(default_factory=dict)
    measured: MeasuredStep | None = None
    sweeps: Mapping[str, Sweep] = field(default_factory=dict)
    recordings: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    out_of_memory: Sequence[TooLarge] = ()
    assumed: Sequence[str] = ()

    def __repr__(self) -> str:
        return f"<Report of {self.command}: {', '.join(map(repr, self.found))}>"

    def rows(self) -> list[dict[str, object]]:
        """Returns a row for each prediction, of a sweep for each layout."""
        if self.sweeps:
            return [self._row(name, one) for name, sweep in self.sweeps.items() for one in sweep.candidates]
        return [self._row(one.machine.name, one) for one in self.found]

    def _row(self, machine: str, one: StepPrediction) -> dict[str, object]:
        names = ("seconds", "low_s", "high_s", "tokens_per_second", "mfu", "computes_s", "exposed_s", "idle_s")
        row = {"machine": machine, "gpus": one.gpus, "layout": one.words.replace("  ", ", ")}
        row |= {name: getattr(one, name) or None for name in (*names, "memory_gib")} | {"fit": one.fit}
        return row | ({DOLLARS: self._dollars(machine, one)} if self.dollars else {})

    def _dollars(self, machine: str, one: StepPrediction) -> float | None:
        """Returns the price of 10^12 tokens, if that of a GPU and hour is known."""
        return one.dollars(self.dollars[machine]) if self.dollars else None

    def to_json(self) -> str:
        """Returns the report as JSON of ``nvcoll.report/1``; `schema` has its schema."""
        rows = {name: [self._of_candidate(name, row) for row in one.candidates] for name, one in self.sweeps.items()}
        sweeps = [
            {"machine": name, "refused": one.refused, "candidates": rows[name]} for name, one in self.sweeps.items()
        ]
        measured = self.measured and {name: value for name, value in vars(self.measured).items() if name != "shown"}
        reports = [self._of_prediction(*each) for each in self._detailed()]
        row: dict[str, object] = {"command": self.command, "reports": reports}
        row |= {"sweep": sweeps, "measured": measured, "recordings": self.recordings, "assumed": self.assumed}
        return json_text(SCHEMA, row | {"out_of_memory": [asdict(one) for one in self.out_of_memory]})

    def _detailed(self) -> Iterator[tuple[StepPrediction, Detail]]:
        """Yields the predictions, each with its details."""
        return zip(self.found, self.details or repeat(Detail()), strict=False)

    def _of_prediction(self, one: StepPrediction, detail: Detail) -> dict[str, object]:
        """Returns what JSON has of a prediction."""
        more = {"iteration": detail.iteration} if detail.iteration else {}
        return one.to_dict() | {DOLLARS: self._dollars(one.machine.name, one)} | more

    def _of_candidate(self, machine: str, one: StepPrediction) -> dict[str, object]:
        """Returns what JSON has of a layout of a sweep."""
        row = one.to_dict()
        return {name: row[name] for name in CANDIDATE} | {DOLLARS: self._dollars(machine, one)}

    @cached_property
    def best(self) -> int:
        """The place of the fastest step that fits, or if none does of the fastest."""
        found = enumerate(self.found)
        return min(found, key=lambda one: (one[1].fit == "too_large", one[1].seconds))[0]

    def timeline(self) -> Document:
        """Returns the timeline of the best step."""
        return self.machines[self.best].timeline(self.found[self.best].step)

    def page(self) -> str:
        """Returns a page with charts: machines or layouts beside each other, and the best step in detail.

        Raises:
            InvalidArgument: a library that draws is not installed, or there is no step.
        """
        if not self.found:
            raise InvalidArgument("no step was priced: there is nothing to draw")
        one = self.found[self.best]
        kinds = [detail.iteration for _, detail in self._detailed()]
        alike = [each for each, kind in zip(self.found, kinds, strict=True) if kind == kinds[self.best]]
        several = alike if len(alike) > 1 else ()
        return page.of(one, timeline=self.timeline(), sweep=self.sweeps.get(one.machine.name), several=several)

    def blocks(self) -> Iterator[Block]:
        """Yields the parts of the text."""
        yield from self.head
        if self.measured is not None:
            yield from self.measured.shown
        if self.sweeps:
            if len(self.sweeps) > 1:
                yield from self._best_of_each()
            for nth, (name, one) in enumerate(self.sweeps.items() if len(self.sweeps) <= MOST_SWEPT else ()):
                yield from [None] * (nth > 0)
                yield from of_sweep(one, f"{self.title} on {name}", self.dollars.get(name))
        elif len({one.machine.name for one in self.found}) == 1:
            if self.command != "plan":  # its head names the machine
                yield Line("machine", _used(self.found[0]))
            for nth, (step, detail) in enumerate(self._detailed()):
                yield from [None] * (nth > 0)
                yield from of_step(step, detail, self.dollars.get(step.machine.name))
        elif self.found:
            for nth, kind in enumerate(dict.fromkeys(detail.iteration for _, detail in self._detailed())):
                some = [each for each in self._detailed() if each[1].iteration == kind]
                yield from [None] * (nth > 0)
                yield from self._of_machines(kind or "step", [one for one, _ in some], [each for _, each in some])
        for failed in self.out_of_memory:
            yield Line("memory", f"{failed.machine}: does not fit: {failed.message}")

    def _best_of_each(self) -> Iterator[Block]:
        """Yields the best layout on each machine, the fastest first, and the machines on which no layout fits."""
        yield Line("", f"{self.title}: the best layout on {counted(len(self.found), 'machine')}")
        heads = ["machine", *SWEEP[:2], "step", *SWEEP[5:], *(["$/10^12 tokens"] if self.dollars else [])]
        rows = []
        for one in sorted(self.found, key=lambda one: one.seconds):
            layout, memory = one.words.replace("  ", " "), (f"{one.memory_gib:.0f}", fit_words(one))
            times = duration(one.seconds), duration(one.low_s, one.high_s), f"{one.tokens_per_second:,.0f}"
            price = [f"{dollars:,.0f}" for dollars in [self._dollars(one.machine.name, one)] if dollars is not None]
            rows.append((one.machine.name, f"{one.gpus}", layout, *times, *memory, *price))
        yield Table(heads, rows, ("machine", "layout", "memory"), (SWEEP[6], SWEEP[5]))
        fits = {one.machine.name for one in self.found}
        none = {name: one for name, one in self.sweeps.items() if name not in fits}
        if small := [name for name, one in none.items() if one.candidates]:
            yield Line("does not fit", ", ".join(small))
        for rule in dict.fromkeys(next(iter(one.refused), "no layout") for one in none.values() if not one.candidates):
            names = [name for name, one in none.items() if not one.candidates and rule in (*one.refused, "no layout")]
            yield Line("refused", f"{', '.join(names)}: {rule}")
        yield None

    def _of_machines(self, name: str, found: Sequence[StepPrediction], details: Sequence[Detail]) -> Iterator[Block]:
        """Yields machines side by side, compared with the traced machine, the measured step, or the fastest."""
        against = None
        if (measured := self.measured) is not None and measured.scale is None:
            whose = measured.machine or "measured"
            base = next((one.seconds for one in found if one.machine.name == whose), measured.seconds)
            against = whose, base
        columns, dollars = dict[str, list[str]](), dict[str, list[str]]()
        if has_tokens := any(one.tokens_per_second for one in found):
            columns |= {"tokens/s/GPU": [f"{one.tokens_per_second:,.0f}" for one in found]}
        if any(one.mfu for one in found):
            columns |= {"MFU": ["" if one.mfu is None else f"{100 * one.mfu:.0f} %" for one in found]}
        if has_tokens:
            waits = (100 * (one.exposed_s + one.idle_s) / one.seconds for one in found)
            columns |= {"waits": [f"{share:.0f} %" for share in waits]}
        else:
            for part in ("computes", "exposed", "idle"):
                columns[part] = [duration(getattr(one, f"{part}_s")) for one in found]
        if any(one.memory for one in found):
            columns |= {"GiB": [f"{one.memory_gib:.0f} of {one.gpu_memory_gib:.0f}" for one in found]}
            columns |= {"memory": [fit_words(one) for one in found]}
        if self.dollars:
            prices = (one.dollars(self.dollars[one.machine.name]) for one in found)
            dollars = {"$/10^12 tokens": [f"{price:,.0f}" for price in prices]}
        times = [Time(one.machine.name, one.seconds, one.low_s, one.high_s) for one in found]
        optional = ("waits", "tokens/s/GPU", "GiB")
        yield beside(name, times, columns, against=against, last=dollars, left=("memory",), optional=optional)
        for one in found:
            yield Line("limit", f"{one.machine.name}: {one.limit}")
        for one in found:
            for reason in one.extrapolated:
                yield Line("accuracy", f"{one.machine.name}: extrapolated: {reason}; the interval is wider")
        for one, detail in zip(found, details, strict=True):
            yield from (Line("hint", f"{one.machine.name}: {hint}") for hint in detail.hints[:1])


def _used(found: StepPrediction) -> str:
    """Returns the name of the machine of a step; if the step uses only some of its GPUs, also how many."""
    all_ = found.machine.world_size
    return found.machine.name + f", {found.gpus} of {counted(all_, 'GPU')}" * (found.gpus < all_)


def schema() -> str:
    """Returns the JSON Schema of a report."""
    return files("nvcoll.training").joinpath("schema.json").read_text(encoding="utf-8")


def of_step(found: StepPrediction, detail: Detail, dollars: float | None) -> Iterator[Block]:
    """Yields one step: time, memory, limit, hints, and tables of where the time and the memory go."""
    rates = [f"{duration(found.seconds)} (90 %: {duration(found.low_s, found.high_s)})"]
    if found.tokens_per_second:
        rates.append(f"{found.tokens_per_second:,.0f} tokens/s per GPU")
    if found.mfu:
        rates.append(f"{100 * found.mfu:.1f} % {'MFU' if found.flops_of == 'model' else 'HFU'}")
    yield Line(detail.iteration or "step", ", ".join(rates))
    has_memory = found.memory is not None and detail.iteration != "prefill"  # of the same run as decode
    if has_memory:
        held = (
            f"{found.memory_gib:.0f} of {found.gpu_memory_gib:.0f} GiB on the fullest GPU: {FITS[found.gpu_fit or '']}"
        )
        yield Line("memory", detail.memory or held)
    if found.ram_gib:
        waits = "{:,.0f} to {:,.0f} GiB wait on the fullest host".format(*found.ram_gib)
        yield Line("RAM", f"{waits}, which has {host_ram(found)}: {FITS[found.ram_fit or '']}")
    if has_memory and detail.peak:
        yield Line("peak", f"at {detail.peak}")
    yield Line("limit", found.limit)
    if detail.host:
        yield Line("host", detail.host)
    if detail.all_reduce:
        yield Line("all_reduce", detail.all_reduce)
    if dollars is not None:
        yield Line("price", f"{found.dollars(dollars):,.0f} dollars for 10^12 tokens at {dollars:g} a GPU and hour")
    for reason in found.extrapolated:
        yield Line("accuracy", f"extrapolated: {reason}; the interval is wider")
    yield from under("hint", detail.hints)
    memory = _of_memory(found) if has_memory else None
    for table in (_of_parts(found), detail.passes, memory, _of_lines(found), _of_collectives(found)):
        if table is not None and table.rows:
            yield from (None, table)
    if found.collectives and (more := len(_collectives(found)) - MOST) > 0:
        yield Line("", f"({more} more: --json has all)")
    if detail.last:
        yield None
    yield from detail.last


def _of_parts(found: StepPrediction) -> Table:
    shown = {PARTS[name]: time for name, time in found.parts.items() if time >= LEAST * found.seconds}
    times = [*sorted(shown.items(), key=lambda part: -part[1]), ("the GPU computes", found.computes_s)]
    rows = [(name, duration(time), f"{100 * time / found.seconds:.1f} %") for name, time in times]
    return Table(("where the time goes", "time", "share"), rows, ("where the time goes",))


def _of_memory(found: StepPrediction) -> Table | None:
    if found.memory is None:
        return None
    fullest = max(found.memory, key=lambda one: one.gib)
    rows = [(TITLES.get(name, name), f"{nbytes / 2**30:.1f}") for name, nbytes in fullest.lines.items()]
    head = f"memory of {'a GPU' if len(found.memory) == 1 else f'the {fullest.role}'}"
    return Table((head, "GiB"), [*rows, ("together", f"{fullest.gib:.1f}")], (head,))


def _of_lines(found: StepPrediction) -> Table:
    """The lines of a script at which the GPU waits for communication or copies the longest."""
    lost = sorted(
        ((row.exposed_s + row.copies_s, row) for row in found.lines), key=lambda one: -one[0] - one[1].waits_s
    )
    rows = [
        (row.line, duration(bare), duration(row.waits_s), f"{100 * (bare + row.waits_s) / found.seconds:.1f} %")
        for bare, row in lost
        if bare + row.waits_s >= 1e-3 * found.seconds
    ]
    heads = ("line of the script", "exposed", "waits for ranks", "share")
    return Table(heads, rows[:MOST_LINES], heads[:1], ("waits for ranks",))


def _collectives(found: StepPrediction) -> list[tuple[str, ...]]:
    """Returns the collectives, each kind once."""
    all_, stages = found.collectives, len(found.roles)
    return [*dict.fromkeys(
        (
            *(_place(one, all_, stages), one.name, one.ranks, f"{one.count:g}"),
            *(sized(round(one.bytes)), duration(one.seconds), _hides(one)),
        )
        for one in all_
    )]  # fmt: skip


def _of_collectives(found: StepPrediction) -> Table:
    heads = ("collectives of", "name", "ranks", "calls", "size", "one takes", "hides behind")
    left = ("collectives of", "name", "ranks", "hides behind")
    return Table(heads, _collectives(found)[:MOST], left, ("calls", "ranks", "hides behind"))


def _hides(one: CollectivePrice) -> str:
    """Says what a collective hides behind; of a recorded step, how much of its calls nothing hides."""
    if one.hides is not None:
        return HIDES[one.hides]
    exposed, together = one.exposed_s or 0.0, one.count * one.seconds
    if exposed >= ALL * together:
        return "nothing"
    return f"all but {duration(exposed)}" if exposed else "all"


def _place(one: CollectivePrice, all_: Sequence[CollectivePrice], stages: int) -> str:
    """Says where a collective is; stages that all make the same one are one place."""
    if one.pass_ == "once" and stages > 1:
        kinds = [(other.pass_, other.name, other.group, other.count, other.bytes, other.hides) for other in all_]
        if kinds.count((one.pass_, one.name, one.group, one.count, one.bytes, one.hides)) == stages:
            return "each stage, once"
    return one.of if one.of == one.pass_ else f"{one.of}, {one.pass_}"


SWEEP: Final = ("GPUs", "layout", "micro-batch", "recompute", "step", "90 % interval", "tokens/s/GPU", "GiB", "memory")


def _of_candidates(some: Sequence[StepPrediction], dollars: float | None) -> Table:
    rows = []
    for one in some:
        sizes = one.words.partition("  micro-batch ")[0]
        again = one.layout["recompute"] if isinstance(one.layout["recompute"], str) else "some"
        times = duration(one.seconds), duration(one.low_s, one.high_s), f"{one.tokens_per_second:,.0f}"
        layout = f"{one.gpus}", sizes.replace("  ", " "), str(one.layout["micro_batch"]), again
        price = () if dollars is None else (f"{one.dollars(dollars):,.0f}",)
        rows.append((*layout, *times, f"{one.memory_gib:.0f}", fit_words(one), *price))
    of_one_size = len({one.gpus for one in some}) == 1
    heads = SWEEP if dollars is None else (*SWEEP, "$/10^12 tokens")
    return Table(heads, rows, ("layout", "recompute", "memory"), (SWEEP[6], SWEEP[5], *SWEEP[:of_one_size]))


def _of_each_size(some: Sequence[StepPrediction]) -> list[StepPrediction]:
    """Returns the first layouts of each number of GPUs, up to the number that is shown."""
    sizes = sorted({one.gpus for one in some})
    most = max(1, MOST // max(1, len(sizes)))
    return [one for size in sizes for one in [each for each in some if each.gpus == size][:most]]


def of_sweep(found: Sweep, title: str, dollars: float | None) -> Iterator[Block]:
    """Yields the best layouts of each number of GPUs, and the layouts that no other beats in time, memory and GPUs."""
    fitting = [one for one in found.candidates if one.fit != "too_large"]
    yield Line("", f"{title}: {counted(len(found.candidates), 'layout')} priced, {len(fitting)} fit or may fit")
    if not found.candidates:
        yield Line("", "no layout keeps the rules with what is given: leave one of tp, pp, vp, cp, ep open")
        return
    alike = [{one.layout[word] for one in found.candidates} for word in ("zero", "schedule", "dtype")]
    layout = found.candidates[0].layout
    recipe = [(word.replace("_", " "), layout[word]) for word in RECIPE if word in layout]
    words = [word if value is True else f"{word} {value}" for word, value in recipe]
    fixed = ", ".join([*(str(one) for values in alike if len(values) == 1 for one in values), *words])
    yield Line("fixed", f"ZeRO {fixed}: sweep again with --zero {1 if fixed.startswith('3') else 3}")
    if not fitting:
        yield Line("", "layouts that need the least memory:")
    best = found.candidates if fitting else sorted(found.candidates, key=lambda one: one.memory_gib)
    yield _of_candidates(_of_each_size(best), dollars)
    if len(front := found.pareto) > 1:
        yield from (None, Line("", "no other layout is better in time, memory and GPUs at once"))
        yield _of_candidates(_of_each_size(front), dollars)
    for reason in best[0].extrapolated:
        yield Line("accuracy", f"extrapolated: {reason}; the intervals are wider")
    for rule, count in list(found.refused.items())[:3]:
        yield Line("refused", f"{counted(count, 'layout')}: {rule}")
