"""``nvcoll check``: whether the numbers of a benchmark's log are right for a machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from nvcoll._nvcoll import Fabric, InvalidArgument
from nvcoll.check import baseline, junit, machine, odds, report
from nvcoll.check.formats import read
from nvcoll.check.lines import decoded
from nvcoll.check.log import Log
from nvcoll.check.verdict import CANNOT_TELL, HEALTHY, Verdict, among, examined
from nvcoll.cli import formats
from nvcoll.cli.gathered import gathered
from nvcoll.cli.hints import collective_name
from nvcoll.cli.machines import Conditions, Gpu, beginning, machines
from nvcoll.text.formatting import printable

NOT_HEALTHY, NOT_KNOWN = 1, 2
"""The exit status if a log is suspicious or sick; if none is, and the verdict on one is "cannot tell"."""


def _read(name: str, collective: str | None, conditions: Conditions) -> list[Log]:
    """Returns the tables of a file, or of standard input, which ``-`` names.

    Version and settings of NCCL, if given, replace those of a log; the collective is for a log that lacks it.
    """
    content = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    name = "standard input" if name == "-" else name
    return [
        replace(
            log,
            collective=log.collective or collective,
            version=conditions.nccl_version or log.version,
            settings={**log.settings, **conditions.settings},
        )
        for log in read(name, decoded(name, content))
    ]


def _logs(name: str, logs_of: Callable[[str], list[Log]], unread: set[str]) -> list[Log | Verdict]:
    """Returns the tables of a file; for a file that cannot be read, a verdict with the error."""
    try:
        return [*logs_of(name)]
    except (OSError, InvalidArgument) as error:
        reason = f"{name}: {error.strerror}" if isinstance(error, OSError) else str(error)
        if isinstance(error, OSError):
            typer.echo(f"nvcoll: {printable(reason)}", err=True)
            unread.add(name)
        return [Verdict(Log(name, None, None, ()), None, (), CANNOT_TELL, (reason,))]


def _on_named(log: Log, on: Sequence[Fabric], require: float | None, baselines: Sequence[Log]) -> Verdict:
    """Returns the verdict on a log on that machine of ``--on`` that has its ranks, or the first."""
    same = [one for one in on if one.world_size == log.ranks] or [one for one in on if log.may_have(one.world_size)]
    named = (same or on)[0]
    if log.may_have(named.world_size):
        log = log.of_ranks(named.world_size)
    notes = [note for of in (machine.part, machine.doubt) if (note := of(log, named))]
    found = examined(log, named, require, None, baseline.times_us(log, baselines))
    return replace(found, reasons=[*found.reasons, *notes])


@gathered
def check(
    names: Annotated[
        list[str],
        typer.Argument(metavar="LOGS...", help="Logs of nccl-tests, rccl-tests or other tools; - is standard input."),
    ],
    *,
    collective: Annotated[
        str | None, typer.Option(help="The collective, if the log does not name it.", callback=collective_name)
    ] = None,
    conditions: Conditions,
    on: Annotated[
        list[str] | None,
        typer.Option(
            "--on",
            help="Machines; a log is compared with the first that has its number of ranks. Default: found.",
            autocompletion=beginning,
        ),
    ] = None,
    gpu: Gpu = None,
    require: Annotated[
        float | None,
        typer.Option(help="Least share of the predicted busbw, for example 0.9. Default: the 90 % interval."),
    ] = None,
    baselines: Annotated[
        list[str] | None,
        typer.Option("--baseline", help="The log of a sister machine, for comparison row by row."),
    ] = None,
    as_json: formats.AsJson = False,
    as_csv: formats.AsCsv = False,
    junit_file: Annotated[
        Path | None, typer.Option("--junit", help="Write JUnit XML: a test case per log.", metavar="FILE")
    ] = None,
    schema: formats.Schema = False,
) -> None:
    """Says whether the numbers in logs of nccl-tests, rccl-tests and scripts of torch are right for a machine.

    Exit status: 0 all healthy, 1 one is suspicious or sick, 2 "cannot tell" for one, or an error.

    Example: nvcoll check all_reduce.log --on hgx-h100x2+roce-400-8
    """
    formats.check_one(json=as_json, csv=as_csv)
    conditions.check()
    if require is not None and not 0 < require <= 2:
        raise InvalidArgument(f"--require is {require:g}: pass a share of the prediction, as 0.9")
    logs_of = partial(_read, collective=collective, conditions=conditions)
    known = [log for name in baselines or [] for log in logs_of(name)]
    unread: set[str] = set()
    every = [one for name in names for one in _logs(name, logs_of, unread)]
    logs = [one for one in every if isinstance(one, Log)]
    if on:
        named = machines(on, gpu)
        verdicts = iter([_on_named(log, named, require, known) for log in logs])
    else:
        on_found = zip(logs, odds.of_each(logs), strict=True)
        verdicts = iter([odds.judged(log, of, require, baseline.times_us(log, known)) for log, of in on_found])
    found = among([next(verdicts) if isinstance(one, Log) else one for one in every])
    if junit_file is not None:
        junit_file.write_text(junit.to_junit(found), encoding="utf-8")
    if as_json:
        formats.print_json("check", {"logs": report.documents(found)})
    elif as_csv:
        formats.print_csv(report.rows(found))
    else:
        report.show([one for one in found if one.log.name not in unread])
    answers = {one.verdict for one in found}
    if answers - {HEALTHY, CANNOT_TELL}:
        raise typer.Exit(NOT_HEALTHY)
    if CANNOT_TELL in answers:
        raise typer.Exit(NOT_KNOWN)
