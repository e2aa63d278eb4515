"""Processes that a script starts: processes of multiprocessing belong to their rank, programs do not.

| started by | sees the virtual GPU | what it reads is noted |
|---|---|---|
| `os.fork`, multiprocessing with fork | as torch allows: not at all | yes |
| multiprocessing with spawn or forkserver | yes: torch needs its libraries. Nothing is computed there | yes |
| `subprocess`, `os.system`, ... | no: it has the environment of ``nvcoll dryrun`` | no, which is noted |
| the same, `nvidia-smi` | the dry run has one (`inside.smi`) | it reads nothing |

A rank needs the variables of the virtual GPU when it starts, and no longer: `begin` takes them out of its environment,
so that nothing inherits them but what multiprocessing starts.
"""

from __future__ import annotations

import multiprocessing.util
import os
import shlex
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from traceback import walk_stack
from typing import Any

from nvcoll.dryrun.inside import events
from nvcoll.dryrun.inside.reads import Reads

OURS = ("from multiprocessing.spawn ", "from multiprocessing.forkserver ")
"""Beginnings of programs of Python's multiprocessing that run functions of the script."""

HERE = ("", "localhost", "127.0.0.1", "::1", "0.0.0.0")
"""Names of this machine."""


def begin(outside: Mapping[str, str | None], reads: str, own: Sequence[str], notes: bool = True) -> None:
    """Makes this process one of a rank.

    Args:
        outside: the variables as programs that the script starts get them; None: they have none.
        reads: the file in which processes note what they read; empty: they note nothing.
        own: as of `Reads`.
        notes: whether this process does not note yet what it reads.
    """
    inside = {name: os.environ.get(name) for name in outside}
    _set(outside)
    if reads and notes:
        Reads(reads, own).begin()
    plain, lock = multiprocessing.util.spawnv_passfds, Lock()
    first = f"from nvcoll.dryrun.inside.children import begin; begin({dict(outside)!r}, {reads!r}, {list(own)!r}); "

    def started(path: bytes, args: Sequence[Any], passfds: Sequence[int]) -> int:
        words = [os.fsdecode(word) for word in args]
        at = next((nth for nth, word in enumerate(words) if word.startswith(OURS)), None)
        if at is None:
            return plain(path, args, passfds)
        with lock:
            _set(inside)
            try:
                return plain(path, [*words[:at], first + words[at], *words[at + 1 :]], passfds)
            finally:
                _set(outside)

    multiprocessing.util.spawnv_passfds = started


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def listen(assume: Callable[[str], None]) -> None:
    """Notes programs that the script starts, and hosts that it asks for: what they say is no input of a recording."""

    def program(words: str | bytes | os.PathLike[str] | Sequence[str | bytes]) -> None:
        if not _is_of_torch():
            texts = [os.fsdecode(word) for word in ([words] if isinstance(words, str | bytes | os.PathLike) else words)]
            if texts[1:2] == ["-c"] and texts[0].endswith("sh"):
                texts = _split(texts[2])
            name = os.path.basename(texts[0]).rstrip(";") if texts else "a program"
            if name == "nvidia-smi":  # of the dry run
                return
            assume(f"the script starts `{name}`, without the virtual GPU: its reads are not compared in later runs")

    def host(name: object) -> None:
        text = os.fsdecode(name) if isinstance(name, str | bytes) else ""
        if text not in (*HERE, os.uname().nodename) and not _is_of_torch():
            assume(f"the script asks {text}: its answers are not compared in later runs")

    events.on("subprocess.Popen", lambda file, args, *_: program(args or [file]))
    events.on("os.posix_spawn", lambda _file, args, _environment: program(args))
    events.on("os.system", lambda command: program(_split(os.fsdecode(command))))
    events.on("socket.getaddrinfo", lambda name, *_: host(name))


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


def _is_of_torch() -> bool:
    """Says whether torch or Triton is at work: they compile kernels by programs."""
    aside = ("<", f"{sysconfig.get_path('stdlib')}/", f"{Path(__file__).parents[2]}/")
    installed = sysconfig.get_path("purelib")
    for frame, _ in walk_stack(sys._getframe(1)):
        file = frame.f_code.co_filename
        if not file.startswith(aside) or file.startswith(installed):
            return "/site-packages/torch/" in file or "/site-packages/triton/" in file
    return False
