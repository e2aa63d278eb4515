"""Tables and sentences of text that fit a terminal.

A table that is too wide for the terminal is narrowed in this order, and only as far as needed::

    1. the last column is wrapped, if it is text (aligned left) and at least `LEAST_WRAPPED` wide then
    2. optional columns are left out, the first of `optional` first; a line below names them
    3. rows become columns, in blocks that are as wide as the terminal; no column is left out

So a column that answers the question is never optional: what was asked (the algorithms of ``compare ring,tree``), the
figure that decides (``vs best``), the words by which a row is found (the description of a machine).
Text that goes to a file or a pipe has no width, unless the environment variable COLUMNS sets one. Source: ours.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Container, Generator, Iterator, Sequence

from nvcoll.text.formatting import printable

UNLIMITED = 1 << 30
"""The width of text outside a terminal."""

LEAST = 40
"""The least width of a table; narrower terminals wrap it. Chosen."""

LEAST_WRAPPED = 24
"""The least width of a wrapped column. Chosen: some words a line."""

LABEL = 12
"""The width of the label before a sentence, in characters. Chosen."""

GAP = "  "


def terminal_columns() -> int:
    """Returns the columns of the terminal, or of COLUMNS; `UNLIMITED` if standard output is no terminal."""
    return max(shutil.get_terminal_size((UNLIMITED, 24)).columns, LEAST)


def aligned(rows: Sequence[Sequence[str]], left: Container[int] = ()) -> Iterator[str]:
    """Yields rows as lines; the columns with the indices ``left`` are aligned left, all others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell.ljust(width) if at in left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield GAP.join(cells).rstrip()


def fitted(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: Container[str] = (),
    optional: Sequence[str] = (),
    width: int | None = None,
) -> Generator[str, None, list[str]]:
    """Yields the lines of a table, each at most ``width`` characters long; returns the headings that it leaves out.

    Args:
        headings: one for each column.
        rows: the cells.
        left: headings of the columns that are aligned left.
        optional: headings of the columns that may be left out, the least important first.
        width: characters; default: the width of the terminal.
    """
    width = terminal_columns() if width is None else max(width, LEAST)
    table = [list(headings), *map(list, rows)]
    columns = [*range(len(headings))]

    def lines(shown: Sequence[int]) -> list[str]:
        at_left = {nth for nth, at in enumerate(shown) if headings[at] in left}
        return list(aligned([[row[at] for at in shown] for row in table], at_left))

    def narrow(shown: Sequence[int]) -> list[str] | None:
        """Returns the lines if they fit, where need be with the last column wrapped; else None."""
        whole, last = lines(shown), shown[-1]
        if max(map(len, whole)) <= width:
            return whole
        before = lines(shown[:-1])
        indent = max(map(len, before), default=width) + len(GAP)
        if headings[last] not in left or width - indent < LEAST_WRAPPED:
            return None
        cells = zip(before, table, strict=True)
        return [line for row, texts in cells for line in labelled(row, texts[last], width, label=indent)]

    left_out: list[str] = []
    found = narrow(columns)
    for heading in optional:
        if found is not None:
            break
        kept = [at for at in columns if headings[at] != heading]
        if len(kept) < len(columns):
            left_out += [table[0][at].strip() for at in columns if headings[at] == heading][:1]
            columns = kept
            found = narrow(columns)
    if found is not None:
        yield from found
    else:
        columns, left_out = [*range(len(headings))], []
        yield from _turned(table, width)
    if left_out := [name for name in left_out if name.strip("| ")]:
        named = f"column{'s' * (len(left_out) > 1)} left out: {', '.join(left_out)}"
        words = f"({named}; the terminal is {width} characters wide, `| cat` shows all)"
        yield from labelled("", words, width, label=0)
    return left_out


def _turned(table: list[list[str]], width: int) -> Iterator[str]:
    """Yields a table whose rows are columns, in blocks; cells that are wider than a block are wrapped."""
    heads, *rows = table
    shown = [at for at, head in enumerate(heads) if any(row[at].strip(" |") for row in rows)]
    labels = [heads[at].strip() for at in shown]
    while rows:
        count = next((n for n in range(len(rows), 1, -1) if _width(labels, rows[:n], shown) <= width), 1)
        block, rows = rows[:count], rows[count:]
        if _width(labels, block, shown) <= width:
            turned = [[label, *(row[at].strip() for row in block)] for label, at in zip(labels, shown, strict=True)]
            yield from aligned(turned, left=(0,))
        else:
            indent = max(map(len, labels)) + len(GAP)
            for label, at in zip(labels, shown, strict=True):
                yield from labelled(label, block[0][at].strip(), width, label=min(indent, width // 2))
        if rows:
            yield ""


def _width(labels: Sequence[str], rows: Sequence[Sequence[str]], shown: Sequence[int]) -> int:
    """Returns the width of a block of rows that are printed as columns."""
    return max(map(len, labels)) + sum(len(GAP) + max(len(row[at].strip()) for at in shown) for row in rows)


def labelled(name: str, sentence: str, width: int | None = None, label: int = LABEL) -> Iterator[str]:
    """Yields a sentence behind its label, wrapped to the width of the terminal and indented by ``label``."""
    width = terminal_columns() if width is None else max(width, LEAST)
    head = f"{name:{label}}" if len(name) < label or not name else f"{name} "
    if len(head) + len(sentence) <= width:
        yield (head + sentence).rstrip()
        return
    yield from textwrap.wrap(
        head + sentence, width, subsequent_indent=" " * label, break_long_words=True, break_on_hyphens=False
    )


def print_lines(lines: Iterator[str] | Sequence[str]) -> None:
    """Prints lines, without the terminal's commands that texts of files may have."""
    for line in lines:
        print(printable(line))


def print_labelled(name: str, sentence: str, label: int = LABEL) -> None:
    """Prints a sentence behind its label, wrapped to the width of the terminal."""
    print_lines(labelled(name, sentence, label=label))


def print_table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], left: Container[str] = (), optional: Sequence[str] = ()
) -> list[str]:
    """Prints a table that fits the terminal, and returns the headings that it leaves out; see `fitted`."""
    left_out: list[str] = []

    def lines() -> Iterator[str]:
        left_out.extend((yield from fitted(headings, rows, left=left, optional=optional)))

    print_lines(lines())
    return left_out
