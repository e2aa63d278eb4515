"""The command line: ``nvcoll``. One function per command; arguments by typer.

An error is one line on stderr: ``nvcoll: found, expected, remedy``. The exit status:

====  =====================================================================
0     success; for ``verify`` proved, for ``bench`` every element right, for ``check`` all logs healthy
1     a refuted schedule, a wrong element, or a log that is not healthy
2     an error: of the arguments, a file, memory or the disk
3     for ``dryrun``, the script runs out of memory of the GPU
130   interrupted (Ctrl-C)
141   the reader of the output ended (``nvcoll show ... | head``)
any   for ``run``, that of the script; with ``-n`` that of the first rank that failed
====  =====================================================================
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from nvcoll import Error, InvalidArgument, Refuted, __version__
from nvcoll._nvcoll import collectives
from nvcoll.cli import algorithms, check, fabric, hints, info, schedules, whatif
from nvcoll.cli.bench import explain
from nvcoll.cli.bench.bench import bench as bench_command
from nvcoll.cli.dryrun.dryrun import dryrun as dryrun_command
from nvcoll.cli.dryrun.dryrun import price as price_command
from nvcoll.cli.plan.plan import plan as plan_command
from nvcoll.cli.predict import compare
from nvcoll.cli.predict.predict import predict as predict_command
from nvcoll.cli.run import dump
from nvcoll.cli.run.run import run as run_command
from nvcoll.text.environment import VARIABLES

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
        if name not in self.commands and not ctx.resilient_parsing:
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
    epilog=f"{STATUS}\n\nEnvironment: {', '.join(row.name for row in VARIABLES)}: docs/cli.md.",
)
COMMANDS: dict[str, dict[str, Callable[..., None]]] = {
    "run": {"bench": bench_command, "explain": explain.explain, "run": run_command},
    "prove": {"verify": schedules.verify},
    "predict": {
        "predict": predict_command,
        "compare": compare.compare,
        "plan": plan_command,
        "dryrun": dryrun_command,
        "price": price_command,
        "whatif": whatif.whatif,
        "check": check.check,
    },
    "look": {
        "show": schedules.show,
        "algorithms": algorithms.algorithms,
        "fabric": fabric.fabric,
        "info": info.info,
        "dump": dump.dump,
    },
}
"""The commands by purpose."""

for purpose, commands in COMMANDS.items():
    for name, command in commands.items():
        takes_all = {"allow_interspersed_args": name not in ("run", "dryrun")}
        app.command(name, context_settings=takes_all, rich_help_panel=purpose)(command)


@app.callback(invoke_without_command=True)
def greet(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    """Run, prove and predict collectives; no GPU is needed."""
    if version:
        print(f"nvcoll {__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())


def main() -> None:
    """Runs the command line."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the shell has closed it: `>&-`
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        getattr(sys, name).reconfigure(errors="replace")  # of a terminal that cannot show `…`
    app(prog_name="nvcoll")
