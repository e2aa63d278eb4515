"""Reports as blocks: sentences with labels, tables, and empty lines, which a terminal and a notebook show alike.

`Blocks` is a report. It says what it consists of, and has the text, in the width of the terminal, and the HTML.
`beside` is the table of times on several machines that all reports have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from nvcoll.text.formatting import duration
from nvcoll.text.tables import LABEL, fitted, labelled


class Line(NamedTuple):
    """A sentence with its label; a headline has none, and a sentence that goes on below another has a blank."""

    label: str
    text: str


@dataclass(frozen=True)
class Table:
    """A table of text: headings, rows, the headings of columns that are aligned left, and of those that may go."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: Sequence[str] = ()
    optional: Sequence[str] = ()


Block = Line | Table | None
"""A part of the text; None is an empty line."""


def under(label: str, sentences: Iterable[str]) -> Iterator[Line]:
    """Yields sentences under one label."""
    return (Line(label if nth == 0 else " ", text) for nth, text in enumerate(sentences))


class Blocks:
    """A report of blocks: ``print`` shows it, a notebook too."""

    def blocks(self) -> Iterator[Block]:
        """Yields the parts of the text."""
        raise NotImplementedError

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def lines(self) -> Iterator[str]:
        """Yields the report as lines that fit the terminal."""
        for block in self.blocks():
            if block is None:
                yield ""
            elif isinstance(block, Table):
                yield from fitted(block.heads, block.rows, left=block.left, optional=block.optional)
            else:
                yield from labelled(block.label, block.text, label=LABEL if block.label else 0)


class Time(NamedTuple):
    """A predicted time on a machine, in seconds, with its 90 % interval; None: there is none."""

    machine: str
    seconds: float | None
    low_s: float | None
    high_s: float | None
    is_least: bool = False


def beside(
    what: str,
    times: Sequence[Time],
    columns: Mapping[str, Sequence[str]],
    *,
    against: tuple[str, float] | None = None,
    last: Mapping[str, Sequence[str]] | None = None,
    left: Sequence[str] = (),
    optional: Sequence[str] = (),
) -> Table:
    """Returns a table of machines: time, interval, more columns, and the time as a multiple of the best.

    Args:
        what: the heading of the time.
        times: one for each machine.
        columns: cells of other columns by their heading, before the multiple; ``last`` stand behind it.
        against: a name and the time that multiples refer to; default: the best.
        left, optional: headings of other columns, as in `Table`.
    """
    whose, base = against or ("best", min((one.seconds for one in times if one.seconds is not None), default=0.0))
    shown: dict[str, Sequence[str]] = {
        "machine": [one.machine for one in times],
        what: [">= " * one.is_least + taken(one.seconds) for one in times],
        "90 % interval": [taken(one.low_s, one.high_s) for one in times],
        **columns,
        f"vs {whose}": [f"{one.seconds / base:.2f}x" if one.seconds is not None and base else "-" for one in times],
        **(last or {}),
    }
    rows = [list(row) for row in zip(*shown.values(), strict=True)]
    return Table([*shown], rows, ("machine", *left), (*optional, "90 % interval"))


def taken(*seconds: float | None) -> str:
    """Writes a time, or an interval, as `duration`; ``-`` if it is not known."""
    known = [one for one in seconds if one is not None]
    return duration(*known) if len(known) == len(seconds) else "-"
