"""A pool: the processes of the ranks, which stay from test to test, because it takes seconds to import torch.

::

    idle ──run──▶ running ──all ranks are done──▶ idle
                     │  a rank fails, others do not end within `GRACE_S`     ┐
                     │  a process ends                                       ├──▶ closed; the next test starts another
                     └─ the time is up: stacks and last calls of all ranks   ┘

A test of n ranks runs in the first n processes; the pool grows when a test needs more. The supervisor
(`nvcoll.ranks.processes`) starts them, hears what they tell, and kills them.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Pipe
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from nvcoll_pytest.setting import Asked, Setting
from nvcoll_pytest.worker import STACKS

if TYPE_CHECKING:
    from nvcoll.ranks.processes import Process

Words = Mapping[tuple[int, int], Path]
"""Files of words of a rank: see `nvcoll.ranks.recorders`."""

START_S = 120.0
"""How long workers have to start and to collect the tests. Chosen: torch is imported in seconds."""

STACKS_S = 1.0
"""How long a worker has to write its stacks. Chosen: it takes milliseconds."""


SHOWN_LINES = 40
"""The number of lines that are shown of what a dead rank has printed. Chosen."""


@dataclass
class RankResult:
    """What a rank has reported of a test.

    Attributes:
        phases: the reports of set-up, call and tear-down, as data.
        calls: the last calls, newest first.
        failure: what went wrong outside of the test; None if nothing did.
        stacks: the stacks of its threads, if the time was up.
        awaited: the ranks for which it waits, in words, if the time was up and nvcoll knows them.
        is_done: whether it has come to the end of the test.
        has_died: whether its process has ended.
    """

    phases: list[dict[str, Any]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    failure: str | None = None
    stacks: str = ""
    awaited: str = ""
    is_done: bool = False
    has_died: bool = False

    @property
    def has_failed(self) -> bool:
        """Whether the test has failed on this rank."""
        return self.failure is not None or any(phase["outcome"] == "failed" for phase in self.phases)


class Pool:
    """Processes for ranks.

    Args:
        arguments: the arguments of pytest by which the workers collect the tests.
        place: the folder in which they run.
    """

    def __init__(self, arguments: Sequence[str], place: Path) -> None:
        self.is_open = True
        self._arguments, self._place = arguments, place
        self._folder = Path(tempfile.mkdtemp(prefix="nvcoll-ranks-"))
        self._tests = 0
        from nvcoll.ranks.processes import Supervisor  # here: pytest loads this file in every run

        self._ranks = Supervisor()

    def _grow(self, world_size: int) -> None:
        """Starts the processes that are missing.

        Raises:
            RuntimeError: a process has not started; the message has what it printed.
        """
        try:
            missing = {self._start(rank) for rank in range(len(self._ranks.processes), world_size)}
            deadline = time.monotonic() + START_S
            while missing:
                events = self._ranks.wait(deadline)
                if not events:
                    first = min(process.rank for process in missing)
                    raise RuntimeError(f"rank {first} has not started within {START_S:g} s{self._output(first)}")
                for process, message in events:
                    if message is None:
                        raise RuntimeError(f"rank {process.rank} has not started{self._output(process.rank)}")
                    missing.discard(process)
        except BaseException:
            self.close()
            raise

    def _start(self, rank: int) -> Process:
        ours, theirs = Pipe()
        with open(self._folder / f"{rank}.out", "wb") as output, open(self._folder / f"{rank}.stacks", "wb") as stacks:
            words = [str(rank), str(theirs.fileno()), str(stacks.fileno())]
            process = self._ranks.start(
                rank,
                [
                    *(sys.executable, "-m", "nvcoll_pytest.worker", *words),
                    *(*self._arguments, f"--basetemp={self._folder}/tmp-{rank}"),
                ],
                pipe=ours,
                cwd=self._place,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(theirs.fileno(), stacks.fileno()),
                env=os.environ | self._variables(rank),
            )
        theirs.close()
        return process

    def _variables(self, rank: int) -> dict[str, str]:
        """Returns environment variables of a worker. The folder is for files that the ranks of a test share."""
        ours = {"NVCOLL_PYTEST_WORKER": str(rank), "NVCOLL_PYTEST_FOLDER": str(self._folder)}
        return ours | {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}

    def run(self, test: str, following: str | None, setting: Asked) -> list[RankResult]:
        """Runs a test on all ranks; returns their reports. If a rank has not come to the end, the pool is closed.

        Args:
            test: its node id.
            following: the node id of the next test, whose fixtures stay.
            setting: the fields of `Setting`, without the store and the environment.

        Raises:
            RuntimeError: a process has not started.
        """
        from nvcoll.ranks.launchers import torch_environment

        self._grow(setting["world_size"])
        self._tests += 1
        store, environment = str(self._folder / f"store-{self._tests}"), torch_environment(setting["world_size"])
        whole = Setting(**setting, store=store, environment=environment)
        results = [RankResult() for _ in range(whole.world_size)]
        left_over = [_words_of(process.popen.pid) for process in self._ranks.processes[: whole.world_size]]
        for process in self._ranks.processes[: whole.world_size]:
            process.send([test, following, asdict(whole)])
            if process.status is not None:  # it has ended since the last test
                self._take(process, None, results[process.rank])
        self._ranks.deadline, has_failed = time.monotonic() + whole.timeout_s, False
        while pending := [rank for rank, result in enumerate(results) if not (result.is_done or result.failure)]:
            events = self._ranks.wait(self._ranks.deadline)
            if not events:
                self._give_up(results, pending, left_over, limit_s=None if has_failed else whole.timeout_s)
                break
            for process, message in events:
                if process.rank < whole.world_size:
                    self._take(process, message, results[process.rank])
            if not has_failed and any(result.has_failed for result in results):
                has_failed = True
                self._ranks.begin_grace()
        if not all(result.is_done for result in results):
            self.close()
        with suppress(OSError):
            os.unlink(whole.store)
        return results

    def _take(self, process: Process, message: Any, result: RankResult) -> None:
        if message is None:
            if not result.is_done and not result.has_died:
                result.has_died = True
                result.failure = f"its process {process.how()}{self._output(process.rank)}"
            return
        kind, content = message
        if kind == "phase":
            result.phases.append(content)
        elif kind == "done":
            result.is_done, result.calls = True, content
        elif kind == "ended":
            result.has_died, result.failure = True, content
        else:
            result.is_done, result.failure = True, content

    def _give_up(
        self, results: list[RankResult], pending: Sequence[int], left_over: Sequence[Words], *, limit_s: float | None
    ) -> None:
        """Notes where the ranks are that have not come to the end.

        Args:
            results: of all ranks.
            pending: these ranks.
            left_over: the words that each rank had open before the test: a failed test can leave its communicators.
            limit_s: how long the test may take; None if another rank has failed.
        """
        from nvcoll.ranks.processes import GRACE_S

        processes = [self._ranks.processes[rank].popen.pid for rank in pending]
        for process in processes:
            with suppress(OSError):
                os.kill(process, signal.Signals[STACKS])
        time.sleep(STACKS_S)
        for rank, process in zip(pending, processes, strict=True):
            result = results[rank]
            result.stacks = (self._folder / f"{rank}.stacks").read_text(errors="replace")
            result.calls, result.awaited = _calls_from_outside(_words_of(process, left_over[rank]))
            late = f"no end within {GRACE_S:g} s after another rank had failed"
            result.failure = late if limit_s is None else f"no end within {limit_s:g} s"

    def _output(self, rank: int) -> str:
        """Returns the end of what a rank has printed outside of tests: the stacks of a crash, for example."""
        text = (self._folder / f"{rank}.out").read_text(errors="replace").strip()
        lines = [line for line in text.splitlines() if "/_pytest/" not in line and "/pluggy/" not in line]
        return "".join(f"\n{line}" for line in lines[-SHOWN_LINES:])

    def close(self) -> None:
        """Ends the processes, with what they have started."""
        self.is_open = False
        self._ranks.kill()
        self._ranks.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _words_of(process: int, but: Words = MappingProxyType({})) -> Words:
    """Returns the files of words that a process has open, except those that it had open before."""
    from nvcoll.ranks import recorders

    with suppress(OSError):  # it has ended
        return {file: path for file, path in recorders.words_of(process) if file not in but}
    return {}


def _calls_from_outside(words: Words) -> tuple[list[str], str]:
    """Returns where a rank of nvcoll is, waits first, and for whom it waits, without asking it: it may be stuck."""
    from nvcoll._nvcoll import Recorder

    calls: list[str] = []
    waits: list[str] = []
    with suppress(Exception):  # this is for a message only
        for one in sorted(map(Recorder, words.values()), key=lambda one: not one.is_of_all):
            found, name = one.look(), "" if one.is_of_all else f"{one.communicator}: "
            waits += [words for words, _, has_timed_out in found["waits"] if not has_timed_out]
            calls += [f"{name}call {number}, {call}" for number, call in found["recent"]]
    return [*waits, *calls], waits[0].rpartition(" for ")[2] if waits else ""
