"""The command line: ``nvcoll``. One function per command; tables and progress by rich, arguments by typer."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console

from nvcoll import Error, __version__
from nvcoll._nvcoll import machine
from nvcoll.cli import bench as bench_command
from nvcoll.cli import schedules

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, help="A multi-GPU node in a pip wheel.")
app.command("bench")(bench_command.bench)
app.command("verify")(schedules.verify)
app.command("show")(schedules.show)


@app.callback(invoke_without_command=True)
def greet(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    """Says what there is and what to try."""
    if version:
        print(f"nvcoll {__version__}")
    elif context.invoked_subcommand is None:
        facts = machine()
        print(f"nvcoll {__version__}: collectives between virtual GPUs, run, proved and timed on this machine")
        print(f"found   {facts['usable_cpus']} usable CPUs, {facts['cpu'] or 'unknown processor'}, {facts['isa']}")
        print("needs   no GPU, no driver, no CUDA")
        print()
        print("try     nvcoll bench all_reduce -n 8          ring, tree and nvswitch beside numpy")
        print("        nvcoll show all_reduce ring -n 4      the steps, and what waits for what")
        print("        nvcoll verify --all                   the proof of every algorithm")
        print("more    nvcoll --help, nvcoll info")


@app.command()
def info() -> None:
    """Prints cores, caches, the instruction set, and the defaults with their reasons."""
    facts = machine()

    def size(n: int | None) -> str:
        return "unknown" if n is None else f"{n / 2**20:g} MiB"

    quota = "none" if facts["cpu_quota"] is None else f"{facts['cpu_quota']:g} CPUs"
    print(f"cpu        {facts['cpu'] or 'unknown'}")
    print(f"usable     {facts['usable_cpus']} CPUs (affinity, and the control group's quota: {quota})")
    print(f"caches     L2 {size(facts['l2_bytes'])}, L3 {size(facts['l3_bytes'])}")
    print(f"kernels    {facts['isa']} (of {', '.join(facts['isas'])}); the bits of results do not depend on it")
    print("workers    one per usable CPU, at most one per rank: more would only wait for each other")
    print("algorithm  nvswitch: least bytes, and the same bits at any size")
    print("path       mapped: thread ranks reach each other's arrays directly")


def main() -> None:
    """Runs the command line; errors of nvcoll end it with status 2 and one line."""
    try:
        app()
    except Error as error:
        Console(stderr=True).print(f"nvcoll: {error}", highlight=False, markup=False, soft_wrap=True)
        sys.exit(2)
