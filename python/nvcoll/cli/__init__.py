"""The command line: ``nvcoll``. One function per command; arguments by typer.

An error is one line on stderr: ``nvcoll: found, expected, remedy``. The exit status:

====  =====================================================================
0     success; for ``verify`` proved, for ``bench`` every element right
1     a refuted schedule, or a wrong element
2     an error: of the arguments, a file, memory or the disk
130   interrupted (Ctrl-C)
141   the reader of the output ended (``nvcoll show ... | head``)
any   for ``run``, that of the script; with ``-n`` that of the first rank that failed
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
from nvcoll._nvcoll import collectives, machine
from nvcoll.cli import algorithms, fabric, hints, info, schedules
from nvcoll.cli.bench import explain
from nvcoll.cli.bench.bench import bench as bench_command
from nvcoll.cli.predict import compare
from nvcoll.cli.predict.predict import predict as predict_command
from nvcoll.cli.run import dump
from nvcoll.cli.run.run import run as run_command
from nvcoll.text.environment import VARIABLES
from nvcoll.text.tables import aligned

REFUTED, CANNOT, INTERRUPTED, NO_READER = 1, 2, 130, 141

STATUS = "Exit status: 0 success, 1 a refuted schedule or a wrong element, 2 an error, 130 interrupted."


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
    except UnicodeDecodeError as error:
        message = f"a file is not text ({error}): pass a text file in UTF-8"
    except MemoryError:
        message = "there is not enough memory: use fewer ranks or a smaller size"
    except Exception as error:
        if not hasattr(error, "format_message"):  # which usage errors of every click that typer brings have
            raise
        message = error.format_message()
        if hint := hints.OPTIONS.get(getattr(error, "option_name", "")):
            message = f"{message.rstrip('.')}: {hint}"
    typer.echo(f"nvcoll: {message}", err=True)
    raise typer.Exit(status)


def _let_go_of_stdout() -> None:
    """Sends what is left in standard output's buffer to the null device: its reader has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Commands(TyperGroup):
    """The commands, whose errors are one line."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Reads the arguments before the command."""
        with _errors_in_one_line():
            return super().make_context(*args, **kwargs)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Finds the command."""
        name = args[0]
        if name not in self.commands:
            if (meant := hints.nearest(name, [row.name for row in collectives()])) is not None:
                columns = " --nccl" if name.endswith("_perf") else ""
                raise InvalidArgument(f"no command is called `{name}`: did you mean nvcoll bench {meant}{columns}?")
            raise InvalidArgument(f"no command is called `{name}`: choose from {', '.join(self.commands)}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Reads the arguments of the command, and runs it."""
        with _errors_in_one_line():
            return super().invoke(ctx)


app = typer.Typer(
    cls=Commands,
    pretty_exceptions_enable=False,
    help="Run, prove and predict collectives; no GPU is needed.",
    epilog=f"{STATUS}\n\nEnvironment: {', '.join(row.name for row in VARIABLES)}: docs/cli.md.",
)
app.command("bench")(bench_command)
app.command("explain")(explain.explain)
app.command("verify")(schedules.verify)
app.command("show")(schedules.show)
app.command("algorithms")(algorithms.algorithms)
app.command("fabric")(fabric.fabric)
app.command("predict")(predict_command)
app.command("compare")(compare.compare)
app.command("run", context_settings={"allow_interspersed_args": False})(run_command)
app.command("info")(info.info)
app.command("dump")(dump.dump)


GROUPS = {
    "run": (
        ("nvcoll bench all_reduce -n 8", "time algorithms beside numpy and the roofline"),
        ("nvcoll explain all_reduce -b 64K", "the algorithm that auto chooses, and why"),
        ("nvcoll run --on hgx-h100 script.py", "run a script, then predict its collectives on a machine"),
        ("nvcoll run -n 4 script.py", "start a script as four processes, each of them a rank"),
    ),
    "prove": (
        ("nvcoll verify mine.py:ring -n 8", "prove a schedule, or see its error"),
        ("nvcoll verify --all", "prove every algorithm"),
    ),
    "predict": (
        ("nvcoll predict all_reduce -b 1G", "the time of an NCCL collective, on machines you don't have"),
        ("nvcoll compare --on hgx-a100", "the fastest algorithm at each size, simulated"),
    ),
    "look": (
        ("nvcoll show all_reduce ring -n 4", "the steps of a schedule, as text or as a drawing"),
        ("nvcoll algorithms all_reduce", "algorithms: bytes moved, waits, sources"),
        ("nvcoll fabric hgx-h100", "machines: links and bandwidth, or a drawing"),
        ("nvcoll info", "this processor, and the defaults"),
        ("nvcoll dump", "what every rank of running jobs does: a call that hangs"),
    ),
}
"""The commands by purpose, each as an example."""


@app.callback(invoke_without_command=True)
def greet(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    """Lists the commands in groups, or prints the version."""
    if version:
        print(f"nvcoll {__version__}")
    elif context.invoked_subcommand is None:
        facts = machine()
        print(f"nvcoll {__version__}: run, prove and predict collectives; no GPU is needed")
        print(f"here: {facts['usable_cpus']} usable CPUs, {facts['cpu'] or 'unknown processor'}, {facts['isa']}")
        for group, rows in GROUPS.items():
            print(f"\n{group}")
            for line in aligned([(f"  {command}", words) for command, words in rows], left=(0, 1)):
                print(line)
        print("\nnvcoll COMMAND --help lists the options of a command, with an example")


def main() -> None:
    """Runs the command line."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the shell has closed it: `>&-`
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        getattr(sys, name).reconfigure(errors="replace")  # of a terminal that cannot show `…`
    app(prog_name="nvcoll")
