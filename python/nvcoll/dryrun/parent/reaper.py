"""Ends the processes of a dry run and removes its folder, however the dry run itself ends.

A dry run has processes (its ranks, and what they start: workers of loaders, compilers) and one folder (messages between
ranks, recordings, temporary files). `Folder` makes the folder and starts this file as a process of its own, which holds
the other end of a pipe::

    dry run    --"4711\\n"-->   reaper       4711 is the first process of a session
    dry run    ends, or is killed: the pipe ends
                               reaper        kills the sessions, removes the folder, ends

So nothing is left after a SIGKILL, either. The process imports the standard library alone, and starts in 20 ms.

A process belongs to the dry run if it is of such a session, or if it began with a temporary folder in the folder of the
dry run, as a daemon of the script does. Processes that remove shared memory when all that use it have ended, as the
resource tracker of multiprocessing, are given the time for that.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Self

TRIES = 50
"""The most attempts to end all processes, and to remove the folder, 0.1 s apart. Chosen."""

CLEANERS = (b"multiprocessing.resource_tracker", b"loky.backend.resource_tracker", b"torch_shm_manager")
"""Parts of the commands of processes that remove shared memory."""


class Folder:
    """The folder of a dry run. ``with`` ends the processes that it owns and removes it.

    Attributes:
        path: where it is.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="nvcoll-dryrun-"))
        command = [sys.executable, "-I", "-S", __file__, str(self.path)]
        self._reaper = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, bufsize=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._reaper.stdin is not None
        self._reaper.stdin.close()
        self._reaper.wait()

    def owns(self, process: int) -> None:
        """Makes the session of a process end with this folder."""
        assert self._reaper.stdin is not None
        self._reaper.stdin.write(b"%d\n" % process)


def kill(sessions: Collection[int], folder: str) -> list[int]:
    """Kills the processes of a dry run except processes that clean up; returns both."""
    found = []
    for number in [int(name) for name in os.listdir("/proc") if name.isdecimal()]:
        if (cleans_up := _cleans_up(number, sessions, folder)) is not None:
            found.append(number)
            if not cleans_up:
                _kill(number)
    return found


def _kill(process: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(process, signal.SIGKILL)


def _cleans_up(number: int, sessions: Collection[int], folder: str) -> bool | None:
    """Says whether a process of the dry run cleans up, or may; None: it is not one of the dry run, or has ended."""
    place = Path(f"/proc/{number}")
    try:
        state, _, _, session = (place / "stat").read_text(errors="replace").rpartition(")")[2].split()[:4]
        if state in "ZX" or number == os.getpid():
            return None
        mark = f"TMPDIR={folder}/".encode()
        if int(session) not in sessions and mark not in (place / "environ").read_bytes():
            return None
        command = (place / "cmdline").read_bytes()
    except OSError:
        return None
    is_starting = not command  # while a process becomes another program it has no command
    return is_starting or any(name in command for name in CLEANERS)


def descendants(process: int) -> list[int]:
    """Returns a process and the processes that it has started, directly or not, and that did not leave it."""
    found = [process]
    for one in found:
        for file in Path(f"/proc/{one}/task").glob("*/children"):
            with suppress(OSError):
                found += map(int, file.read_text().split())
    return found


def reap(folder: str) -> None:
    """Waits for the end of standard input, which names sessions; kills these, then removes the folder."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    sessions = {int(line) for line in sys.stdin.buffer}
    for _ in range(TRIES):
        if not (left := kill(sessions, folder)):
            break
        time.sleep(0.1)
    for process in left:
        _kill(process)
    for _ in range(TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.exists(folder):
            return
        time.sleep(0.1)


if __name__ == "__main__":
    reap(sys.argv[1])
