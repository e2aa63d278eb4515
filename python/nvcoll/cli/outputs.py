"""The options that ``plan``, ``dryrun`` and ``price`` share, and where their reports go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

import typer

from nvcoll._nvcoll import Fabric, InvalidArgument, StepPricer, fabric
from nvcoll.cli import formats
from nvcoll.cli.machines import Env, NcclVersion, one_machine
from nvcoll.text.tables import print_lines
from nvcoll.training import page, trace
from nvcoll.training.planning import Machine
from nvcoll.training.report import Report, schema


def _print_schema(wanted: bool) -> None:
    if wanted:
        print(schema(), end="")
        raise typer.Exit


@dataclass(frozen=True)
class Conditions:
    """What of NCCL is not the default."""

    nccl_version: NcclVersion = None
    env: Env = None

    def machine(self, fabric: Fabric, gpus: int | None = None) -> Machine:
        """Returns a machine on which steps are priced."""
        return Machine(fabric, gpus, version=self.nccl_version, settings=self.settings)

    @cached_property
    def settings(self) -> dict[str, str]:
        """The environment of NCCL.

        Raises:
            InvalidArgument: an ``--env`` has no value, or a name occurs twice.
        """
        settings: dict[str, str] = {}
        for one in self.env or ():
            name, equals, value = one.partition("=")
            if not equals:
                raise InvalidArgument(f"--env {one} has no value: pass --env {one}=VALUE")
            if name in settings:
                raise InvalidArgument(f"--env {name} is given twice: pass it once")
            settings[name] = value
        return settings

    def check(self) -> None:
        """Refuses what NCCL has not, for a command that answers also without a prediction, which would refuse it.

        Raises:
            InvalidArgument: NCCL has no such setting, value or version.
        """
        any_machine = fabric("hgx-h100")
        StepPricer(any_machine, any_machine.world_size, settings=self.settings)
        any_machine.predict("all_reduce", 1, version=self.nccl_version)


@dataclass(frozen=True)
class Outputs:
    """Where a report goes: text, JSON or CSV to standard output; a page, and a trace of one machine, to files."""

    trace: Annotated[
        Path | None, typer.Option("--trace", help="Write the timeline for ui.perfetto.dev.", metavar="FILE")
    ] = None
    html: Annotated[
        Path | None,
        typer.Option("--html", help="Write a page with charts, for one machine or several.", metavar="FILE"),
    ] = None
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
        if self.trace is not None and len(machines) > 1:
            raise InvalidArgument(one_machine("--trace", len(machines)))
        if self.html is not None:
            page.libraries()

    def write(self, report: Report) -> None:
        """Prints a report and writes its files; if no step was priced, there is nothing for files."""
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
