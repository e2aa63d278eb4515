"""Options that ``nvcoll dryrun`` and ``nvcoll price`` share, and the destinations of results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from nvcoll._nvcoll import Fabric, InvalidArgument
from nvcoll.cli.machines import one_machine
from nvcoll.training import page

On = Annotated[str, typer.Option("--on", help="Machines, separated by commas, as hgx-h100x64+ib-ndr-8.")]
Recorders = Annotated[
    str | None, typer.Option("--on", help="Machines, separated by commas. Default: that of the recording.")
]
Tokens = Annotated[
    float | None, typer.Option(help="Tokens in a step of all ranks. Default: found in the recording.", min=0)
]
Version = Annotated[str | None, typer.Option("--nccl-version", help="Version of NCCL, as 2.27.7.")]
Html = Annotated[Path | None, typer.Option("--html", help="Write a page with charts.", metavar="FILE")]
Trace = Annotated[Path | None, typer.Option("--trace", help="Write streams for ui.perfetto.dev.", metavar="FILE")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True)
class Outputs:
    """Destinations of results: files, for one machine; JSON instead of text."""

    html: Path | None
    trace: Path | None
    as_json: bool

    def check(self, machines: Sequence[Fabric]) -> None:
        """Refuses files for several machines, and pages that cannot be drawn.

        Raises:
            InvalidArgument: there are a file and several machines, or a library is not installed.
        """
        given = [name for name, value in (("--html", self.html), ("--trace", self.trace)) if value is not None]
        if len(machines) > 1 and given:
            raise InvalidArgument(one_machine(given[0], len(machines)))
        if self.html is not None:
            page.libraries()
