"""Reads the state of the ranks of running jobs from outside. It stops no rank, and no rank takes part.

Each rank that is a process keeps one descriptor per communicator open. The file behind it holds the rank's *words*: the
words in which the peers see the rank's progress. The file is called ``nvcoll words`` below ``/proc/PID/fd``. Processes
of the same user may open it::

    jobs()              processes of this user   their words   by the name of the job, by rank, by communicator
    cli/run/dump.py     reads the words twice, `PAUSE_S` apart, and shows the ranks that have moved in between

nvcoll refuses words of another version of nvcoll. Ranks that are threads have no such files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from nvcoll._nvcoll import InvalidArgument, Recorder
from nvcoll.without_engine import require

PAUSE_S = 0.25
"""The time between two reads. Chosen: a call that makes progress moves much faster."""

NAME = "/memfd:nvcoll words"
"""The name of a rank's words in lists of open files."""


@dataclass
class RankProcess:
    """A rank that is a process.

    Attributes:
        pid: the number of the process, as this process sees it.
        words: the words of the rank, one per communicator. The communicator of all ranks is first.
    """

    pid: int
    words: list[Recorder]

    @property
    def rank(self) -> int:
        """The rank in the job."""
        return self.words[0].rank

    @property
    def is_stopped(self) -> bool:
        """Whether a signal or a debugger has stopped the process."""
        with suppress(OSError):
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
        return False


@dataclass
class RunningJob:
    """A job, with the ranks that ``jobs`` found, in order of ranks."""

    name: str
    ranks: list[RankProcess] = field(default_factory=list)

    @property
    def world_size(self) -> int:
        """The number of ranks that joined the job."""
        return self.ranks[0].words[0].world_size

    @property
    def cycle(self) -> str | None:
        """The cycle of ranks that wait for each other, as text. None: there is no cycle."""
        return Recorder.cycle([rank.words[0] for rank in self.ranks])


def words_of(pid: int) -> Iterator[tuple[tuple[int, int], Path]]:
    """Yields the words that a process has open: device and inode of the file, and its path."""
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
        The jobs, sorted by name, and one message for each file of words that nvcoll could not read.
    """
    require("the records of ranks")
    files: dict[tuple[int, int], tuple[int, Recorder]] = {}
    refused: list[str] = []
    for pid in sorted(_processes()):
        with suppress(OSError):
            for file, path in words_of(pid):
                try:
                    words = Recorder(path)
                except InvalidArgument as error:
                    refused.append(str(error))
                    continue
                # After a fork, the child also has the words of its parent open.
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
