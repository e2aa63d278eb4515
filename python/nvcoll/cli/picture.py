"""The file that ``--svg`` names."""

from __future__ import annotations

from pathlib import Path

import typer

from nvcoll import InvalidArgument


def write(file: Path, svg: str, what: str) -> None:
    """Writes a picture, and says on stderr what of.

    Raises:
        InvalidArgument: another kind of file, or one that cannot be written.
    """
    if file.suffix != ".svg":
        raise InvalidArgument(f"`{file}` is drawn as SVG: end it in .svg")
    try:
        file.write_text(svg)
    except OSError as error:
        raise InvalidArgument(f"`{file}` cannot be written: {error.strerror}") from None
    typer.echo(f"drawn to {file}: {what}", err=True)
