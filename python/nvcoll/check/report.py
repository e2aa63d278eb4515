"""Verdicts as a table for people and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from nvcoll.check.verdict import Judged, Verdict
from nvcoll.text.formatting import sized
from nvcoll.text.tables import print_labelled, print_table

JSON_SCHEMA = "nvcoll.check/1"


def _cells(rows: Sequence[Judged]) -> Iterator[Sequence[str]]:
    for one in rows:
        found, measured = one.prediction, f"{one.busbw:.2f}"
        if found is None:
            yield sized(one.row.nbytes), measured, "-", "-", "-", ""
            continue
        interval = f"{found.busbw * found.time_us / found.high_us:.1f}-{found.busbw * found.time_us / found.low_us:.1f}"
        mark = "slow" if one.is_slow else "fast" if one.row.time_us < found.low_us else ""
        yield sized(one.row.nbytes), measured, f"{found.busbw:.2f}", interval, f"{100 * (one.share or 0):.0f} %", mark


def show(verdicts: Sequence[Verdict]) -> None:
    """Prints a table and the verdict of each log."""
    for one in verdicts:
        log = one.log
        ranks = "" if log.ranks is None else f", {log.ranks} ranks"
        print_labelled(
            "", f"{log.name}   {log.collective or 'unknown collective'}{ranks}   on {one.machine or '?'}", label=0
        )
        if one.rows:
            print_table(
                ("size", "busbw GB/s", "predicted", "90 % interval", "share", ""),
                [*_cells(one.rows)],
                optional=("90 % interval",),
            )
        if log.version or log.told:
            print_labelled("nccl", ", ".join([*([log.version] if log.version else []), *log.told]))
        for number, reason in log.malformed:
            print_labelled("left out", f"line {number}: {reason}")
        if one.trust:
            print_labelled("accuracy", one.trust)
        print_labelled("verdict", one.verdict)
        for nth, reason in enumerate(one.reasons):
            print_labelled("" if nth else "because", reason)
        for nth, suspect in enumerate(one.suspects):
            chance = f"{100 * suspect.odds:.0f} %: {suspect.ailment.name} ({suspect.busbw:.1f} GB/s)"
            print_labelled("" if nth else "perhaps", f"{chance}; confirm by {suspect.ailment.confirm}")
        print()


def _row(one: Judged) -> dict[str, Any]:
    found = one.prediction
    return {
        "line": one.row.line,
        "nbytes": one.row.nbytes,
        "out_of_place_us": one.row.out_of_place_us,
        "in_place_us": one.row.in_place_us,
        "busbw": one.busbw,
        "predicted_us": found and found.time_us,
        "low_us": found and found.low_us,
        "high_us": found and found.high_us,
        "predicted_busbw": found and found.busbw,
        "share": one.share,
    }


def to_json(verdicts: Sequence[Verdict]) -> str:
    """Returns the verdicts as JSON."""
    logs = [
        {
            "log": one.log.name,
            "collective": one.log.collective,
            "ranks": one.log.ranks,
            "fabric": one.machine,
            "nccl_version": one.log.version,
            "launch": one.log.launch,
            "settings": dict(one.log.settings),
            "facts": {name: list(values) for name, values in one.log.facts.items()},
            "verdict": one.verdict,
            "reasons": list(one.reasons),
            "suspects": [
                {"ailment": found.ailment.name, "odds": found.odds, "confirm": found.ailment.confirm}
                for found in one.suspects
            ],
            "share": one.share,
            "trust": one.trust,
            "rows": [_row(row) for row in one.rows],
            "malformed": [{"line": line, "reason": reason} for line, reason in one.log.malformed],
        }
        for one in verdicts
    ]
    return json.dumps({"schema": JSON_SCHEMA, "logs": logs}, indent=2)
