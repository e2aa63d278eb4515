"""The lines of a log without what launchers, terminals and web pages put around them.

Removed are the JSON of containers and of Ansible, a byte order mark, colours, prefixes of ``mpirun --tag-output``,
PRRTE, Hydra, ``srun -l``, Ray, ``kubectl``, Docker Compose, syslog, GitLab, torchx and loggers of Python, time stamps
and control characters. Hydra's prefix may stand in the middle of a line. The numbers of lines stay.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from nvcoll._nvcoll import InvalidArgument

MOST_LETTERS = 4096
"""The part of a line that is read. Chosen: lines of nccl-tests have at most 2048 characters."""

HEAD_BYTES = 8000
"""The number of bytes at the start, among which a zero makes a file binary, as in git."""

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that change what a terminal shows."""

_QUOTED = re.compile(r'\s*(?:\{.*"(?:log|message|msg|line)":\s*)?"((?:[^"\\]|\\.)*)"(?:,|,\s*".*\}|\})?')
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PREFIXES = (
    r"^\s*(?:> ?)+",
    r"^\s*\(\w[\w-]*(?:, (?:rank|pid)=\d+)*(?:, ip=[\d.]+)?\)\s",
    r"^[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+ [\w./-]+(?:\[\d+\])?:\s",
    r"^[A-Za-z][\w.-]*\s*\|\s(?!.*\|.*\|)",
    r"^\s*\[?pod/[\w./-]+\]?\s",
    r"^\s*\[?\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-][\d:]+)?\]?\s(?:std(?:out|err) [FP] |\d\d[OE][ +]?)?",
    r"^\[(?:DEBUG|INFO|WARNING|ERROR)\]\s",
    r"^\w+/\d+\s",
    r"^\s*\[?\d\d:\d\d:\d\d(?:\.\d+)?\]?\s",
    r"^\s*\[\d+(?:,\d+)?\](?:<std(?:out|err)>:?)?",
    r"^\s*\d{1,5}:(?=\s|$)",
    r"^(?:[A-Za-z][\w.-]*|\d+(?:\.\d+){3}):(?=\s+(?:#|\d+\s+\d+\s))",
)
_ANY_PREFIX = re.compile("|".join(_PREFIXES))
_IN_THE_MIDDLE = re.compile(r"(?<=\d)\[\d+\](?=\s)")


def decoded(name: str, content: bytes) -> str:
    """Returns the text of a file, in UTF-8, or in UTF-16 as PowerShell writes it.

    Raises:
        InvalidArgument: the file is no text.
    """
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16", errors="replace")
    if b"\0" in content[:HEAD_BYTES]:
        raise InvalidArgument(f"{name} is not a text file: pass the output of a benchmark, unpacked")
    return content.decode(errors="replace")


@lru_cache(maxsize=1)
def cleaned(text: str) -> Sequence[tuple[int, str]]:
    """Returns number and content of each line that is not empty; several formats read the same text."""
    lines = []
    for number, raw in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        line = raw.rstrip("\r").rsplit("\r", 1)[-1][:MOST_LETTERS]
        if not line.isprintable():  # a check that is faster than what it guards
            line = _COLOUR.sub("", line).replace("\xa0", " ")
        if '"' in line and (quoted := _QUOTED.fullmatch(line)) is not None:
            line = quoted[1].replace('\\"', '"').replace("\\t", " ").removesuffix("\\n")
        if not line.isprintable():
            line = _CONTROL.sub("", line)
        if _ANY_PREFIX.match(line):
            for prefix in _PREFIXES:
                line = re.sub(prefix, "", line, count=1)
        if line := _IN_THE_MIDDLE.sub(" ", line).strip():
            lines.append((number, line))
    return lines
