"""The statement of a script that ends a step (`--step-at`), where no `torch.optim.Optimizer` does."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple


class Statement(NamedTuple):
    """A statement: its place as it was typed, its file, and its first and last line; of a function, of its body."""

    place: str
    file: str
    first: int
    last: int

    @classmethod
    def at(cls, place: str, *folders: Path) -> Statement:
        """Returns the innermost statement at a place.

        Args:
            place: file and line, as ``train.py:24``.
            folders: the folders in which the file may be.

        Raises:
            ValueError: there is none; the message says why.
        """
        name, _, number = place.rpartition(":")
        file = next((folder / name for folder in folders if (folder / name).is_file()), None)
        if file is None or not number.isdecimal():
            raise ValueError(f"`{place}` is no line of a file")
        found = [
            node
            for node in ast.walk(ast.parse(file.read_bytes()))
            if isinstance(node, ast.stmt) and node.lineno <= int(number) <= (node.end_lineno or 0)
        ]
        if not found:
            raise ValueError(f"{file} has no statement in line {number}")
        node = max(found, key=lambda one: one.lineno)
        first = (node.body[0] if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else node).lineno
        return cls(place, str(file.resolve()), first, node.end_lineno or first)
