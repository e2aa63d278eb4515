"""The line of the script at which a rank is: the parent asks by a signal before it ends a rank at a limit.

::

    child     register(result): faulthandler writes the stack to RESULT.stack at the signal, also where C code hangs
    parent    line_of(process, result, folders): sends the signal, waits for the file, finds the script's line

The innermost frame in the script's folder counts; without one, the innermost frame outside of nvcoll, torch and the
standard library.
"""

from __future__ import annotations

import faulthandler
import os
import re
import sysconfig
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

SIGNAL = 43
"""The signal that asks for the stack. Chosen: a real-time signal of Linux, for which scripts have no handler."""

WAIT_S = 2.0
"""Seconds for which the parent waits for the stack. Chosen: the handler, in C, runs at once."""

_FRAME = re.compile(r'^ *File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<name>.*)$', re.MULTILINE)

_INSTALLED = "/site-packages/"
_OWN, _STANDARD = f"{Path(__file__).parents[2]}/", f"{sysconfig.get_path('stdlib')}/"


def register(result: str) -> None:
    """Has this process write its stack beside its recording when the parent asks."""
    faulthandler.register(SIGNAL, os.open(_beside(result), os.O_WRONLY | os.O_CREAT), all_threads=False)


def line_of(process: int, result: str | os.PathLike[str], folders: Sequence[Path]) -> str:
    """Returns the line of the script at which a process is, or "".

    Args:
        process: its id.
        result: the path of its recording.
        folders: of the script.
    """
    file = _beside(result)
    if not file.exists():  # it has not registered, and the signal would end it
        return ""
    earlier = len(file.read_bytes())
    with suppress(ProcessLookupError):
        os.kill(process, SIGNAL)
    end, text, before = time.monotonic() + WAIT_S, b"", b""
    while time.monotonic() < end and (not text or text != before):
        time.sleep(0.05)
        before, text = text, file.read_bytes()[earlier:]
    return _line(text.decode(errors="replace"), folders)


def _beside(result: str | os.PathLike[str]) -> Path:
    return Path(f"{os.fspath(result)}.stack")


def _line(text: str, folders: Sequence[Path]) -> str:
    frames = [(found["file"], f"{found['line']} {found['name']}") for found in _FRAME.finditer(text)]
    frames = [(file, where) for file, where in frames if file.startswith("/") and not file.startswith(_OWN)]
    homes = tuple(f"{folder}/" for folder in folders)
    for file, where in frames:
        if file.startswith(homes) and _INSTALLED not in file:
            home = next(home for home in homes if file.startswith(home))
            return f"{file.removeprefix(home)}:{where}"
    for file, where in frames:
        name = file.rpartition(_INSTALLED)[2]
        if not name.startswith((_STANDARD, "torch/")):
            return f"{name}:{where}"
    return ""
