"""The options ``--json``, ``--csv`` and ``--schema``: what a command found, for programs.

The JSON of a command is one object, whose key ``schema`` names its JSON Schema: ``schemas/COMMAND.json`` here. CSV is
as in RFC 4180, but lines end as elsewhere on the system.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from nvcoll._nvcoll import InvalidArgument
from nvcoll.text.formatting import json_text

SCHEMAS = Path(__file__).with_name("schemas")
"""The folder of the JSON Schemas, one for each command."""


def schema(command: str) -> str:
    """Returns the JSON Schema of what a command prints with ``--json``."""
    return (SCHEMAS / f"{command}.json").read_text(encoding="utf-8")


def _print_schema(context: typer.Context, wanted: bool) -> None:
    if wanted:
        print(schema(str(context.info_name)), end="")
        raise typer.Exit


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV.")]
Schema = Annotated[
    bool, typer.Option("--schema", help="Print the JSON Schema of --json.", callback=_print_schema, is_eager=True)
]


def check_one(**asked: bool) -> None:
    """Refuses two formats at once.

    Raises:
        InvalidArgument: more than one is asked for.
    """
    given = [f"--{name}" for name, is_asked in asked.items() if is_asked]
    if len(given) > 1:
        raise InvalidArgument(f"{' and '.join(given)} print different things: pass one of them")


@dataclass(frozen=True)
class Printed:
    """What a command prints instead of text."""

    as_json: AsJson = False
    as_csv: AsCsv = False
    schema: Schema = False

    def __post_init__(self) -> None:
        check_one(json=self.as_json, csv=self.as_csv)


def print_json(command: str, document: Mapping[str, Any]) -> None:
    """Prints the object of a command."""
    print(json_text(f"nvcoll.{command}/1", document))


def print_csv(rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints rows of the same keys with a head; what is None is empty."""
    writer = csv.DictWriter(sys.stdout, rows[0] if rows else (), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
