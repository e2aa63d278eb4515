"""The verdict on a log: each row beside its prediction, and the log against itself.

::

    sick         a run that failed; wrong results; a build without MPI; times above the interval at most large sizes,
                 which settings in the log do not explain, and below half of a prediction that is not validated; busbw
                 falls below half of what a smaller size reached; less than 0.8 of the baseline
    suspicious   less than 0.8 of the prediction, inside the interval; a line of the log names an ailment that costs
                 time; busbw falls below 0.8 of a smaller size's; a size takes 1.3 times the time of a larger one; a log
                 far below another log of the same command; less than 0.95 of the baseline
    healthy      none of these
    cannot tell  no row of 1 MiB or more, neither machine nor baseline, times that no prediction is for, or times that
                 this machine cannot reach, or of groups of ranks that share cards

Large sizes decide, from 64 MiB on, or from 1 MiB on if the log has none: small ones depend on launch and processor.
From 64 KiB on they are compared with a baseline and with the time of larger sizes. Inside of an interval that is wider
than a factor of 2, half of the prediction is the limit, and outside of it only less than half is sick.
`require` takes the place of interval and limits: below it a log is sick. Where busbw is predicted to fall, it may. A
log that is faster than its machine can be is of another one. All thresholds are chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from statistics import median
from typing import NamedTuple

from nvcoll._nvcoll import Fabric, InvalidArgument, Prediction
from nvcoll.check.ailments import (
    AILMENTS,
    BUSBW_FALLS,
    FAILURES,
    NO_MPI,
    TIME_FALLS,
    Case,
    Suspect,
    named,
    named_alone,
    suspects,
)
from nvcoll.check.baseline import SICK_OF_BASELINE, SUSPECT_OF_BASELINE
from nvcoll.check.log import Log, factor
from nvcoll.check.machine import of_log
from nvcoll.check.regressions import of_version
from nvcoll.check.row import Row
from nvcoll.check.tool import Expected
from nvcoll.text.formatting import counted, sized

HEALTHY, SUSPICIOUS, SICK, CANNOT_TELL = "healthy", "suspicious", "sick", "cannot tell"

LARGE, JUDGED, COMPARED = 64 << 20, 1 << 20, 64 << 10
"""Bytes from which sizes are large, from which predictions judge them, and from which they are compared at all."""

SUSPECT_SHARE = 0.8
"""The least share of the predicted busbw of logs that are not suspicious."""

NOT_VALIDATED, SICK_SHARE = "not validated", 0.5
"""The accuracy of predictions for which only less than this share is sick."""

WIDE = 2.0
"""The quotient of the ends of an interval above which it tells little."""

FASTEST_SHARE, IMPOSSIBLE_SHARE = 1.25, 2.0
"""The shares of the predicted busbw above which a log is of another machine: outside the interval, and anywhere."""

SLOWER = 1.3
"""A size that takes this much longer than a larger one is slow. Healthy public logs have at most 1.2."""

SUSPECT_FALL, SICK_FALL = 0.8, 0.5
"""The least shares of the best busbw of smaller sizes of logs that are not suspicious, and not sick."""

SUSPECT_AMONG = 0.7
"""The least share of a log as a part of the best share of the other logs."""

ASK_FROM = 0.95
"""The share of the predicted busbw from which no ailment is asked for."""


@dataclass(frozen=True)
class Judged:
    """A row beside its prediction."""

    row: Row
    busbw: float
    prediction: Prediction | Expected | None
    baseline_us: float | None = None

    @property
    def of_baseline(self) -> float | None:
        """Measured busbw as a part of the baseline's."""
        return self.baseline_us / self.row.time_us if self.baseline_us else None

    @property
    def share(self) -> float | None:
        """Measured busbw as a part of the predicted."""
        return self.prediction.time_us / self.row.time_us if self.prediction else None

    @property
    def is_low(self) -> bool:
        """Says whether the time is above the interval, or busbw far below the prediction or the baseline."""
        low = [
            self.share is not None and self.row.nbytes >= JUDGED and self.share < SUSPECT_SHARE,
            self.of_baseline is not None and self.of_baseline < SICK_OF_BASELINE,
        ]
        return self.is_slow or any(low)

    @property
    def is_fast(self) -> bool:
        """Says whether the time is below the interval."""
        return self.prediction is not None and self.row.time_us < self.prediction.low_us

    @property
    def is_slow(self) -> bool:
        """Says whether the time is above the interval."""
        return self.prediction is not None and self.row.time_us > self.prediction.high_us


class OnMachine(NamedTuple):
    """What a log is worth on one of the machines that it may be of."""

    machine: str
    odds: float
    verdict: str
    share: float | None


@dataclass(frozen=True)
class Verdict:
    """The verdict on one log, with its reasons."""

    log: Log
    machine: str | None
    rows: Sequence[Judged]
    verdict: str
    reasons: Sequence[str]
    share: float | None = None
    """Median share of the sizes that decide."""
    of_baseline: float | None = None
    """The same of the baseline's busbw."""
    trust: str | None = None
    """The accuracy of the predictions of these sizes."""
    suspects: Sequence[Suspect] = ()
    """The ailments that would explain the times, the likeliest first."""
    machines: Sequence[OnMachine] = ()
    """The machines that the log may be of, the likeliest first, if nobody named one and they differ."""
    case: Case | None = field(default=None, repr=False, compare=False)
    """What ailments are asked about; None without predictions."""


def _in_words(share: float) -> str:
    return f"{100 * share:.0f} % of"


def decides_from(sizes: Sequence[int], least: int = JUDGED) -> int:
    """Returns the size in bytes from which sizes decide: that of large ones, or else 1 MiB or `least`."""
    return next((size for size in (LARGE, JUDGED) if max(sizes, default=0) >= size), least)


def _deciding(rows: Sequence[Judged], least: int = JUDGED) -> list[Judged]:
    """Returns the rows by whose share a log is judged: the large ones, or else those from 1 MiB or `least` on.

    Of another tool than nccl-tests, they are all.
    """
    if any(isinstance(one.prediction, Expected) for one in rows):
        return [one for one in rows if one.prediction is not None]
    decide = decides_from([one.row.nbytes for one in rows], least)
    return [one for one in rows if one.row.nbytes >= decide]


def _wide(deciding: Sequence[Judged]) -> str | None:
    """Returns the interval of busbw of the largest size in words, if it is too wide to tell much; None for a tool."""
    one = deciding[-1].prediction if deciding else None
    if one is None or isinstance(one, Expected) or one.high_us <= WIDE * one.low_us:
        return None
    low, high = (one.busbw * one.time_us / time for time in (one.high_us, one.low_us))
    return f"{low:.0f}-{high:.0f} GB/s"


def _by_prediction(deciding: Sequence[Judged], require: float | None) -> Iterator[tuple[str, str]]:
    """Yields what is wrong with a log by the predictions of the rows that decide: verdict and reason."""
    shares = [one.share for one in deciding if one.share is not None]
    if not shares:
        return
    share, slow = median(shares), sum(one.is_slow for one in deciding)
    trusts = {one.prediction.trust for one in deciding if one.prediction is not None}
    is_wide = _wide(deciding) is not None
    of_sizes = f"{counted(len(deciding), 'size')} from {sized(deciding[0].row.nbytes)}"
    reached = f"the log reaches {_in_words(share)} the predicted busbw ({of_sizes})"
    if require is not None:
        if share < require:
            yield SICK, f"{reached}, --require asks for {100 * require:.0f} %"
    elif 2 * slow > len(deciding):
        is_known = share < SICK_SHARE or (trusts != {NOT_VALIDATED} and not is_wide)
        yield SICK if is_known else SUSPICIOUS, f"{reached}; {slow} of them outside the 90 % interval"
    elif share < (SICK_SHARE if is_wide else SUSPECT_SHARE):
        yield SUSPICIOUS, f"{reached}; the 90 % interval includes it"
    is_outside = share > FASTEST_SHARE and 2 * sum(one.is_fast for one in deciding) > len(deciding)
    if is_outside or share > IMPOSSIBLE_SHARE:
        yield CANNOT_TELL, f"{reached}: faster than this machine can be: the log is of another one"


def _by_baseline(deciding: Sequence[Judged], share: float, require: float | None) -> tuple[str | None, str]:
    """Returns what a share of the baseline says of a log: verdict, None if it is right, and reason."""
    suspect, sick = (SUSPECT_OF_BASELINE, SICK_OF_BASELINE) if require is None else (require, require)
    of_sizes = f"{counted(len(deciding), 'size')} from {sized(deciding[0].row.nbytes)}"
    asked = f", --require asks for {100 * require:.0f} %" if require and share < require else ""
    verdict = SICK if share < sick else SUSPICIOUS if share < suspect else None
    return verdict, f"the log reaches {_in_words(share)} the baseline's busbw ({of_sizes}){asked}"


def _small_of_baseline(rows: Sequence[Judged]) -> Iterator[tuple[str, str]]:
    """Yields the sizes below the large ones that are far below the baseline, if they are several."""
    small = [one for one in rows if one.of_baseline is not None and COMPARED <= one.row.nbytes < LARGE]
    slow = [one for one in small if (one.of_baseline or 0) < SICK_OF_BASELINE]
    if len(slow) > max(1, len(small) // 4):
        sizes = f"{sized(slow[0].row.nbytes)} to {sized(slow[-1].row.nbytes)}"
        what = f"{len(slow)} of {counted(len(small), 'size')} below {sized(LARGE)}"
        yield SUSPICIOUS, f"{what} have less than {100 * SICK_OF_BASELINE:.0f} % of the baseline's busbw ({sizes})"


def _part(one: Judged, best: Judged) -> float:
    """Returns the busbw of a row as a part of another's; a fall that is predicted does not count."""
    predicted = 1.0
    if one.prediction is not None and best.prediction is not None:
        predicted = min(one.prediction.busbw / best.prediction.busbw, 1.0)
    return one.busbw / best.busbw / predicted


def _by_itself(rows: Sequence[Judged]) -> Iterator[tuple[str, str]]:
    """Yields where busbw falls while sizes grow, and is not predicted to fall: the worst size."""
    best: Judged | None = None
    worst: tuple[float, Judged, Judged] | None = None
    for one in rows:
        if one.row.nbytes < JUDGED:
            continue
        is_larger = best is not None and one.row.nbytes > best.row.nbytes
        if best is not None and is_larger and (worst is None or _part(one, best) < worst[0]):
            worst = _part(one, best), best, one
        if best is None or one.busbw > best.busbw:
            best = one
    if worst is not None and worst[0] < SUSPECT_FALL:
        part, higher, lower = worst
        yield (
            SICK if part < SICK_FALL else SUSPICIOUS,
            f"busbw falls from {higher.busbw:.1f} GB/s at {sized(higher.row.nbytes)} to {lower.busbw:.1f} GB/s at "
            f"{sized(lower.row.nbytes)}: congestion, loss or heat do this",
        )


def _slower_than_larger(rows: Sequence[Judged]) -> list[tuple[Judged, Judged]]:
    """Returns the sizes that take longer than a larger one, each with the fastest larger one."""
    found, fastest = [], None
    for one in reversed([one for one in rows if one.row.nbytes >= COMPARED]):
        if fastest is not None and one.row.time_us > SLOWER * fastest.row.time_us:
            found.append((one, fastest))
        if fastest is None or one.row.time_us < fastest.row.time_us:
            fastest = one
    return found[::-1]


def _by_larger(rows: Sequence[Judged], slower: Sequence[tuple[Judged, Judged]]) -> Iterator[tuple[str | None, str]]:
    """Yields the worst size that takes longer than a larger one; suspicious if a third of the sizes do."""
    if slower:
        one, other = max(slower, key=lambda pair: pair[0].row.time_us / pair[1].row.time_us)
        times = [f"{sized(each.row.nbytes)} takes {each.row.time_us:.0f} us" for each in (one, other)]
        is_many = 3 * len(slower) >= sum(each.row.nbytes >= COMPARED for each in rows)
        what = f"{', '.join(times)}: a protocol or an algorithm is used for sizes that it is slow for"
        yield SUSPICIOUS if is_many else None, what


def _by_header(log: Log) -> Iterator[tuple[str, str]]:
    """Yields verdicts from the header and the footer, without any time."""
    if log.wrong_results:
        yield SICK, "the benchmark found wrong results"
    warned = (line for line in log.evidence if any(one.is_named_by(line) for one in FAILURES))
    last = next(warned, "").partition("=")[2] if not log.rows and not log.rates else ""
    if failed := next(iter(log.facts.get("failure", ())), last):
        yield SICK, f"the run failed: `{failed}`"
    if log.jobs > 1:
        what = counted(log.jobs, "job") + (f" of {counted(log.ranks, 'rank')}" if log.ranks else "")
        yield SICK, f"{what} printed into one table: a build without MPI (make clean; make MPI=1), or mixed logs"


def _why_not(log: Log, fabric: Fabric | None) -> str | None:
    """Returns why no prediction is for a log."""
    if not log.rows and not log.rates:
        begun = (
            ": the run hangs, or has ended before its first size"
            if (log.launch or log.gpus) and not log.malformed
            else ""
        )
        return log.unlike or f"the log has no row of a table{begun}"
    most = fabric.world_size if fabric else log.ranks or 0
    if log.tool is not None and (log.unlike or log.ranks is None or (log.tool.is_of_some and log.ranks <= most)):
        return log.unlike
    if log.ranks == 1:
        return "the benchmark ran on one rank: nothing is sent (several ranks need a build with MPI, or -g)"
    if log.collective is None:
        return "the log does not name its collective: pass --collective"
    if log.ranks is None:
        return "the log does not show its number of ranks, in a header or by busbw / algbw: pass --on"
    if fabric is not None and fabric.world_size != log.ranks:
        return f"the log has {counted(log.ranks, 'rank')}, {fabric.name} has {counted(fabric.world_size, 'GPU')}"
    if fabric is not None and _shares_cards(log, fabric):
        return "NCCL_TESTS_SPLIT is set: several groups of ranks ran at once and shared cards; pass --baseline"
    return log.unlike


def _shares_cards(log: Log, fabric: Fabric) -> bool:
    """Says whether groups of ranks ran at once on the cards or links of one machine."""
    mask = log.settings.get("NCCL_TESTS_SPLIT_MASK", "0").lower().removeprefix("0x").strip("0")
    return (bool(mask) or "NCCL_TESTS_SPLIT" in log.settings) and (fabric.nodes > 1 or "[" in fabric.name)


def _of_settings(log: Log, fabric: Fabric) -> Iterator[str]:
    """Yields the settings in the log which are predicted to make it slower."""
    (plain,) = log.predicted(fabric, log.rows[-1:])
    for name, value in log.settings.items():
        try:
            (found,) = log.predicted(fabric, log.rows[-1:], {name: value})
        except InvalidArgument:  # a setting that predictions do not take
            continue
        if plain.time_us < 0.9 * found.time_us:
            yield f"{name}={value} is set: with it {found.busbw:.1f} GB/s are predicted at {sized(found.nbytes)}"


def _by_lines(case: Case) -> Iterator[tuple[str, str]]:
    """Yields the line of a log that names an ailment which makes its calls longer."""
    for ailment, line in islice(named(case), 1):
        yield SUSPICIOUS, f"the log has `{line}`: {ailment.name}"


def _by_settings(case: Case, deciding: Sequence[Judged], found: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yields verdicts from predictions; a time that the settings of the log explain is suspicious, not sick."""
    is_explained = False
    if case.settings and any(verdict == SICK for verdict, _ in found):
        own = [replace(one, prediction=known) for one, known in zip(deciding, case.healthy, strict=True)]
        is_explained = all(verdict != SICK for verdict, _ in _by_prediction(own, None))
    for verdict, reason in found:
        if verdict == SICK and is_explained:
            yield SUSPICIOUS, f"{reason}; the settings of the log explain it"
        else:
            yield verdict, reason


def _rows(
    log: Log, fabric: Fabric | None, scale: float, baseline: Mapping[int, float]
) -> tuple[list[Judged], str | None]:
    """Returns the rows by size, each beside its prediction and baseline, and why there are no predictions."""
    why_not = _why_not(log, fabric)
    predictions: Sequence[Prediction | Expected | None] = [None] * len(log.rows)
    if why_not is None and fabric is not None:
        try:
            predictions = log.predicted(fabric, log.rows)
        except InvalidArgument as error:
            why_not = str(error)
    rows = [
        Judged(row, row.nbytes * scale / row.time_us / 1e3, found, baseline.get(row.nbytes))
        for row, found in zip(log.rows, predictions, strict=True)
    ]
    return sorted(rows, key=lambda one: one.row.nbytes), why_not


def examined(
    log: Log,
    fabric: Fabric | None,
    require: float | None,
    why_no_machine: str | None,
    baseline: Mapping[int, float] | None = None,
) -> Verdict:
    """Returns the verdict on one log, without the ailments that would explain it (`among`).

    Args:
        log: the log.
        fabric: its machine, if it is known.
        require: the least share of the predicted busbw, and of the baseline's; None for the interval.
        why_no_machine: why it is not known.
        baseline: the time at each size on a sister machine, in microseconds.
    """
    if fabric is not None:
        fabric = of_log(log, fabric)
    findings: list[tuple[str | None, str]] = [*_by_header(log)]
    scale = 1.0 if log.tool else factor(log.collective, log.ranks) if log.collective and log.ranks else 0.0
    rows, why_not = _rows(log, fabric, scale, baseline or {})
    deciding = _deciding(rows)
    shares = [one.share for one in deciding if one.share is not None]
    share = median(shares) if shares else None
    is_one_job = log.jobs == 1 and scale > 0
    case: Case | None = None
    facts = list(log.evidence)
    slow: list[int] = []
    if is_one_job and log.unlike is None:
        slower = [] if log.tool else _slower_than_larger(rows)
        slow = [*{one.row.nbytes for one in rows if one.is_low}, *(one.row.nbytes for one, _ in slower)]
        of_itself, by_prediction = [*_by_itself(rows)], [*_by_prediction(deciding, require)]
        facts += [BUSBW_FALLS] * len(of_itself) + [TIME_FALLS] * bool(slower) + [f"version={log.version}"]
        if fabric is not None and share is not None:
            case = Case(log, fabric, [one.row for one in deciding], facts, slow)
            if require is None:
                by_prediction = [*_by_settings(case, deciding, by_prediction)]
        findings += [*by_prediction, *of_itself, *_by_larger(rows, slower)]
        if case is not None and not any(verdict for verdict, _ in findings) and share is not None and share < ASK_FROM:
            findings += [*_by_lines(case)]
    compared = _deciding([one for one in rows if one.of_baseline is not None], COMPARED) if is_one_job else []
    of_baseline = median(one.of_baseline or 0 for one in compared) if compared else None
    if of_baseline is not None:
        findings.append(_by_baseline(compared, of_baseline, require))
        if findings[-1][0] is None:
            findings += [*_small_of_baseline(rows)]
    reasons = [reason for _, reason in findings]
    if fabric is not None and share is not None:
        reasons += _of_settings(log, fabric)
    verdicts = [verdict for verdict, _ in findings]
    if fabric is not None and log.tool and verdicts:
        reasons += [note for one in deciding if (note := log.tool.note(fabric, one.row))]
    if (compared or SICK in verdicts) and (why := why_not or why_no_machine):
        reasons.append(f"no prediction: {why}")
    if SICK in verdicts:
        verdict = SICK
    elif CANNOT_TELL in verdicts:
        verdict = CANNOT_TELL
    elif not compared and (why_not or why_no_machine):
        verdict = CANNOT_TELL
        reasons.append(why_not or why_no_machine or "")
    elif not compared and share is None:
        verdict, reasons = CANNOT_TELL, [*reasons, f"the log has no size from {sized(JUDGED)} on"]
    else:
        verdict = SUSPICIOUS if SUSPICIOUS in verdicts else HEALTHY
        if verdict == HEALTHY and share is not None and not compared:
            known = _wide(deciding) if share < SUSPECT_SHARE else None
            wide = f", as far as a prediction within {known} can tell" if known else ""
            reasons.append(f"the log reaches {_in_words(share)} the predicted busbw{wide}")
    if log.tool:
        reasons = [reason.replace("busbw", "speed") for reason in reasons]
    reasons += log.notes
    uneven = [one for one in deciding if one.row.is_uneven]
    if is_one_job and uneven:
        reasons.append(f"in place and out of place differ at {counted(len(uneven), 'size')}: other traffic, or noise")
    trust = next((one.prediction.trust for one in reversed(rows) if one.prediction), None)
    likely: Sequence[Suspect] = ()
    if log.jobs > 1:
        likely = [Suspect(NO_MPI, 1.0, None)]
    elif verdict != HEALTHY and (case is None or (share or 0) >= ASK_FROM):
        slows = () if "failure" in log.facts else [*AILMENTS, *of_version(log, fabric, slow)]
        likely = named_alone(facts, FAILURES) or named_alone(facts, slows)
    machine = fabric.name if fabric else None
    return Verdict(log, machine, rows, verdict, reasons, share, of_baseline, trust, likely, case=case)


def judged(log: Log, fabric: Fabric | None, require: float | None, why_no_machine: str | None) -> Verdict:
    """Returns the verdict on one log alone, as `examined`, with its suspects."""
    return among([examined(log, fabric, require, why_no_machine)])[0]


def _asks(one: Verdict) -> bool:
    """Says whether ailments could explain a verdict."""
    if one.case is None or one.verdict == HEALTHY or one.share is None:
        return False
    return one.share < ASK_FROM or BUSBW_FALLS in one.case.evidence


def _suspects(cases: Sequence[Case]) -> list[Suspect]:
    """Returns the ailments of one machine, with the known regressions of the versions of its logs."""
    versions = {one.name: one for case in cases for one in of_version(case.log, case.fabric, case.slow)}
    return suspects(cases, [*AILMENTS, *versions.values()])


def _with_suspects(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Returns the verdicts with the ailments that would explain all logs of their machine, whatever its nodes."""
    alike: dict[str, list[Case]] = {}
    for one in verdicts:
        if one.case is not None:
            alike.setdefault(one.case.fabric.node, []).append(one.case)
    asked = {one.case.fabric.node for one in verdicts if one.case is not None and _asks(one)}
    found = {node: _suspects(alike[node]) for node in asked}
    with_them = []
    for one in verdicts:
        if one.case is not None and _asks(one):
            node = one.case.fabric.node
            nth = next(nth for nth, case in enumerate(alike[node]) if case is one.case)
            one = replace(one, suspects=[each.of(nth) for each in found[node]])
        with_them.append(one)
    return with_them


def among(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Returns the verdicts of one command, each log seen beside the others as well: the machine's constants cancel."""
    best_of: dict[str, Verdict] = {}
    for one in verdicts:
        if one.case is not None and one.log.jobs == 1 and one.verdict != CANNOT_TELL:
            best = best_of.setdefault(one.case.fabric.node, one)
            if (one.share or 0) > (best.share or 0):
                best_of[one.case.fabric.node] = one
    beside = []
    for one in verdicts:
        best = best_of.get(one.case.fabric.node, one) if one.case is not None else one
        if one.log.jobs == 1 and one.share and best.share and one.share < SUSPECT_AMONG * best.share:
            reason = f"{best.log.name} ({best.log.collective}) reaches {_in_words(best.share)} its prediction"
            worse = SUSPICIOUS if one.verdict == HEALTHY else one.verdict
            one = replace(one, verdict=worse, reasons=[*one.reasons, reason])
        beside.append(one)
    return _with_suspects(beside)
