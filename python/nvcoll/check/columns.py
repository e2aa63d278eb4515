"""The columns of a table of nccl-tests, told apart by its line of names.

::

    size  count  type  redop  root   time  algbw  busbw  #wrong   time  algbw  busbw  #wrong   algo  nchannels
    [ what was run               ]   [ out of place          ]   [ in place              ]   [ not read     ]

The measured words are aligned with their names from the right, because redop and root may be blank. A `time`, or a
name that was there already, begins the second half. Columns that nvcoll does not know are skipped. Bars, commas and
semicolons between cells count as blanks. A row that has a type is found behind any prefix. Without a line of names,
the columns are those of nccl-tests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

BYTES = {
    **dict.fromkeys(("int8", "uint8", "char", "f8e4m3", "f8e5m2", "fp8_e4m3", "fp8_e5m2"), 1),
    **dict.fromkeys(("half", "bfloat16", "float16", "bf16", "fp16"), 2),
    **dict.fromkeys(("int32", "uint32", "int", "float", "float32", "fp32"), 4),
    **dict.fromkeys(("int64", "uint64", "double", "float64"), 8),
}
"""The size of an element of each type."""

_NAMES = {
    "size": r"(?:message_|msg_|data_)?size(?:_bytes)?|bytes",
    "count": "count|n|elements",
    "type": "(?:data_?)?type|dtype",
    "redop": "redop|op|reduction",
    "root": "root",
    "time": "time|latency",
    "cputime": "cputime",
    "algbw": "alg(?:orithm)?_?b(?:and)?w(?:idth)?",
    "busbw": "bus_?b(?:and)?w(?:idth)?",
    "#wrong": "#?wrong",
    "error": "errors?|res",
}
_TIMES = ("time", "cputime")
_MEASURED = (*_TIMES, "algbw", "busbw", "#wrong", "error")
_PRINTED = ("time", "algbw", "busbw", "error")
"""The columns of a half in nccl-tests; the last is the number of wrong elements in newer versions."""

_TWO_WORDS = re.compile(r"\b(?:(?:alg|algorithm|bus) (?:bw|bandwidth)|(?:message|msg|data) (?:size|type)|size bytes)\b")
_SIZED = re.compile(r"(?i)size|bytes|count|elements|\bn\b")
_UNIT = re.compile(r"\([^)]*\)|#(?!wrong)|[*`\"]|\btimestamp\b")
_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?|N/A|nan", re.IGNORECASE)
_STAMP = re.compile(r"\s+\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$")
_SIZE = re.compile(r"(\d{1,18})([KMGT]?)(?:i?B)?", re.IGNORECASE)
_TYPED = re.compile(rf"(?<![\w.-])(-?\d+)\s+(?:(-?\d+)\s+)?({'|'.join(BYTES)})\s+(.*)")


@dataclass(frozen=True)
class Cells:
    """The words of a row."""

    nbytes: int
    count: int
    """The number of elements; 0 if there is no such column."""
    dtype: str
    case: Sequence[str]
    """What else was run: operation, root, columns that somebody put in front."""
    halves: Sequence[Mapping[str, str]]
    """What was measured out of place and in place."""


def spaced(line: str) -> str:
    """Returns a line with blanks between its cells."""
    mark = next((mark for mark in "|,;" if line.count(mark) >= 3), None)
    return line.replace(mark, " ").strip() if mark else line


def is_number(word: str) -> bool:
    """Says whether a word is a number, or stands for a missing one."""
    return _NUMBER.fullmatch(word) is not None


@dataclass(frozen=True)
class Columns:
    """The names of a table in nvcoll's spelling; an empty one is not known."""

    names: Sequence[str] = ()

    @property
    def measured(self) -> Sequence[str]:
        """The names from the first one that was measured on."""
        first = next((at for at, name in enumerate(self.names) if name in _MEASURED), len(self.names))
        return self.names[first:]

    def row(self, line: str) -> Cells | str | None:
        """Returns the row in a line; None for other lines; why it cannot be read: an empty reason if it goes on."""
        line = _STAMP.sub("", spaced(line))
        found = _TYPED.search(line)
        if self.names and "type" not in self.names:
            return Columns().row(line) if found and found[2] else self._untyped(line.split())
        before = [name for name in self.names if name in ("size", "count")] or ["size", "count"]
        if found is None or (found[2] is None and len(before) > 1):
            return None
        numbers = dict(zip(reversed(before), [int(one) for one in (found[2], found[1]) if one], strict=False))
        count, width = numbers.get("count", 0), BYTES[found[3]]
        words = found[4].split()
        case = [*takewhile(lambda word: not is_number(word), words)]
        halves, root = self._aligned(words[len(case) :])
        if isinstance(halves, str):
            return halves
        return Cells(numbers.get("size", count * width), count, found[3], (found[3], *case, *root), halves)

    def _aligned(self, every: Sequence[str]) -> tuple[Sequence[Mapping[str, str]] | str, Sequence[str]]:
        """Returns the halves that words fill, or why they do not; and what stands before them."""
        words, names, numbers = every, self.measured, [*takewhile(is_number, every)]
        if all(names) or not self._fits(words[-len(names) :]) or len(words) - len(names) not in (0, 1):
            words, names = numbers, [name for name in names if name]
        for columns in (names, names[: len(names) // 2], (*names, *names)) if names else (2 * _PRINTED, _PRINTED):
            if columns and len(words) - len(columns) in (0, 1):
                return _halves(columns, words[-len(columns) :]), words[: -len(columns)]
        if len(numbers) < len(every):
            return f"`{every[len(numbers)]}` stands where a number is expected", ()
        most = len(names) or 2 * len(_PRINTED)
        return f"{len(words)} numbers stand where {most} are expected" if len(words) > most else "", ()

    def _fits(self, words: Sequence[str]) -> bool:
        """Says whether numbers stand under all names that are known."""
        pairs = zip(self.measured, words, strict=False)
        return len(words) == len(self.measured) and all(is_number(word) for name, word in pairs if name)

    def _untyped(self, words: Sequence[str]) -> Cells | None:
        """Returns the row of a table without types."""
        if "size" not in self.names:
            return None
        words = words[-len(self.names) :]
        at = self.names.index("size") - len(self.names)
        size = _SIZE.fullmatch(words[at]) if -at <= len(words) else None
        values = words[-len(self.measured) :]
        if size is None or not self._fits(values):
            return None
        nbytes = int(size[1]) << 10 * " KMGT".index(size[2].upper() or " ")
        return Cells(nbytes, 0, "", words[: -len(values)], _halves(self.measured, values))


def _halves(names: Sequence[str], words: Sequence[str]) -> Sequence[Mapping[str, str]]:
    """Returns the words of each half by name."""
    halves: list[dict[str, str]] = [{}]
    for name, word in zip(names, words, strict=True):
        if halves[-1] and (name in _TIMES or name in halves[-1]):
            halves.append({})
        if name:
            halves[-1]["time" if name in _TIMES else name] = word
    return halves


def named(line: str) -> Columns | None:
    """Returns the columns that a line names; None if it is no line of names."""
    if not _SIZED.search(line):
        return None
    text = " ".join(_UNIT.sub(" ", spaced(line).lower()).split())
    words = _TWO_WORDS.sub(lambda found: found[0].replace(" ", "_"), text).split()
    known = [next((name for name, one in _NAMES.items() if re.fullmatch(one, word)), "") for word in words]
    found = set(known) - {""}
    is_table = len(found) >= 3 and found & {"size", "count"} and found & {"algbw", "busbw", *_TIMES}
    return Columns(tuple(known)) if is_table and 2 * sum(map(bool, known)) >= len(known) else None
