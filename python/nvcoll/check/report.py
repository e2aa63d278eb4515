"""Verdicts as a table for people and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nvcoll.check.ailments import Suspect
from nvcoll.check.log import Log
from nvcoll.check.verdict import Judged, Verdict
from nvcoll.text.formatting import counted, sized
from nvcoll.text.tables import print_labelled, print_table

MOST_TOLD, MOST_LETTERS = 40, 200
"""The most settings and facts, and letters of each, that are shown; JSON has all. Chosen."""

HEADINGS = ("predicted", "90 % interval", "share", "of baseline", "")


def _cells(one: Judged, *, in_us: bool) -> list[str]:
    found, cells = one.prediction, ["", ""]
    measured = one.row.time_us if in_us else one.busbw
    if found is not None and in_us:
        cells = [f"{found.time_us:.2f}", f"{found.low_us:.1f}-{found.high_us:.1f}"]
    elif found is not None:
        low, high = (found.busbw * found.time_us / time for time in (found.high_us, found.low_us))
        cells = [f"{found.busbw:.2f}", f"{low:.1f}-{high:.1f}"]
    cells += ["" if share is None else f"{100 * share:.0f} %" for share in (one.share, one.of_baseline)]
    mark = "slow" if one.is_slow else "fast" if one.is_fast else ""
    return [one.row.case or sized(one.row.nbytes), f"{measured:.2f}", *cells, mark]


def _print_rows(log: Log, rows: Sequence[Judged]) -> None:
    """Prints the rows, without the columns that are empty."""
    in_us = log.tool is not None and log.tool.is_latency
    columns = zip(*(_cells(row, in_us=in_us) for row in rows), strict=True)
    what = "us" if in_us else "busbw GB/s" if log.tool is None else "GB/s"
    first = "row" if any(row.row.case for row in rows) else "size"
    headings = (first, what, *HEADINGS)
    headed = [(heading, column) for heading, column in zip(headings, columns, strict=True) if any(column)]
    headings, shown = zip(*headed, strict=True)
    print_table(headings, [*zip(*shown, strict=True)], optional=("90 % interval",))


def _print_suspects(suspects: Sequence[Suspect]) -> None:
    """Prints the first suspect with what to do next, and a line for each of the others."""
    for nth, one in enumerate(suspects):
        rate = "" if one.busbw is None else f": {one.busbw:.1f} GB/s with it"
        print_labelled("" if nth else "perhaps", f"{100 * one.odds:.0f} %: {one.ailment.name}{rate}")
        if nth == 0:
            print_labelled("run", one.ailment.confirm)
            if "COMMAND" in one.ailment.confirm:
                print_labelled("", "COMMAND is the command of this log")
            if one.ailment.prints:
                print_labelled("it prints", one.ailment.prints)
            if one.ailment.thread:
                print_labelled("see", one.ailment.thread)


def _told(log: Log) -> list[str]:
    """Returns version, settings and facts of a log, without the rest of long lists."""
    told = [one for one in log.evidence if not one.startswith(("warning=", "failure="))]
    more = [f"{len(told) - MOST_TOLD} more"] if len(told) > MOST_TOLD else []
    cut = (one if len(one) <= MOST_LETTERS else f"{one[:MOST_LETTERS]}..." for one in told[:MOST_TOLD])
    return [*filter(None, [log.version]), *cut, *more]


def show(verdicts: Sequence[Verdict]) -> None:
    """Prints a table and the verdict of each log."""
    said: dict[tuple[object, ...], str] = {}
    for one in verdicts:
        log = one.log
        ranks = "" if log.ranks is None else f", {counted(log.ranks, 'rank')}"
        title = f"{log.collective or 'unknown collective'}{ranks}   on {one.machine or 'an unknown machine'}"
        print_labelled("", f"{log.name}   {title}", label=0)
        if one.rows and (log.tool or log.ranks != 1):  # one rank has no busbw
            _print_rows(log, one.rows)
        if told := _told(log):
            print_labelled("nccl", ", ".join(told))
        for number, reason in log.malformed:
            print_labelled("left out", f"line {number}: {reason}")
        if one.trust:
            print_labelled("accuracy", one.trust)
        for nth, on in enumerate(one.machines):
            share = "" if on.share is None else f", {100 * on.share:.0f} % of the prediction"
            print_labelled("" if nth else "machine", f"{100 * on.odds:.0f} %: {on.machine}: {on.verdict}{share}")
        print_labelled("verdict", one.verdict)
        for nth, reason in enumerate(one.reasons):
            print_labelled("" if nth else "because", reason)
        names = (suspect.ailment.name for suspect in one.suspects)
        first = said.setdefault((one.case and one.case.fabric.node, *names), log.name)
        if first != log.name and one.suspects:
            print_labelled("perhaps", f"as for {first}: one cause explains all logs of a machine")
        else:
            _print_suspects(one.suspects)
        print()


def _row(one: Judged) -> dict[str, Any]:
    found = one.prediction
    return {
        "line": one.row.line,
        "case": one.row.case,
        "nbytes": one.row.nbytes,
        "out_of_place_us": one.row.out_of_place_us,
        "in_place_us": one.row.in_place_us,
        "busbw": one.busbw,
        "predicted_us": found and found.time_us,
        "low_us": found and found.low_us,
        "high_us": found and found.high_us,
        "predicted_busbw": found and found.busbw,
        "share": one.share,
        "baseline_us": one.baseline_us,
        "of_baseline": one.of_baseline,
    }


def _suspect(one: Suspect) -> dict[str, Any]:
    known = one.ailment
    return {
        "ailment": known.name,
        "odds": one.odds,
        "busbw": one.busbw,
        "confirm": known.confirm,
        "prints": known.prints,
        "thread": known.thread or None,
    }


def rows(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Returns a row for each size of each log, for CSV; the keys are as in JSON."""
    return [
        {"log": one.log.name, "collective": one.log.collective, "machine": one.machine, "verdict": one.verdict}
        | _row(row)
        for one in verdicts
        for row in one.rows
    ]


def documents(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Returns the verdicts for JSON."""
    return [
        {
            "log": one.log.name,
            "collective": one.log.collective,
            "world_size": one.log.ranks,
            "machine": one.machine,
            "nccl_version": one.log.version,
            "launch": one.log.launch,
            "settings": dict(one.log.settings),
            "facts": {name: list(values) for name, values in one.log.facts.items()},
            "verdict": one.verdict,
            "reasons": list(one.reasons),
            "suspects": [*map(_suspect, one.suspects)],
            "share": one.share,
            "of_baseline": one.of_baseline,
            "trust": one.trust,
            "machines": [on._asdict() for on in one.machines],
            "rows": [_row(row) for row in one.rows],
            "malformed": [{"line": line, "reason": reason} for line, reason in one.log.malformed],
        }
        for one in verdicts
    ]
