"""What a shell offers for an unfinished word: names of collectives and algorithms; `nvcoll.cli.machines` has machines.

Typer installs the completion (``nvcoll --install-completion``). A word for which nothing is offered is completed by the
shell itself, as the name of a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import typer

from nvcoll._nvcoll import algorithms as registry
from nvcoll._nvcoll import collective_spelled, patterns
from nvcoll._nvcoll import collectives as contracts


def collectives(incomplete: str) -> list[str]:
    """Returns the collectives and patterns that begin so."""
    return beginning(incomplete, dict.fromkeys([*(row.name for row in contracts()), *(row.name for row in patterns())]))


def algorithms(ctx: typer.Context, incomplete: str) -> list[str]:
    """Returns the algorithms of the named collective that begin so; of a list with commas the last is completed."""
    named = collective_spelled(str(ctx.params.get("collective") or ctx.params.get("name") or ""))
    names = dict.fromkeys(row.name for row in registry() if named in (None, row.collective))
    return last_of(incomplete, ",", names)


def among(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Returns what completes a word to one of some names, which are asked for only then."""
    return lambda incomplete: beginning(incomplete, names())


def last_of(incomplete: str, separator: str, names: Iterable[str]) -> list[str]:
    """Returns the word with its part behind the last separator completed."""
    before, found, last = incomplete.rpartition(separator)
    return [before + found + name for name in beginning(last, names)]


def beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    """Returns the names that begin so."""
    return [name for name in names if name.lower().startswith(incomplete.lower())]
