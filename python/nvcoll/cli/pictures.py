"""The files of ``--svg``."""

from __future__ import annotations

from pathlib import Path

import typer

from nvcoll import InvalidArgument

MOST_PIXELS = 8000
"""The largest width or height of a drawing of a schedule or a machine. Chosen: two screens of 4k."""


def write_svg(file: Path, svg: str, what: str) -> None:
    """Writes a drawing to the file that ``--svg`` names, and says on stderr what it shows.

    Raises:
        InvalidArgument: the file is not called .svg.
        OSError: it cannot be written.
    """
    if file.suffix != ".svg":
        raise InvalidArgument(f"`{file}` is not an .svg file: end its name in .svg")
    file.write_text(svg)
    typer.echo(f"drawn to {file}: {what}", err=True)


def width_of(svg: str) -> int:
    """Returns the width of a drawing in pixels."""
    return int(svg.partition(' width="')[2].partition('"')[0])
