"""``nvcoll run``: runs a script, then predicts its collectives on machines that you do not have.

The script runs in a process of its own, as under ``python script.py``, and reports its calls when it ends, also after
an error (nvcoll.ranks.rank_counts). Processes that the script starts are not seen.

``nvcoll run -n N``: starts the script as N processes, each of them a rank (nvcoll.cli.run.launcher). With an option of
tables, such as ``--on``, the table has the calls of all ranks of ``nvcoll.init``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from nvcoll._nvcoll import InvalidArgument
from nvcoll.cli import formats
from nvcoll.cli.gathered import gathered
from nvcoll.cli.machines import Conditions, Gpu, Launch, On, machines
from nvcoll.cli.run import launcher
from nvcoll.cli.run.launcher import Failure
from nvcoll.cli.schedules import Processes
from nvcoll.cost.comparison import LAUNCH
from nvcoll.cost.price import Pricer
from nvcoll.cost.report import CallReport, report_of
from nvcoll.ranks.rank_counts import Inbox
from nvcoll.text.tables import print_labelled, print_lines

OURS = (
    "-n",
    "--world-size",
    "--on",
    "--gpu",
    "--launch",
    "--json",
    "--csv",
    "--save",
    "--no-prefix",
    "--env",
    "--nccl-version",
)
"""Options of nvcoll run. After the script, they belong to the script."""


@gathered
def run(
    script: Annotated[Path, typer.Argument(help="A Python script that uses nvcoll.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ARGS]...", help="Arguments of the script.")] = None,
    ranks: Processes = None,
    no_prefix: Annotated[bool, typer.Option("--no-prefix", help="With -n: lines don't begin with their rank.")] = False,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="With -n: other ranks continue after one fails.")
    ] = False,
    on: On = None,
    gpu: Gpu = None,
    launch: Launch = LAUNCH,
    *,
    printed: formats.Printed,
    save: Annotated[Path | None, typer.Option("--save", help="Write the report to this file, as JSON.")] = None,
    conditions: Conditions,
) -> None:
    """Runs a script, then prints the predicted time of its collectives on each machine.

    With -n it starts the script as several processes, each of them a rank, and predicts if --on, --gpu, --launch,
    --json, --csv, --save, --env or --nccl-version is given.

    Options stand before the script. The exit status is the status of the script, or of the first rank that failed.

    Example: nvcoll run --on hgx-h100,hgx-a100 script.py

    Example: nvcoll run -n 4 --on hgx-h100 script.py
    """
    if ranks is None and no_prefix:
        raise InvalidArgument("--no-prefix is for the output of several ranks: pass -n too, or leave it out")
    if ranks is None and keep_going:
        raise InvalidArgument("--keep-going is for several ranks: pass -n too, or leave it out")
    conditions.check()
    pricers = [Pricer(one, launch, conditions.nccl_version, conditions.settings) for one in machines(on, gpu)]
    script.open("rb").close()  # a file that cannot be read, or written, is found out before anything runs
    if save is not None:
        save.touch()
    words = [str(script), *(arguments or [])]
    begin = partial(launcher.launch, words, ranks, is_prefixed=not no_prefix, keeps_going=keep_going)
    asked = [on, gpu, launch != LAUNCH, printed.as_json, printed.as_csv, save, conditions.env, conditions.nccl_version]
    if ranks is not None and not any(asked):
        raise typer.Exit(_status_of(begin(), ranks))
    with Inbox() as inbox:
        failure = begin(inbox=inbox)
        reports = inbox.read()
    silent = [rank for rank in failure.ranks if rank not in reports] if failure else []
    report = report_of([*reports.values()], pricers, sorted(silent), script.name)
    if save is not None:
        save.write_text(report.to_json() + "\n")
    if printed.as_json:
        print(report.to_json())
    elif printed.as_csv:
        formats.print_csv(report.rows())
    else:
        print_lines(["", *report.lines()])
        _print_notes(report, arguments or [], "nvcoll.Node" if ranks is None else "nvcoll.init")
    raise typer.Exit(_status_of(failure, ranks))


def _status_of(failure: Failure | None, ranks: int | None) -> int:
    """Returns the status of the script, or of the job, and says which rank failed first."""
    if failure is None:
        return 0
    if ranks is not None:
        sys.stdout.flush()
        typer.echo(f"nvcoll: {failure.message}", err=True)
    return failure.status


def _print_notes(report: CallReport, arguments: Sequence[str], counted: str) -> None:
    """Prints notes on calls that the report does not count: calls that are not in `counted`."""
    if not (report.calls or report.others or report.silent):
        print_labelled("note", f"nvcoll run sees the collectives of nvcoll only; write them with {counted}")
    if ours := [word for word in arguments if word.partition("=")[0] in OURS]:
        print_labelled("note", f"{' '.join(ours)} went to the script: options of nvcoll run stand before it")
