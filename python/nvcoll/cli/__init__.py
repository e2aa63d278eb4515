"""The command line: ``nvcoll``. One function per command; arguments by typer.

An error is one line on stderr: ``nvcoll: found, expected, remedy``. `STATUSES` has the exit statuses. One thing has one
word in all commands: ``-n`` is the number of ranks, ``--save`` writes what the command found, ``--json`` prints it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from nvcoll import Error, InvalidArgument, Refuted, __version__
from nvcoll._nvcoll import collectives
from nvcoll.cli import hints, info
from nvcoll.text.environment import VARIABLES
from nvcoll.text.formatting import printable
from nvcoll.without_engine import require

REFUTED, CANNOT, DOES_NOT_FIT, INTERRUPTED, NO_READER = 1, 2, 3, 130, 141

STATUSES = {
    0: "success",
    REFUTED: "a refuted schedule, a wrong element, or a log that is not healthy",
    CANNOT: "an error: of the arguments, a file, memory or the disk; or a log that check cannot judge",
    DOES_NOT_FIT: "a step above --max-memory or --max-step, or a script of dryrun that runs out of GPU memory",
    INTERRUPTED: "interrupted (Ctrl-C)",
    NO_READER: "the reader of the output ended (nvcoll show ... | head)",
}
"""The exit statuses. ``run`` has the status of the script, or with ``-n`` of the first rank that failed."""


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
        message = hints.message(error)
    typer.echo(_printable_lines(f"nvcoll: {message}"), err=True)
    raise typer.Exit(status)


def _printable_lines(text: str) -> str:
    """Returns a text whose lines have no escapes of terminals."""
    return "\n".join(map(printable, text.split("\n")))


def _let_go_of_stdout() -> None:
    """Sends what is left in standard output's buffer to the null device: its reader has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Helps:
    """The help of a command: a value stands only beside options that take one."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Returns the parameters with their values as the help shows them."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for one in params:
            if isinstance(one, TyperOption) and one.metavar is None and (one.is_flag or one.multiple):
                one.metavar = "" if one.is_flag else "<str>"
        return params


OF_ENGINE = ("run", "dump", "bench", "explain")
"""Commands that need the engine."""


class Command(_Helps, TyperCommand):
    """A command."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the command, if this build can."""
        if self.name in OF_ENGINE:
            require(f"nvcoll {self.name}")
        return super().invoke(ctx)


class Commands(_Helps, TyperGroup):
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


HELP = {"help_option_names": ["-h", "--help"]}

COMMANDS = {
    "training steps": {"plan": "plan.plan", "dryrun": "dryrun.dryrun", "price": "dryrun.price"},
    "model servers": {"serve": "serve"},
    "collectives on machines": {"predict": "predict.predict", "compare": "predict.compare", "check": "check",
                                "fabric": "fabric"},
    "programs on this machine": {"run": "run.run", "dump": "run.dump", "bench": "bench.bench",
                                 "explain": "bench.explain", "info": "info"},
    "algorithms": {"algorithms": "algorithms", "show": "schedules", "verify": "schedules"},
}  # fmt: skip
"""The commands by purpose, each with its module: the function has the command's name."""

NAMES = [name for commands in COMMANDS.values() for name in commands]


def greet(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    """Predict training steps and collectives on GPUs that you do not have; prove and run collectives."""
    if version:
        print(f"nvcoll {__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())


def command_line(names: Collection[str] = NAMES) -> typer.Typer:
    """Returns the command line with some commands, whose modules are imported here: none waits for the others."""
    app = typer.Typer(
        cls=Commands,
        pretty_exceptions_enable=False,
        context_settings=HELP,
        epilog="\n\n".join(
            [
                f"Exit status: {', '.join(f'{status} {meaning}' for status, meaning in STATUSES.items())}.",
                "run exits with the status of the script, or of the first rank that failed.",
                *(f"Missing in this build: {one}." for one in info.missing()),
                f"Environment: {', '.join(row.name for row in VARIABLES)}: docs/reference/environment.md.",
            ]
        ),
    )
    app.callback(invoke_without_command=True)(greet)
    for purpose, commands in COMMANDS.items():
        for name, module in commands.items():
            if name in names:
                takes_all: dict[str, Any] = {"allow_interspersed_args": name not in ("run", "dryrun")}
                kept = app.command(name, cls=Command, context_settings=HELP | takes_all, rich_help_panel=purpose)
                kept(getattr(import_module(f"nvcoll.cli.{module}"), name))
    return app


def main() -> None:
    """Runs the command line."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the shell has closed it: `>&-`
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        getattr(sys, name).reconfigure(errors="replace")  # of a terminal that cannot show `…`
    command_line([name for name in sys.argv[1:2] if name in NAMES] or NAMES)(prog_name="nvcoll")
