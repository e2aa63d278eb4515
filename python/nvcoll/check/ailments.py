"""Ailments: which damaged machine would print the times of the logs that are not healthy.

An ailment is a machine that has lost something (``Fabric.damaged``), a setting of NCCL, or another launch. It is
predicted like any machine, with the settings of the log. Its distance from a log is the root mean square of
log(measured / predicted time) over the sizes that decide. One machine must explain all logs::

    weight = how common it is x exp(-(sum over logs of distance^2) / TOLERANCE^2 / 2), x 20 if a log names it
    odds   = weight / sum of weights, with "something else" at the distance OTHER from each log

An ailment that a log names is at most at the distance OTHER: another one may have come to it.

Causes with the same rates, as half of the cards or bonded cards, are one class: its members are named together, with
a command that distinguishes them. A cause whose rate follows from no mechanism, as congestion, has no machine: it has
the distance OTHER, counts only if a log names it, and no more than a cause that is at most as far. An ailment is left
out if it changes no time by `CHANGES`, or if a fact of the log excludes it. The table is `ailments.toml`. How common a
class is was counted in the threads of data/nccl-logs; the tolerances are chosen. On two nodes, all_reduce without NVLS
and with half of the network take about the same time: a log of all_reduce alone cannot distinguish them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, groupby
from math import exp, inf, log, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nvcoll._nvcoll import Fabric, InvalidArgument
from nvcoll.check.log import Log
from nvcoll.check.row import Row

if TYPE_CHECKING:
    from nvcoll._nvcoll import Prediction, _Launch
    from nvcoll.check.tool import Expected

TOLERANCE, OTHER = 0.2, 0.5
"""The error of predictions of damaged machines, and the distance of causes that no machine stands for."""

COMMON_OTHER, LEAST_ODDS = 5, 0.05
"""How common other causes are, and the least odds of an ailment that is named. Chosen."""

NAMED, SEEN = 20.0, 5.0
"""The factor of an ailment that a line of a log names, and once more if NCCL saw it: a setting may be of no use."""

SHOWN = 3
"""The most ailments that are named. Chosen."""

CHANGES = 1.05
"""How much longer the largest call of a log takes at least with an ailment. Chosen."""

SAME = 1.03
"""Ailments of one class whose busbw differs less are one suspect. Chosen."""

BUSBW_FALLS = "busbw=falls"
"""The evidence, beside settings and facts, that busbw falls while sizes grow."""

TIME_FALLS = "time=falls"
"""The evidence that a larger size takes less time."""

UNNAMED = "(?!)"
"""The pattern that matches no line."""


@dataclass(frozen=True)
class Ailment:
    """A class of causes with the same rates."""

    key: str
    """Its short name; members of a family, as algorithms that are forced, share it."""
    name: str
    confirm: str
    """The command to run next."""
    common: float = 1.0
    prints: str = ""
    """What the command prints with this ailment, and without it."""
    thread: str = ""
    """The address of a public thread about it; empty if none is known."""
    lost: str = ""
    """What the machine has lost, as of `Fabric.damaged`, with the next three."""
    part: int = 1
    of_all: bool = True
    gbit: float = 100.0
    settings: Mapping[str, str | int] = field(default_factory=dict)
    launch: _Launch | None = None
    """The launch, where a log does not show its own."""
    named_by: str = UNNAMED
    """Matches a setting or a fact of the log that names this ailment, as of `Log.evidence`."""
    denied_by: str = UNNAMED
    """Matches a fact that excludes it."""
    is_hidden: bool = False
    """NCCL does not see the ailment, and chooses the algorithm as for the healthy machine."""

    @property
    def has_rates(self) -> bool:
        """Says whether its times are predicted."""
        return bool(self.lost or self.settings or self.launch)

    def damaged(self, fabric: Fabric) -> Fabric:
        """Returns the machine with the ailment.

        Raises:
            InvalidArgument: the machine cannot have it, as NVLS without a switch.
        """
        return fabric.damaged(self.lost, self.part, of_all=self.of_all, gbit=self.gbit) if self.lost else fabric

    def is_named_by(self, line: str) -> bool:
        """Says whether a setting or a fact names the ailment."""
        return re.match(self.named_by, line) is not None

    def is_named(self, case: Case) -> bool:
        """Says whether a line of a log names the ailment."""
        return any(map(self.is_named_by, case.evidence)) or (
            self.lost == "cards" and self._left(case) in case.log.cards[:1]
        )

    def _left(self, case: Case) -> float | None:
        """Returns the number of network cards that are left; None if the machine has none."""
        return case.fabric.cards and case.fabric.cards / self.part

    def is_denied(self, case: Case) -> bool:
        """Says whether a fact of a log excludes the ailment, and none names it: facts count more than settings."""
        facts = case.facts
        if self.lost == "cards" and case.log.numbers("cards"):
            return self._left(case) != case.log.cards[0]
        return any(re.match(self.denied_by, line) for line in facts) and not any(map(self.is_named_by, facts))


@dataclass(frozen=True)
class Case:
    """A log, its machine as it should be, and the sizes that decide, rising."""

    log: Log
    fabric: Fabric
    rows: Sequence[Row]
    evidence: Sequence[str]
    slow: Sequence[int] = ()
    """The sizes, in bytes, at which the log is slow, also of those that do not decide."""
    known: dict[tuple[str, ...], float] = field(default_factory=dict, repr=False)
    """The times that `without` has predicted."""

    @property
    def facts(self) -> list[str]:
        """The evidence that is no setting."""
        return [line for line in self.evidence if line[0].islower()]

    @cached_property
    def settings(self) -> dict[str, str | int]:
        """The settings of the log that predictions take."""
        taken: dict[str, str | int] = {}
        for name, value in self.log.settings.items():
            try:
                self.log.predicted(self.fabric, self.rows, {**taken, name: value})
            except InvalidArgument:
                continue
            taken[name] = value
        return taken

    @cached_property
    def healthy(self) -> Sequence[Prediction | Expected]:
        """The predictions of the machine as it should be, with the settings of the log."""
        return self.log.predicted(self.fabric, self.rows, self.settings)

    def unseen(self, machine: Fabric) -> Sequence[Prediction | Expected]:
        """Returns the predictions for another machine on which NCCL chooses the same as on the healthy one.

        Raises:
            InvalidArgument: as `Fabric.predict`.
        """
        if self.log.tool is not None:
            return self.log.predicted(machine, self.rows)
        found: list[Prediction] = []
        for (algorithm, protocol), alike in groupby(self.healthy, lambda one: (one.algorithm, one.protocol)):
            known = list(alike)
            is_free = algorithm == "SendRecv"
            found += machine.predict(
                known[0].collective,
                [one.nbytes for one in known],
                launch=known[0].launch,
                algorithm=None if is_free else algorithm,
                protocol=None if is_free else protocol,
                version=self.log.version,
                settings=self.settings,
            )
        return found

    def without(self, names: tuple[str, ...]) -> float:
        """Returns the predicted time of the largest size on the healthy machine without some settings of the log."""
        if names not in self.known:
            others = {name: value for name, value in self.settings.items() if name not in names}
            self.known[names] = self.log.predicted(self.fabric, self.rows[-1:], others)[0].time_us
        return self.known[names]

    def square(self, found: Sequence[Prediction | Expected]) -> float:
        """Returns the mean square of log(measured / predicted time), the square of the distance."""
        errors = [log(row.time_us / known.time_us) for row, known in zip(self.rows, found, strict=True)]
        return sum(error**2 for error in errors) / len(errors)


@dataclass(frozen=True)
class Suspect:
    """An ailment with its odds."""

    ailment: Ailment
    odds: float
    busbw: float | None
    """The busbw that is predicted at the largest size of the log, if it follows from a mechanism."""
    rates: Sequence[float] = ()
    """The same of all logs that it explains."""

    def of(self, nth: int) -> Suspect:
        """Returns the suspect as one of several logs has it."""
        return replace(self, busbw=self.rates[nth] if self.rates else None)


def _ailments(file: str) -> Iterator[Ailment]:
    table = tomllib.loads(Path(__file__).with_name(file).read_text(encoding="utf-8"))
    for row in table["ailment"]:
        for own in row.pop("variants", [{}]):
            yield Ailment(**{**row, **own})


AILMENTS = tuple(_ailments("ailments.toml"))
"""All ailments that a machine can have: the table `ailments.toml`."""

FAILURES = tuple(_ailments("failures.toml"))
"""Why runs fail, by the lines of a log that name it: the table `failures.toml`."""

TCP = tuple(one for one in AILMENTS if one.key == "tcp")
"""TCP instead of RDMA, at each of its rates."""

NO_MPI = next(one for one in AILMENTS if one.key == "no-mpi")


def _found(ailment: Ailment, case: Case) -> tuple[Sequence[Prediction | Expected], bool]:
    """Returns the predictions of a log's sizes with an ailment, and whether the largest call takes longer by it.

    Raises:
        InvalidArgument: the machine cannot have it, as NVLS without a switch; or the log shows its launch.
    """
    if ailment.launch is not None and case.log.launch is not None:
        raise InvalidArgument("the log shows its launch")
    taken, one = case.settings, replace(case.log, launch=ailment.launch or case.log.launch)
    machine = ailment.damaged(case.fabric)
    if ailment.is_hidden and machine != case.fabric:
        found = case.unseen(machine)
    else:
        found = one.predicted(machine, case.rows, {**taken, **ailment.settings})
    own = tuple(taken) if ailment.is_named(case) else tuple(name for name in taken if name in ailment.settings)
    plain_us = case.without(own)
    return found, found[-1].time_us >= CHANGES * plain_us


class _Weight(NamedTuple):
    """How likely an ailment is."""

    logarithm: float
    distance: float
    """The root mean square of its distances from the logs."""
    rates: Sequence[float]
    """The busbw at the largest size of each log."""


def _weighed(ailment: Ailment, cases: Sequence[Case]) -> _Weight | None:
    """Returns the weight of an ailment; None if it explains nothing."""
    is_named = any(ailment.is_named(case) for case in cases)
    rates: list[float] = []
    if any(ailment.is_denied(case) for case in cases):
        return None
    if not ailment.has_rates:
        squares, is_any = OTHER**2 * len(cases), is_named
    else:
        try:
            found = [_found(ailment, case) for case in cases]
        except InvalidArgument:
            return None
        squares = sum(case.square(known) for case, (known, _) in zip(cases, found, strict=True))
        is_any, rates = any(changes for _, changes in found), [known[-1].busbw for known, _ in found]
    distance = sqrt(squares / len(cases))
    if is_named:  # it is there; something else may be there as well
        squares = min(squares, OTHER**2 * len(cases))
    is_seen = ailment.has_rates and any(map(ailment.is_named_by, chain.from_iterable(case.facts for case in cases)))
    weight = (
        log(ailment.common) - squares / TOLERANCE**2 / 2 + log((NAMED if is_named else 1) * (SEEN if is_seen else 1))
    )
    return _Weight(weight, distance, rates) if is_any else None


def _nearest(weighed: Sequence[tuple[Ailment, _Weight]]) -> list[tuple[Ailment, _Weight]]:
    """Leaves out what the same lines name, as TCP at another rate, if it is far from the log and another one nearer."""
    nearest: dict[str, float] = {}
    for one, known in weighed:
        nearest[one.named_by] = min(known.distance, nearest.get(one.named_by, inf))
    nearest[UNNAMED] = inf
    return [(one, known) for one, known in weighed if known.distance <= max(OTHER, nearest[one.named_by])]


def suspects(cases: Sequence[Case], ailments: Sequence[Ailment] = AILMENTS) -> list[Suspect]:
    """Returns the ailments that most likely explain the logs of one machine, the first with the best odds."""
    weighed = _nearest([(one, known) for one in ailments if (known := _weighed(one, cases)) is not None])
    rest = log(COMMON_OTHER) - OTHER**2 * len(cases) / TOLERANCE**2 / 2
    most = max((known.logarithm for one, known in weighed if one.has_rates and known.distance <= OTHER), default=inf)
    weights = [known.logarithm if one.has_rates else min(known.logarithm, most) for one, known in weighed]
    best = max([rest, *weights])
    total = exp(rest - best) + sum(exp(weight - best) for weight in weights)
    likely: list[Suspect] = []
    for (one, known), weight in zip(weighed, weights, strict=True):
        odds = exp(weight - best) / total
        alike = [nth for nth, other in enumerate(likely) if _is_alike(other, one, known.rates)]
        if alike:
            likely[alike[0]] = _together(likely[alike[0]], one, odds)
        else:
            likely.append(Suspect(_in_cards(one, cases[0].fabric), odds, None, known.rates).of(0))
    return sorted((one for one in likely if one.odds > LEAST_ODDS), key=lambda one: -one.odds)[:SHOWN]


def _in_cards(ailment: Ailment, fabric: Fabric) -> Ailment:
    """Returns an ailment of cards with their number on a machine in its name, as ``1 of 2 cards``."""
    if ailment.lost != "cards" or not fabric.cards or fabric.cards % ailment.part:
        return ailment
    of_all = f" ({fabric.cards // ailment.part} of {fabric.cards} cards):"
    return replace(ailment, name=ailment.name.replace(":", of_all, 1))


def named(case: Case) -> Iterator[tuple[Ailment, str]]:
    """Yields the ailments that a line of a log names and that make its calls longer, each with the line."""
    for one in AILMENTS:
        line = next(filter(one.is_named_by, case.evidence), None)
        if line is not None and one.has_rates and _weighed(one, [case]) is not None:
            yield one, line


def _is_alike(known: Suspect, other: Ailment, rates: Sequence[float]) -> bool:
    """Says whether two ailments are of one class and have the same rates."""
    if known.ailment.key != other.key or not rates or len(known.rates) != len(rates):
        return False
    return all(abs(log(one / same)) < log(SAME) for one, same in zip(known.rates, rates, strict=True))


def _together(known: Suspect, other: Ailment, odds: float) -> Suspect:
    """Returns a suspect with the causes and the odds of another one with the same rates."""
    name = f"{known.ailment.name}, {other.name.split(': ', 1)[-1]}"
    return replace(known, ailment=replace(known.ailment, name=name), odds=known.odds + odds)


def named_alone(evidence: Sequence[str], ailments: Sequence[Ailment] = AILMENTS) -> list[Suspect]:
    """Returns the ailments that lines of a log name, if no time of it can be predicted."""
    lines = [line for line in evidence if not line.startswith("nvls_channels")]  # most machines have none
    told = [one for one in ailments if any(map(one.is_named_by, lines))]
    total = COMMON_OTHER + sum(one.common * (NAMED if one in told else 1) for one in ailments)
    found = [Suspect(one, NAMED * one.common / total, None) for one in told]
    return sorted(found, key=lambda one: -one.odds)[:SHOWN]
