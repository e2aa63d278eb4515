"""Ends the processes of a dry run and removes its folder, however the dry run itself ends.

A dry run has processes (its ranks, and what they start: workers of loaders, compilers) and one folder (messages between
ranks, recordings, temporary files). `Folder` makes the folder and starts this file as a process of its own, which holds
the other end of a pipe::

    dry run    --"4711\\n"-->   reaper       4711 is the first process of a session
    dry run    ends, or is killed: the pipe ends
                               reaper        kills the sessions, removes the folder, ends

So nothing is left after a SIGKILL, either. The process imports the standard library alone, and starts in 20 ms.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

TRIES = 50
"""The most attempts to remove the folder, 0.1 s apart, while killed processes still write to it. Chosen."""


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


def reap(folder: str) -> None:
    """Waits for the end of standard input, which names sessions; kills these, then removes the folder."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for session in [int(line) for line in sys.stdin.buffer]:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(session, signal.SIGKILL)
    for _ in range(TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.exists(folder):
            return
        time.sleep(0.1)


if __name__ == "__main__":
    reap(sys.argv[1])
