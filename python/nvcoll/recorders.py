"""What the ranks of running jobs do, read from outside: nobody is stopped, and nobody has to help.

Each rank that is a process keeps one descriptor per communicator open: its words, in which peers see how far it is.
They are files called ``nvcoll words`` below ``/proc/PID/fd``, which processes of the same user may open::

    jobs()          processes of this user   their words   by the name of the job, by rank, by communicator
    cli/trace.py    two looks, `PAUSE_S` apart: who has moved in between

Words of another version of nvcoll are refused by name. Ranks that are threads have no such files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from nvcoll import _nvcoll
from nvcoll._nvcoll import InvalidArgument, Recorder

PAUSE_S = 0.25
"""The time between two looks. Chosen: a call that gets on moves much faster."""

NAME = "/memfd:nvcoll words"
"""The name of a rank's words in lists of open files."""


@dataclass
class RankProcess:
    """A rank that is a process.

    Attributes:
        pid: the process, as it is numbered here.
        words: its words, the communicator of all ranks first.
    """

    pid: int
    words: list[Recorder]

    @property
    def rank(self) -> int:
        """Its rank in the job."""
        return self.words[0].rank

    @property
    def is_stopped(self) -> bool:
        """Whether a signal or a debugger has stopped the process."""
        with suppress(OSError):
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
        return False


@dataclass
class RunningJob:
    """The ranks of a job that were found, in order."""

    name: str
    ranks: list[RankProcess] = field(default_factory=list)

    @property
    def world_size(self) -> int:
        """The number of ranks that joined."""
        return self.ranks[0].words[0].world_size

    @property
    def cycle(self) -> str | None:
        """Ranks that wait for each other, in words."""
        return Recorder.cycle([rank.words[0] for rank in self.ranks])


def _words_of(pid: int) -> Iterator[tuple[tuple[int, int], Path]]:
    """Yields the words that a process has open: which file, and its path."""
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            if str(path.readlink()).startswith(NAME):
                status = path.stat()
                yield (status.st_dev, status.st_ino), path


def _processes() -> Iterator[int]:
    """Yields the processes of this user."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid == os.geteuid():
                yield int(entry.name)


def jobs() -> tuple[list[RunningJob], list[str]]:
    """Finds the jobs of this user.

    Returns:
        The jobs, by name, and why words that were found could not be read.
    """
    if not hasattr(_nvcoll, "Recorder"):
        raise InvalidArgument("ranks that are processes need Linux, and so do their records")
    files: dict[tuple[int, int], tuple[int, Recorder]] = {}
    refused: list[str] = []
    for pid in sorted(_processes()):
        with suppress(OSError):
            for file, path in _words_of(pid):
                try:
                    words = Recorder(path)
                except InvalidArgument as error:
                    refused.append(str(error))
                    continue
                # The child of a fork has the words of its parent open too.
                if file not in files or words.process == pid:
                    files[file] = pid, words
    found: dict[int, list[Recorder]] = {}
    for pid, words in files.values():
        found.setdefault(pid, []).append(words)
    named: dict[str, RunningJob] = {}
    for pid, of_rank in found.items():
        of_rank.sort(key=lambda one: not one.is_of_all)
        if of_rank[0].is_of_all:
            named.setdefault(of_rank[0].job, RunningJob(of_rank[0].job)).ranks.append(RankProcess(pid, of_rank))
    for job in named.values():
        job.ranks.sort(key=lambda rank: rank.rank)
    return sorted(named.values(), key=lambda job: job.name), refused
