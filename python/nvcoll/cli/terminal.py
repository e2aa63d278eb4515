"""Where tables are printed."""

from __future__ import annotations

from rich.console import Console

WIDEST = 1000
"""Columns of text that a table may take; a terminal that has less wraps its lines, and nothing is cut off. Chosen."""


class Output(Console):
    """Standard output. Where its reader goes away it raises, as ``print`` does, and does not exit by itself."""

    def __init__(self) -> None:
        super().__init__(width=WIDEST, highlight=False)

    def on_broken_pipe(self) -> None:
        """Called while a BrokenPipeError is handled."""
        raise BrokenPipeError
