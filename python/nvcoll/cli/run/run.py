"""``nvcoll run``: runs a script in this process, then predicts its collectives on machines that you do not have.

The script runs as under ``python script.py``: ``sys.argv``, ``__main__``, ``sys.path[0]``, output, traceback and exit
status are the same. Each ``Node`` counts its calls. The table is printed when the script ends, also after an error.
Processes that the script starts are not seen, and a forked child prints no table.

``nvcoll run -n N``: starts the script as N processes, each of them a rank (nvcoll.cli.run.launcher). With an option of
tables, such as ``--on``, the table has the calls of all ranks of ``nvcoll.init`` (nvcoll.ranks.rank_counts).
"""

from __future__ import annotations

import builtins
import os
import sys
import threading
from functools import partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Annotated

import typer

from nvcoll._nvcoll import InvalidArgument
from nvcoll.cli.machines import Gpu, Launch, On, machines
from nvcoll.cli.run import launcher
from nvcoll.cli.run.launcher import INTERRUPTED, Failure
from nvcoll.cli.schedules import Processes
from nvcoll.cost.comparison import LAUNCH
from nvcoll.cost.price import Pricer
from nvcoll.cost.report import Report, report_of, watched
from nvcoll.ranks.rank_counts import Inbox
from nvcoll.text.tables import print_labelled

FAILED = 1

OURS = ("-n", "--ranks", "--on", "--gpu", "--launch", "--json", "--save", "--no-prefix")
"""Options of nvcoll run. After the script, they belong to the script."""

UNSEEN = {"torch.distributed": "torch.distributed", "mpi4py": "mpi4py", "jax": "JAX"}
"""Modules whose collectives are not counted, and their names."""


def run(
    script: Annotated[Path, typer.Argument(help="A Python script that uses nvcoll.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ARGS]...", help="Arguments of the script.")] = None,
    ranks: Processes = None,
    no_prefix: Annotated[bool, typer.Option("--no-prefix", help="With -n: lines don't begin with their rank.")] = False,
    keep_going: Annotated[bool, typer.Option("--keep-going", help="With -n: a rank that fails ends no other.")] = False,
    on: On = None,
    gpu: Gpu = None,
    launch: Launch = LAUNCH,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")] = False,
    save: Annotated[Path | None, typer.Option("--save", help="Write the report to this file, as JSON.")] = None,
) -> None:
    """Runs a script, then prints the predicted time of its collectives on each machine.

    With -n it starts the script as several processes, each of them a rank, and predicts if --on, --gpu, --launch,
    --json or --save is given.

    Options stand before the script. The exit status is the script's, or that of the first rank that failed.

    Example: nvcoll run --on hgx-h100,hgx-a100 script.py

    Example: nvcoll run -n 4 --on hgx-h100 script.py
    """
    if ranks is None and no_prefix:
        raise InvalidArgument("--no-prefix is for the output of several ranks: pass -n too, or leave it out")
    if ranks is None and keep_going:
        raise InvalidArgument("--keep-going is for several ranks: pass -n too, or leave it out")
    pricers = [Pricer(one, launch) for one in machines(on, gpu)]
    source = script.read_bytes()
    if ranks is not None and not hasattr(os, "pidfd_open"):
        raise InvalidArgument("-n starts processes, which needs Linux here: use nvcoll.Node, whose ranks are threads")
    if save is not None:
        save.touch()  # a file that cannot be written is found out before the script runs
    process = os.getpid()
    if ranks is None:
        with watched() as counts:
            status = _status_of(source, str(script), arguments or [])
        if os.getpid() != process:  # the script has forked, and this is the child
            raise typer.Exit(status)
        report, failure = report_of(counts, pricers), None
    else:
        words, is_prefixed = [str(script), *(arguments or [])], not no_prefix
        begin = partial(launcher.launch, words, ranks, is_prefixed=is_prefixed, keeps_going=keep_going)
        if not (on or gpu or launch != LAUNCH or as_json or save):
            raise typer.Exit(_status_of_job(begin()))
        with Inbox() as inbox:
            failure = begin(inbox=inbox)
            told = inbox.read()
        silent = [rank for rank in failure.ranks if rank not in told] if failure else []
        report = report_of([*told.values()], pricers, sorted(silent))
    if save is not None:
        save.write_text(report.to_json() + "\n")
    if _can_print():
        _print(report, script.name, arguments or [], as_json, "nvcoll.Node" if ranks is None else "nvcoll.init")
    else:
        typer.echo("nvcoll: the script has closed standard output: pass --save FILE to keep the report", err=True)
    raise typer.Exit(status if ranks is None else _status_of_job(failure))


def _status_of_job(failure: Failure | None) -> int:
    """Says which rank failed first, and returns the status of the job."""
    if failure is None:
        return 0
    sys.stdout.flush()
    typer.echo(f"nvcoll: {failure.message}", err=True)
    return failure.status


def _can_print() -> bool:
    """Makes standard output that of the process again, and says whether it is open."""
    sys.stdout = sys.__stdout__ or open(os.devnull, "w")  # noqa: SIM115
    try:
        sys.stdout.flush()
        os.fstat(sys.stdout.fileno())
    except BrokenPipeError:
        raise
    except (ValueError, OSError):
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return False
    return True


def _print(report: Report, name: str, arguments: list[str], as_json: bool, counted: str) -> None:
    """Prints the report, and notes on calls that it does not count: those that are not of `counted`."""
    if as_json:
        print(report.to_json())
        return
    print(f"\nwhat the collectives of {name} would cost")
    print(report)
    if not (report.rows or report.others or report.silent):
        seen = [title for module, title in UNSEEN.items() if module in sys.modules]
        used = f" the script imports {' and '.join(seen)}, whose collectives are not seen yet;" if seen else ""
        print_labelled("note", f"nvcoll run sees the collectives of nvcoll only;{used} write them with {counted}")
    if ours := [word for word in arguments if word.partition("=")[0] in OURS]:
        print_labelled("note", f"{' '.join(ours)} went to the script: options of nvcoll run stand before it")


def _status_of(source: bytes, script: str, arguments: list[str]) -> int:
    """Runs a script as ``python`` does, to the end of its threads; returns its status."""
    path = os.path.join(os.getcwd(), script)
    sys.argv = [script, *arguments]
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    sys.modules["__main__"] = main = _main_module(path)
    try:
        exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)
        _wait_for_threads()
        return 0
    except SystemExit as stop:
        _wait_for_threads()
        return _status(stop.code)
    except BaseException as error:
        _flush()
        error = error.with_traceback(_from(error.__traceback__, path))
        sys.excepthook(type(error), error, error.__traceback__)
        return INTERRUPTED if isinstance(error, KeyboardInterrupt) else FAILED


def _flush() -> None:
    """Flushes what the script has printed, if it has not closed standard output."""
    if sys.stdout is not None and not sys.stdout.closed:
        sys.stdout.flush()


def _main_module(path: str) -> ModuleType:
    """Makes the module that a script runs in, with what ``python`` puts there."""
    main = ModuleType("__main__")
    main.__loader__ = SourceFileLoader("__main__", path)
    main.__dict__.update(__file__=path, __cached__=None, __builtins__=builtins, __annotations__={})
    return main


def _wait_for_threads() -> None:
    """Waits for the threads that Python would wait for before it exits."""
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join()


def _status(code: object) -> int:
    """Returns the status of ``sys.exit(code)``, and prints a code that is none."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return FAILED


def _from(trace: TracebackType | None, path: str) -> TracebackType | None:
    """Returns the part of a traceback that begins in the script."""
    while trace is not None and trace.tb_frame.f_code.co_filename != path:
        trace = trace.tb_next
    return trace
