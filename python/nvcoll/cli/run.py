"""``nvcoll run``: a script in this process, and what its collectives would cost on machines that one does not have.

The script sees what ``python script.py`` shows it: ``sys.argv``, ``__main__``, ``sys.path[0]``; its output, traceback
and exit status are its own. Every ``Node`` that it makes counts its calls anyway; the table comes when the script has
ended, however it ended. Processes that it starts are not seen.
"""

from __future__ import annotations

import builtins
import os
import sys
import threading
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Annotated

import typer

from nvcoll.cli.predict import Gpu, Launch, On, machines
from nvcoll.comparison import LAUNCH
from nvcoll.price import Pricer
from nvcoll.report import report_of, watched

FAILED, INTERRUPTED = 1, 130

OURS = ("--on", "--gpu", "--launch", "--json")
"""Options of ours, which behind the script are the script's."""


def run(
    script: Annotated[Path, typer.Argument(help="A Python script that uses a Node.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ARGS]...", help="The script's own.")] = None,
    on: On = "hgx-h100",
    gpu: Gpu = None,
    launch: Launch = LAUNCH,
    json: Annotated[Path | None, typer.Option(help="Write everything to this file too, as JSON.")] = None,
) -> None:
    """Runs a script, then prints what its collectives would cost on each machine. Options stand before the script.

    The status is the script's.
    """
    pricers = [Pricer(one, launch) for one in machines(on, gpu)]
    source = script.read_bytes()
    if json is not None:
        json.touch()  # what cannot be written is found out before the script runs
    with watched() as tallies:
        status = _status_of(source, str(script), arguments or [])
    sys.stdout.flush()
    report = report_of(tallies, pricers)
    print(f"\nwhat the collectives of {script.name} would cost")
    print(report)
    if mine := [word for word in arguments or [] if word.partition("=")[0] in OURS]:
        print(f"note      {' '.join(mine)} went to the script: options of nvcoll run stand before it")
    if json is not None:
        json.write_text(report.to_json() + "\n")
    raise typer.Exit(status)


def _status_of(source: bytes, script: str, arguments: list[str]) -> int:
    """Runs a script as ``python`` would, to the end of its threads; returns its status."""
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
        sys.stdout.flush()
        error = error.with_traceback(_from(error.__traceback__, path))
        sys.excepthook(type(error), error, error.__traceback__)
        return INTERRUPTED if isinstance(error, KeyboardInterrupt) else FAILED


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
    """Returns the status that ``sys.exit(code)`` stands for, and prints what is none."""
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
