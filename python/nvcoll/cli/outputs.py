"""The options that ``plan``, ``dryrun`` and ``price`` share, and where their reports go."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Annotated

import typer

from nvcoll._nvcoll import Fabric, InvalidArgument, parse_size
from nvcoll.cli import DOES_NOT_FIT, formats
from nvcoll.cli.machines import one_machine
from nvcoll.text.tables import print_lines
from nvcoll.training import page, trace
from nvcoll.training.report import Report, schema

HostSpeed = Annotated[
    float | None,
    typer.Option(
        "--host-speed", help="What nvcoll info --host-speed prints on the machine. Default: not known.", min=0.01
    ),
]


Html = Annotated[
    Path | None,
    typer.Option("--html", help="Write a page with charts, for one machine or several.", metavar="FILE"),
]


def _print_schema(wanted: bool) -> None:
    if wanted:
        print(schema(), end="")
        raise typer.Exit


@dataclass(frozen=True)
class Outputs:
    """Where a report goes: text, JSON or CSV to standard output; a page, and a trace of one machine, to files."""

    trace: Annotated[
        Path | None, typer.Option("--trace", help="Write the timeline for ui.perfetto.dev.", metavar="FILE")
    ] = None
    html: Html = None
    max_memory: Annotated[
        str | None, typer.Option(help="Exit with 3 above this memory of the fullest GPU: 70 or 70GiB; 75GB is decimal.")
    ] = None
    max_step: Annotated[float | None, typer.Option(help="Exit with 3 above this: seconds of a step.", min=0)] = None
    as_json: formats.AsJson = False
    as_csv: formats.AsCsv = False
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of --json.", callback=_print_schema, is_eager=True)
    ] = False

    def check(self, machines: Sequence[Fabric]) -> None:
        """Refuses what cannot be written, before anything runs.

        Raises:
            InvalidArgument: two formats at once, a trace of several machines, or a page without the libraries for it.
        """
        formats.check_one(json=self.as_json, csv=self.as_csv)
        _ = self.max_gib
        if self.trace is not None and len(machines) > 1:
            raise InvalidArgument(one_machine("--trace", len(machines)))
        if self.html is not None:
            page.libraries()

    @cached_property
    def max_gib(self) -> float | None:
        """The limit of memory in GiB: a number without a unit, or a size.

        Raises:
            InvalidArgument: it is neither.
        """
        if self.max_memory is None:
            return None
        with suppress(ValueError):
            if 0 <= (number := float(self.max_memory)) < inf:
                return number
        try:
            return parse_size(self.max_memory) / 2**30
        except InvalidArgument:
            raise InvalidArgument(
                f"--max-memory {self.max_memory} is no memory: pass GiB, as 70, or a size, as 70GiB or 75GB"
            ) from None

    def write(self, report: Report) -> None:
        """Prints a report and writes its files; if no step was priced, there is nothing for files.

        Raises:
            typer.Exit: a step is beyond a limit, or a script runs out of memory.
        """
        if self.trace is not None and report.found:
            trace.save(report.timeline(), self.trace)
        if self.html is not None and report.found:
            self.html.write_text(report.page(), encoding="utf-8")
        if self.as_json:
            print(report.to_json())
        elif self.as_csv:
            formats.print_csv(report.rows())
        else:
            print_lines(report.lines())
        beyond = [*self._beyond(report)]
        for one in beyond:
            print(f"nvcoll: {one}", file=sys.stderr)
        if beyond or report.out_of_memory:
            raise typer.Exit(DOES_NOT_FIT)

    def _beyond(self, report: Report) -> Iterator[str]:
        """Yields a sentence for each limit that a step exceeds."""
        for found in report.found:
            name = found.machine.name
            if self.max_step is not None and found.seconds > self.max_step:
                yield f"{name}: a step takes {found.seconds:.4g} s, more than --max-step {self.max_step:g}"
            if self.max_gib is not None and found.memory is None:
                yield f"{name}: the memory of the step is not known, and --max-memory is {self.max_memory}"
            elif self.max_gib is not None and found.memory_gib > self.max_gib:
                held = f"the fullest GPU holds {found.memory_gib:.4g} GiB"
                yield f"{name}: {held}, more than --max-memory {self.max_memory}"
