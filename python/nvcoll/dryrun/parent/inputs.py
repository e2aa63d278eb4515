"""The inputs of a recording: what its script read, as it was then, and whether all of it is still so.

The ranks note what they read (`inside.reads`); the parent compares. An input is as it was if its stamp is, or
else if its content is, as for a file that was touched or copied:

| input | content |
|---|---|
| a file up to `MOST_FILE_BYTES` | its bytes; of a larger one, size and time of change |
| a folder that the script listed | its names |
| a folder that an import searched | its names that may be modules that were imported or looked for |
| a path that the script asked for | whether it is a file, a folder or nothing |

What the script itself makes is no input: neither a file that it writes and then reads, nor names that it adds to
folders. If anything else changes while the script runs, its inputs are not known.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from nvcoll.dryrun.wire.stamps import METADATA, Note, Stamp, kind_of, may_be_imported, names_in, stamp_of
from nvcoll.dryrun.wire.whole import write_whole

MOST_FILE_BYTES = 16 << 20
"""The largest file whose bytes are compared. Chosen."""

MOST = 50_000
"""The most inputs of a recording that is kept. Chosen: comparing them takes a second."""

WAYS = ("read", "listed", "searched")
"""How a path was read: as a file; as a folder by the script; as a folder by an import."""

Row = tuple[Stamp, str]
"""Stamp and content of a path."""


class UnknownInputs(Exception):
    """The inputs of a script are not known; the message says why."""


@dataclass
class Inputs:
    """What a script read.

    Attributes:
        paths: stamp and content of each path, by the way in which it was read.
        asked: what each path is for which the script asked: `folder`, `file`, or an empty text.
        sought: last parts of the names of modules that were imported or sought.
        made: paths that the script made. They may be there or not.
        host: the name of this machine, if the script asked for it.
    """

    paths: dict[str, dict[str, Row]] = field(default_factory=lambda: {way: {} for way in WAYS})
    asked: dict[str, str] = field(default_factory=dict)
    sought: list[str] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    host: str = ""

    def digest(self) -> str:
        """Returns a name for these inputs."""
        return hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:16]

    def save(self, path: Path) -> None:
        """Writes them to a file, whole or not at all."""
        write_whole(path, gzip.compress(json.dumps(asdict(self)).encode(), compresslevel=1))

    @classmethod
    def load(cls, path: Path) -> Inputs:
        """Reads a file that `save` wrote; a damaged file raises any error."""
        rows = json.loads(gzip.decompress(path.read_bytes()))
        paths = {
            way: {path: (stamp and tuple(stamp), content) for path, (stamp, content) in rows["paths"][way].items()}
            for way in WAYS
        }
        return cls(**rows | {"paths": paths})

    def changed(self) -> str:
        """Returns the first input that is not as it was; an empty text: all are."""
        if self.host not in ("", os.uname().nodename):
            return "the name of this machine"
        sought, made = set(self.sought), set(self.made)
        for path, kind in self.asked.items():
            if kind_of(path) != kind:
                return path
        for way, rows in self.paths.items():
            for path, (stamp, content) in rows.items():
                now = stamp_of(path)
                if now == stamp or (now is None and path in made):
                    continue
                if now is None or stamp is None or content != _content(way, path, now, sought, made):
                    return path
        return ""


def inputs_of(noted: Iterable[Note]) -> Inputs:
    """Returns the inputs that ranks noted.

    Args:
        noted: the lines of all ranks, in the order of their time.

    Raises:
        UnknownInputs: an input changed while the script ran, or there are too many.
    """
    first: dict[str, dict[str, tuple[Stamp, Sequence[str] | None]]] = {way: {} for way in WAYS}
    found, made, sought = Inputs(), set[str](), set[str]()
    for what, path, stamp, names, kind in noted:
        if what == "sought":
            sought.add(path)
        elif what == "host":
            found.host = path
        elif what == "made":
            if not kind or not any(path in rows for rows in first.values()):  # else it was read before
                made.add(path)
        elif what == "asked":
            found.asked.setdefault(path, kind)
        elif what in first and path not in made:
            first[what].setdefault(path, (stamp, names))
    if (count := sum(map(len, first.values())) + len(found.asked)) > MOST:
        raise UnknownInputs(f"the script reads {count:,} files and folders, more than the {MOST:,} that are compared")
    found.made, found.sought = sorted(made), sorted(sought)
    found.asked = {path: kind for path, kind in found.asked.items() if path not in made}
    for path, kind in found.asked.items():
        if kind_of(path) != kind:
            raise UnknownInputs(f"{path} changed while the script ran")
    for way, rows in first.items():
        for path, (stamp, names) in rows.items():
            now = stamp_of(path)
            content = "" if now is None else _content(way, path, now, sought, made)
            if now != stamp and path not in made:
                then = None if stamp is None else _of_names(way, path, names, sought, made)
                if now is None or then is None or then != content:
                    raise UnknownInputs(f"{path} changed while the script ran")
            found.paths[way][path] = now, content
    return found


def noted_in(file: Path) -> list[Note] | None:
    """Returns what a rank noted in a file; None: it could not note all."""
    try:
        notes = [Note.of(line) for line in file.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError):
        return None
    return notes if notes and notes[0].what == "begun" else None


def _content(way: str, path: str, stamp: tuple[int, int, int, int], sought: set[str], made: set[str]) -> str:
    """Returns the content of a path that is there."""
    if way != "read":
        names = names_in(path)
        return (f"changed {stamp[1]}" if names is None else _of_names(way, path, names, sought, made)) or ""
    if stamp[0] > MOST_FILE_BYTES:
        return f"{stamp[0]} bytes, changed {stamp[1]}"
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:32]
    except OSError as error:  # a folder that was opened, or a file that may not be read
        return type(error).__name__


def _of_names(way: str, path: str, names: Sequence[str] | None, sought: set[str], made: set[str]) -> str | None:
    """Returns the content of a folder with these names; None if they are not known."""
    if names is None or way == "read":
        return None
    kept = [name for name in names if name != "__pycache__" and os.path.join(path, name) not in made]
    if way == "searched":
        kept = [name for name in kept if name.endswith(METADATA) or (may_be_imported(name) and _stem(name) in sought)]
    return hashlib.sha256("\n".join(kept).encode(errors="surrogateescape")).hexdigest()[:32]


def _stem(name: str) -> str:
    return name.partition(".")[0]
