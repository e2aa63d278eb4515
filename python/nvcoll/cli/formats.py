"""The option ``--csv``, and rows as CSV (RFC 4180, but lines end as elsewhere on the system)."""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from nvcoll._nvcoll import InvalidArgument

AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV.")]


def check_one(**asked: bool) -> None:
    """Refuses two formats at once.

    Raises:
        InvalidArgument: more than one is asked for.
    """
    given = [f"--{name}" for name, is_asked in asked.items() if is_asked]
    if len(given) > 1:
        raise InvalidArgument(f"{' and '.join(given)} print different things: pass one of them")


def print_csv(rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints rows of the same keys with a head; what is None is empty."""
    writer = csv.DictWriter(sys.stdout, rows[0] if rows else (), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
