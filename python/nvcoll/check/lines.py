"""The lines of a log without what launchers, terminals and web pages put around them.

Removed are a byte order mark, colours, prefixes of ``mpirun --tag-output``, PRRTE, Hydra, ``srun -l``, Ray,
``kubectl`` and time stamps. Hydra's prefix may stand in the middle of a line. The numbers of lines stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PREFIXES = tuple(
    map(
        re.compile,
        (
            r"^\s*(?:> ?)+",
            r"^\s*\(\w[\w-]*, (?:rank=\d+, )?pid=\d+(?:, ip=[\d.]+)?\)\s?",
            r"^\s*\[?pod/[\w./-]+\]?\s",
            r"^\s*\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-][\d:]+)\s(?:std(?:out|err) [FP] )?",
            r"^\s*\[\d+(?:,\d+)?\](?:<std(?:out|err)>:?)?",
            r"^\s*\d{1,5}:(?=\s|$)",
            r"^[A-Za-z][\w.-]*:(?=\s+(?:#|\d+\s+\d+\s))",
        ),
    )
)
_IN_THE_MIDDLE = re.compile(r"(?<=\d)\[\d+\](?=\s)")


def cleaned(text: str) -> Iterator[tuple[int, str]]:
    """Yields number and content of each line that is not empty."""
    for number, raw in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        line = _COLOUR.sub("", raw).rstrip("\r").rsplit("\r", 1)[-1].replace("\xa0", " ")
        for prefix in _PREFIXES:
            line = prefix.sub("", line, count=1)
        line = _IN_THE_MIDDLE.sub(" ", line).strip()
        if line:
            yield number, line
