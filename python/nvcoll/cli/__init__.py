"""The command line: ``nvcoll``. One function per command; arguments by typer, the progress bar by rich.

What cannot be done is one line on stderr, ``nvcoll: what was found, what was expected``. The status says how it ended:

====  =====================================================================
0     done; for ``verify`` proved, for ``bench`` every element right
1     refuted, or a wrong element
2     it could not be done: the arguments, a file, memory, the disk
130   interrupted (Ctrl-C)
141   whoever read the output went away (``nvcoll show ... | head``)
any   for ``run``, that of the script
====  =====================================================================
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from nvcoll import Error, InvalidArgument, Refuted, __version__
from nvcoll._nvcoll import algorithms as registry
from nvcoll._nvcoll import machine
from nvcoll.cli import algorithms, bench, compare, explain, fabric, info, predict, run, schedules

REFUTED, CANNOT, INTERRUPTED, NO_READER = 1, 2, 130, 141

STATUS = "Status: 0 done or proved, 1 refuted or a wrong element, 2 it could not be done, 130 interrupted."


@contextmanager
def _errors_in_one_line() -> Iterator[None]:
    """Ends the program with a line and a status instead of a traceback or a box."""
    status = CANNOT
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
        return
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        _let_go_of_stdout()
        raise typer.Exit(NO_READER) from None
    except OSError as error:
        _let_go_of_stdout()
        message = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
    except Refuted as error:
        message, status = str(error), REFUTED
    except Error as error:
        message = str(error)
    except MemoryError:
        message = "there is not enough memory: use fewer ranks or a smaller size"
    except Exception as error:
        if not hasattr(error, "format_message"):  # which usage errors of every click that typer brings have
            raise
        message = error.format_message()
    typer.echo(f"nvcoll: {message}", err=True)
    raise typer.Exit(status)


def _let_go_of_stdout() -> None:
    """Lets the interpreter flush at its end what nobody takes."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Commands(TyperGroup):
    """The commands, whose errors are one line."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Reads the arguments before the command."""
        with _errors_in_one_line():
            return super().make_context(*args, **kwargs)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Finds the command."""
        if args[0] not in self.commands:
            raise InvalidArgument(f"no command is called `{args[0]}`: choose from {', '.join(self.commands)}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Reads the arguments of the command, and runs it."""
        with _errors_in_one_line():
            return super().invoke(ctx)


app = typer.Typer(
    cls=Commands,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="A multi-GPU node in a pip wheel.",
    epilog=STATUS,
)
app.command("bench")(bench.bench)
app.command("explain")(explain.explain)
app.command("verify")(schedules.verify)
app.command("show")(schedules.show)
app.command("algorithms")(algorithms.algorithms)
app.command("fabric")(fabric.fabric)
app.command("predict")(predict.predict)
app.command("compare")(compare.compare)
app.command("run", context_settings={"allow_interspersed_args": False})(run.run)
app.command("info")(info.info)


@app.callback(invoke_without_command=True)
def greet(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    """Says what there is and what to try."""
    if version:
        print(f"nvcoll {__version__}")
    elif context.invoked_subcommand is None:
        facts = machine()
        names = ", ".join(name for collective, name, *_ in registry() if collective == "all_reduce")
        print(f"nvcoll {__version__}: collectives between virtual GPUs, run, proved and timed on this machine")
        print(f"found   {facts['usable_cpus']} usable CPUs, {facts['cpu'] or 'unknown processor'}, {facts['isa']}")
        print("needs   no GPU, no driver, no CUDA")
        print(f"knows   all_reduce by {names}")
        print("try     nvcoll bench all_reduce -n 8          every algorithm beside numpy and the roofline")
        print("        nvcoll show all_reduce ring -n 4      the steps, and what waits for what")
        print("        nvcoll verify --all                   the proof of every algorithm")
        print("more    nvcoll --help, nvcoll info")


def main() -> None:
    """Runs the command line."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the shell has closed it: `>&-`
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        getattr(sys, name).reconfigure(errors="replace")  # of a terminal that cannot show `…`
    app(prog_name="nvcoll")
