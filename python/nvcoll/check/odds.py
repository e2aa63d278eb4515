"""Which machine logs are of: the odds of each candidate, and the verdict by those that are likely.

One machine explains all logs of a command. Its odds are::

    how common it is x product over logs of (part of healthy logs x healthy + part of sick logs x sick)

``healthy`` is a normal density of log(measured / predicted busbw), as wide as the interval of the prediction; ``sick``
falls from 1 on, on one node faster than over several, with peaks where the commonest ailments lie: half and a quarter
of a network, and NVLS that is off. So a rate that one machine explains speaks for it, and a machine that cannot be so
fast is out. The verdict is that of the likeliest machine, if the likely ones agree; else there is none, and each
machine is named with what the log is worth on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from math import exp, inf, pi, prod, sqrt
from math import log as ln
from statistics import median

from nvcoll._nvcoll import Fabric, InvalidArgument, Prediction, gpus_called, networks
from nvcoll.check.ailments import TCP, Case, named_alone
from nvcoll.check.candidates import Candidate, fitting, models, names
from nvcoll.check.log import Log, factor
from nvcoll.check.row import Row
from nvcoll.check.tool import Expected
from nvcoll.check.verdict import CANNOT_TELL, HEALTHY, SICK, SUSPICIOUS, OnMachine, Verdict, decides_from, examined

SICK_LOGS, FALL_OF_ONE, FALL = 0.4, 0.7, 1.5
"""The part of logs that are sick, and how far below the prediction their rates lie, on one node and on several: mean
logarithms. Chosen."""

LEAST_SIGMA = 0.04
"""The least spread of the rates of healthy machines, as a logarithm. Chosen."""

COMMONEST = 0.4
"""The part of sick logs whose rates are those of the commonest ailments. Chosen."""

SET = 0.8
"""The part of logs whose rates are those that their settings leave. Chosen."""

JUDGED_MACHINES, RANKS, ROUGH, LEAST_ROUGH = 12, 2048, 0.35, 0.01
"""The most machines that are predicted, and the most ranks of all together, at least `SHOWN` machines; the error of the
rough rate by which they are chosen, as a logarithm; how likely one is by it at least, as a part of the likeliest."""

SHOWN, LEAST_SHOWN, LEAST_ODDS = 3, 0.08, 0.005
"""The most machines that are shown, the least odds of one, and of one that is judged. Chosen."""

TELLS_APART = ", or put the output of `nvidia-smi -L; nvidia-smi topo -m` into the log"
"""What a log without names of GPUs lacks."""

SAME_SHARE = 0.04
"""Machines on which a log reaches shares that differ less, with one verdict, are one answer. Chosen."""

HEALTHY_FROM, SUSPICIOUS_FROM, SICK_FROM = 0.7, 0.8, 0.9
"""The odds of the machines that agree, from which there is each verdict. Chosen."""


@dataclass(frozen=True)
class Found:
    """A candidate with its odds."""

    candidate: Candidate
    odds: float
    whole: Log
    """What all logs say of the machine together."""

    def of(self, log: Log) -> Fabric:
        """Returns the machine of a log; of a tool that ran on some of the GPUs, that of the others.

        Raises:
            InvalidArgument: as `Candidate.of`.
        """
        return self.candidate.of(self.whole if log.ranks and _is_of_some(log) else log)


def _deciding(log: Log) -> list[Row]:
    """Returns the rows by which a log is judged."""
    decide = 0 if log.tool is not None else decides_from([row.nbytes for row in log.rows])
    return [row for row in log.rows if row.nbytes >= decide]


def _likelihood(log: Log, machine: Fabric) -> float:
    """Returns how likely the rates of a log are on a machine, whether that is healthy or not.

    Raises:
        InvalidArgument: as `Fabric.predict`.
    """
    rows = _deciding(log)
    if not rows:
        return 1.0
    known = log.predicted(machine, rows)
    share = median(ln(one.time_us / row.time_us) for row, one in zip(rows, known, strict=True))
    sigma = max(median(ln(one.high_us / one.low_us) for one in known) / 3.29, LEAST_SIGMA)
    below = _below(share, LEAST_SIGMA, machine.nodes)
    peaks = [_normal(share - ailing, sigma) for ailing in _ailing(log, machine, rows[-1], known[-1])]
    sick = (1 - COMMONEST) * below + COMMONEST * sum(peaks) / len(peaks) if peaks else below
    either = (1 - SICK_LOGS) * _normal(share, sigma) + SICK_LOGS * sick
    slower = _by_settings(log, machine, rows, known[-1])
    return either if slower is None else (1 - SET) * either + SET * _normal(share - slower, sigma)


def _normal(error: float, sigma: float) -> float:
    return exp(-((error / sigma) ** 2) / 2) / sigma / sqrt(2 * pi)


def _below(share: float, sigma: float, nodes: int) -> float:
    """Returns the density of what sick machines reach of the prediction."""
    fall = FALL if nodes > 1 else FALL_OF_ONE
    return (exp(share / fall) if share < 0 else exp(-((share / sigma) ** 2) / 2)) / fall


def _by_settings(log: Log, machine: Fabric, rows: Sequence[Row], healthy: Prediction | Expected) -> float | None:
    """Returns the share, as a logarithm, that the settings of a log leave; None if they change nothing."""
    if not log.settings or log.tool is not None:
        return None
    found = log.predicted(machine, rows[-1:], Case(log, machine, rows[-1:], ()).settings)
    share = ln(healthy.time_us / found[0].time_us)
    return share if abs(share) > LEAST_SIGMA else None


def _ailing(log: Log, machine: Fabric, row: Row, healthy: Prediction | Expected) -> list[float]:
    """Returns the shares, as logarithms, that a log has with the commonest ailments of its machine."""
    if machine.nodes > 1:  # one card has half of its rate, or a node a quarter of its cards
        rates = [-ln(2)] if _is_of_some(log) else [-ln(2), -ln(4)]
        told = [one for one in TCP if log.tool is None and any(map(one.is_named_by, log.evidence))]
        slow = [log.predicted(one.damaged(machine), [row])[0] for one in told]
        return [*rates, *(ln(healthy.time_us / one.time_us) for one in slow)]
    if log.tool is not None or not (healthy.algorithm or "").startswith("NVLS"):
        return []
    without = log.predicted(machine, [row], {"NCCL_NVLS_ENABLE": 0})
    return [ln(healthy.time_us / without[0].time_us)]


def _screened(log: Log, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Returns the candidates whose rough rate fits a log best: that of one board, or of the cards of a node if less."""
    most = max(SHOWN, min(JUDGED_MACHINES, RANKS // (log.ranks or 2)))
    if len(candidates) <= most:
        return [*candidates]
    rows = _deciding(log)
    row = rows[-1] if rows else log.rows[-1]
    scale = 1.0 if log.tool is not None else factor(log.collective or "", log.ranks or 2)
    gbps = {one.name: one.gbps for one in networks()}
    alone: dict[str, float] = {}
    weighed = []
    for one in candidates:
        board, nodes = one.board.name, 1 if one.network is None else 2
        if board not in alone:
            alone[board] = _rate(log, one, row)
        rate = min(alone[board], gbps[one.network] if one.network else inf)
        share = ln(row.nbytes * scale / row.time_us / 1e3 / rate) if rate < inf else 0.0
        weighed.append((one.common * (_normal(share, ROUGH) + _below(share, ROUGH, nodes)), one))
    likely = max(weight for weight, _ in weighed) * LEAST_ROUGH
    return [one for weight, one in sorted(weighed, key=lambda each: -each[0])[:most] if weight >= likely]


def _rate(log: Log, one: Candidate, row: Row) -> float:
    """Returns the busbw of a row on one board; infinity if it is no question of a board."""
    try:
        board = one.of(log) if one.network is None else one.board
        return inf if board.world_size == 1 else log.predicted(board, [row])[0].busbw
    except InvalidArgument:  # the tool measures the network
        return inf


def _is_of_some(log: Log) -> bool:
    """Says whether a log is of a tool that does not run on all GPUs of its machine."""
    return log.tool is not None and (log.ranks is None or log.tool.is_of_some)


def is_read(log: Log) -> bool:
    """Says whether a log tells enough to look for its machine."""
    has_ranks = (log.ranks or 0) > 1 or _is_of_some(log)
    return bool(log.rows and log.collective and has_ranks and log.jobs == 1 and log.unlike is None)


def _together(logs: Sequence[Log]) -> Log:
    """Returns the log with the most ranks, with what the others say of the same machine."""
    gpus = next((one.gpus for one in logs if any(one.gpus)), ())
    facts: dict[str, list[str]] = {}
    for name, values in ((name, values) for one in logs for name, values in one.facts.items()):
        facts.setdefault(name, []).extend(values)
    last = max(logs, key=lambda one: (one.ranks or 0, len(set(one.hosts))))
    facts |= {name: [*values] for name, values in last.facts.items()}
    return replace(last, gpus=last.gpus if any(last.gpus) else gpus, facts=facts)


def of_each(logs: Sequence[Log]) -> list[list[Found]]:
    """Returns the machines that each log may be of: one machine for all, but logs that name other GPUs are of another.

    Args:
        logs: the logs of one command.
    """
    named = [frozenset(row.name for row in models(log)) for log in logs]
    first = next(filter(None, named), frozenset())
    called = [name or first for name in named]
    groups = {each: found([log for log, name in zip(logs, called, strict=True) if name == each]) for each in {*called}}
    return [groups[name] for name in called]


def found(logs: Sequence[Log]) -> list[Found]:
    """Returns the machines that logs of one machine may be of, the likeliest first; none if no log tells enough."""
    told = [one for one in logs if is_read(one)]
    if not told:
        return []
    weighed: list[tuple[Candidate, float]] = []
    whole = _together(told)
    for one in _screened(whole, [*fitting(whole, any(log.ranks is None for log in told))]):
        with suppress(InvalidArgument):  # the machine does not have so many ranks
            weighed.append((one, one.common * prod(_likelihood(log, Found(one, 1, whole).of(log)) for log in told)))
    total = sum(weight for _, weight in weighed) or inf
    return sorted((Found(one, weight / total, whole) for one, weight in weighed), key=lambda one: -one.odds)


def _lacks(log: Log) -> str:
    """Returns why no machine was looked for, or none fits, and what to pass."""
    if not log.gpus and log.ranks is None:
        return "the log shows neither its GPUs nor its number of ranks: pass --on"
    for one in islice(fitting(log), 1):
        try:
            _likelihood(log, one.of(log))
        except InvalidArgument as error:  # as of a release of NCCL that is not known
            return str(error)
    gpus = names(log)
    what = f"`{gpus[0]}`" if gpus else "GPUs without a name"
    ranks = log.ranks or "these"
    return (
        f"no machine that is shipped has {ranks} ranks of {what}: pass --on with a file; nvcoll fabric lists machines"
    )


def _class(verdict: str) -> str:
    return SICK if verdict == SUSPICIOUS else verdict


def _is_same(one: Verdict, other: Verdict) -> bool:
    """Says whether a log is worth the same on two machines."""
    return _class(one.verdict) == _class(other.verdict) and abs((one.share or 0) - (other.share or 0)) < SAME_SHARE


def _likely(
    log: Log, machines: Sequence[Found], require: float | None, beside: Mapping[int, float] | None
) -> list[tuple[float, Verdict]]:
    """Returns the verdicts on a log on the machines that it may be of, each with its odds; equal ones are one."""
    likely: list[tuple[float, Verdict]] = []
    for one in machines:
        if one.odds >= LEAST_ODDS or not likely:
            found = _over_ethernet(examined(log, one.of(log), require, None, beside), one.candidate.board)
            same = next((nth for nth, (_, known) in enumerate(likely) if _is_same(known, found)), None)
            if same is None:
                likely.append((one.odds, found))
            else:
                likely[same] = likely[same][0] + one.odds, likely[same][1]
    return likely


def _over_ethernet(found: Verdict, board: Fabric) -> Verdict:
    """Returns a verdict on a machine whose network is Ethernet; nobody named that, so TCP may be the fault.

    It is one for boards that are sold with RDMA cards, and where the log names a cause of it.
    """
    if "+ethernet" not in (found.machine or ""):
        return found
    suspects = named_alone(found.log.evidence, TCP)
    if found.verdict != HEALTHY and not suspects:
        return found
    healthy = SUSPICIOUS if suspects or board.gpu_model.board else CANNOT_TELL
    verdict = healthy if found.verdict == HEALTHY else found.verdict
    reasons = [*found.reasons, "this is TCP: right only without RDMA cards"]
    case = found.case if verdict != CANNOT_TELL and not suspects else None
    return replace(found, verdict=verdict, reasons=reasons, suspects=suspects, case=case)


def judged(
    log: Log, machines: Sequence[Found], require: float | None, beside: Mapping[int, float] | None = None
) -> Verdict:
    """Returns the verdict on a log by the machines that it may be of, without its ailments.

    Args:
        log: the log.
        machines: as of `found`.
        require: as of `examined`.
        beside: the baseline, as of `examined`.
    """
    try:
        likely = _likely(log, machines, require, beside)
    except InvalidArgument as error:  # of other nodes than the logs beside it
        return examined(log, None, require, f"{error}: pass --on", beside)
    if not likely:
        return examined(log, None, require, _lacks(log), beside)
    ranked = sorted(likely, key=lambda one: -one[0])
    best = ranked[0][1]
    if best.share is None:
        return best
    is_named = bool(models(log))
    of_all = sum(odds for odds, _ in likely) or 1.0
    part = sum(odds for odds, one in likely if _class(one.verdict) == _class(best.verdict)) / of_all
    sick = sum(odds for odds, one in likely if one.verdict == SICK)
    is_sick = log.is_broken or (is_named and sick >= SICK_FROM * of_all)
    verdict = _supported(best.verdict, part, is_sick)
    several = [
        OnMachine(one.machine or "", odds, one.verdict, one.share)
        for odds, one in ranked[:SHOWN]
        if odds >= LEAST_SHOWN or one is best
    ]
    reasons = [*best.reasons, *_doubts(log, several)]
    shown = several if len(several) > 1 or not is_named else ()
    found = replace(best, verdict=verdict, reasons=reasons, machines=shown)
    if verdict == CANNOT_TELL and best.verdict != CANNOT_TELL:  # ailments of which machine? those that the log names
        return replace(found, case=None, suspects=named_alone(log.evidence))
    return found


def _doubts(log: Log, several: Sequence[OnMachine]) -> Iterator[str]:
    """Yields why the machine of a log is not certain."""
    gpus = names(log)
    if len(several) > 1:
        yield f"several machines fit what the log says: pass --on{'' if models(log) else TELLS_APART}"
    if len({tuple(row.name for row in gpus_called(gpu)) for gpu in gpus}) > 1:
        yield f"the log has different GPUs ({', '.join(gpus)}): compared with machines of one kind"


def _supported(verdict: str, part: float, is_sick: bool) -> str:
    """Returns the verdict that some odds of the machines support."""
    if verdict in (SICK, SUSPICIOUS):
        return SICK if is_sick and verdict == SICK else SUSPICIOUS if part >= SUSPICIOUS_FROM else CANNOT_TELL
    return verdict if part >= HEALTHY_FROM else CANNOT_TELL
