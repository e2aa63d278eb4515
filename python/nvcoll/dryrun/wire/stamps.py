"""Stamps and names by which the parent finds that something has changed since a rank read it."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.machinery import all_suffixes
from itertools import islice
from typing import NamedTuple

MOST_NAMES = 4096
"""The most names of a folder that are compared; a folder with more counts by its time of change. Chosen."""

METADATA = (".pth", ".dist-info", ".egg-info")
"""Ends of the names of what installed packages leave in a folder beside their modules."""

STAT: Callable[..., os.stat_result] = os.stat
"""Of the interpreter: in a rank, `os.stat` notes which paths the script asks for."""

Stamp = tuple[int, int, int, int] | None


class Note(NamedTuple):
    """A line of what a rank noted while its script ran.

    Attributes:
        what: `begun`, `read`, `made`, `listed`, `searched`, `sought`, `asked` or `host`.
        path: a path, a module or a host.
        stamp: of what was read.
        names: in a folder; None: there are too many.
        kind: of what was asked for or made, as `kind_of` says.
    """

    what: str
    path: str
    stamp: Stamp = None
    names: Sequence[str] | None = None
    kind: str = ""

    @classmethod
    def of(cls, line: str) -> Note:
        """Reads a line of JSON."""
        what, path, stamp, names, kind = json.loads(line)
        return cls(what, path, stamp and tuple(stamp), names, kind)


def stamp_of(path: str) -> Stamp:
    """Returns what changes whenever a file or folder changes: size, times and number. None: there is nothing."""
    try:
        found = STAT(path)
    except (OSError, ValueError):
        return None
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def kind_of(path: str) -> str:
    """Returns `folder`, `file`, or an empty text for nothing."""
    try:
        return "folder" if stat.S_ISDIR(STAT(path).st_mode) else "file"
    except (OSError, ValueError):
        return ""


def names_in(path: str) -> list[str] | None:
    """Returns the names in a folder, sorted; None if there are too many, or no folder."""
    with suppress(OSError, ValueError), os.scandir(path) as entries:
        names = [entry.name for entry in islice(entries, MOST_NAMES + 1)]
        return sorted(names) if len(names) <= MOST_NAMES else None
    return None


def may_be_imported(name: str) -> bool:
    """Says whether a name in a folder may belong to a module, or to an installed package's metadata."""
    return "." not in name or name.endswith((*all_suffixes(), *METADATA))
