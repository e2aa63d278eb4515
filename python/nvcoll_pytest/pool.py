"""A pool: the processes of the ranks, which stay from test to test, because it takes seconds to import torch.

::

    idle ──run──▶ running ──all ranks are done──▶ idle
                     │  a rank fails, others do not end within `GRACE_S`     ┐
                     │  a process ends                                       ├──▶ closed; the next test starts another
                     └─ the time is up: stacks and last calls of all ranks   ┘

A test of n ranks runs in the first n processes; the pool grows when a test needs more. Each process is in a session of
its own and ends with this process (`nvcoll.ranks.bound`).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

from nvcoll_pytest.setting import Setting
from nvcoll_pytest.worker import STACKS

GRACE_S = 3.0
"""How long ranks have to end after one has failed or died. Chosen: ranks of nvcoll hear of it at once."""

START_S = 120.0
"""How long workers have to start and to collect the tests. Chosen: torch is imported in seconds."""

STACKS_S = 1.0
"""How long a worker has to write its stacks. Chosen: it takes milliseconds."""


SHOWN_LINES = 40
"""The number of lines that are shown of what a dead rank has printed. Chosen."""


@dataclass
class RankResult:
    """What a rank has told of a test.

    Attributes:
        phases: the reports of set-up, call and tear-down, as data.
        calls: the last calls, newest first.
        failure: what went wrong outside of the test; None if nothing did.
        stacks: the stacks of its threads, if the time was up.
        is_done: whether it has come to the end of the test.
    """

    phases: list[dict[str, Any]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    failure: str | None = None
    stacks: str = ""
    is_done: bool = False

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
        self._pipes: list[Connection] = []
        self._processes: list[subprocess.Popen[bytes]] = []

    def _grow(self, world_size: int) -> None:
        """Starts the processes that are missing.

        Raises:
            RuntimeError: a process has not started; the message has what it printed.
        """
        new = range(len(self._pipes), world_size)
        try:
            for rank in new:
                self._start(rank)
            self._await_workers(new)
        except BaseException:
            self.close()
            raise

    def _start(self, rank: int) -> None:
        ours, theirs = Pipe()
        with open(self._folder / f"{rank}.out", "wb") as output, open(self._folder / f"{rank}.stacks", "wb") as stacks:
            command = [sys.executable, "-m", "nvcoll_pytest.worker", str(rank), str(theirs.fileno())]
            process = subprocess.Popen(
                [
                    *command,
                    str(stacks.fileno()),
                    str(os.getpid()),
                    *self._arguments,
                    f"--basetemp={self._folder}/tmp-{rank}",
                ],
                cwd=self._place,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(theirs.fileno(), stacks.fileno()),
                env=os.environ | self._variables(rank),
                start_new_session=True,
            )
        theirs.close()
        self._pipes.append(ours)
        self._processes.append(process)

    def _variables(self, rank: int) -> dict[str, str]:
        """Returns environment variables of a worker. The folder is for files that the ranks of a test share."""
        ours = {"NVCOLL_PYTEST_WORKER": str(rank), "NVCOLL_PYTEST_FOLDER": str(self._folder)}
        return ours | {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}

    def _await_workers(self, ranks: Sequence[int]) -> None:
        deadline = time.monotonic() + START_S
        for rank in ranks:
            pipe = self._pipes[rank]
            if not pipe.poll(max(deadline - time.monotonic(), 0)):
                raise RuntimeError(f"rank {rank} has not started within {START_S:g} s{self._output(rank)}")
            try:
                pipe.recv_bytes()
            except EOFError:
                raise RuntimeError(f"rank {rank} has not started{self._output(rank)}") from None

    def run(self, test: str, following: str | None, setting: dict[str, Any]) -> list[RankResult]:
        """Runs a test on all ranks; returns what each has told. If a rank has not come to the end, the pool is closed.

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
        words = json.dumps([test, following, asdict(whole)]).encode()
        results = [RankResult() for _ in range(whole.world_size)]
        for rank in range(whole.world_size):
            try:
                self._pipes[rank].send_bytes(words)
            except OSError:
                results[rank].failure = self._ending(rank)
        deadline, failed_at = time.monotonic() + whole.timeout_s, None
        while pending := [rank for rank, result in enumerate(results) if not (result.is_done or result.failure)]:
            now = time.monotonic()
            if failed_at is None and any(result.has_failed for result in results):
                failed_at = now
            until = deadline if failed_at is None else min(deadline, failed_at + GRACE_S)
            if now >= until:
                self._give_up(results, pending, whole, is_late=failed_at is None)
                break
            for pipe in wait([self._pipes[rank] for rank in pending], until - now):
                self._hear(self._pipes.index(pipe), results)  # type: ignore[arg-type]
        if not all(result.is_done for result in results):
            self.close()
        with suppress(OSError):
            os.unlink(whole.store)
        return results

    def _hear(self, rank: int, results: list[RankResult]) -> None:
        result = results[rank]
        try:
            kind, content = json.loads(self._pipes[rank].recv_bytes())
        except (EOFError, OSError):
            result.failure = self._ending(rank)
            return
        if kind == "phase":
            result.phases.append(content)
        elif kind == "done":
            result.is_done, result.calls = True, content
        else:
            result.is_done, result.failure = True, content

    def _give_up(self, results: list[RankResult], pending: Sequence[int], setting: Setting, *, is_late: bool) -> None:
        """Notes where the ranks are that have not come to the end."""
        for rank in pending:
            with suppress(OSError):
                self._processes[rank].send_signal(STACKS)
        time.sleep(STACKS_S)
        calls = _calls_from_outside([self._processes[rank].pid for rank in pending])
        for rank in pending:
            result = results[rank]
            result.stacks = (self._folder / f"{rank}.stacks").read_text(errors="replace")
            result.calls = calls.get(self._processes[rank].pid, [])
            why = f"has not ended within {setting.timeout_s:g} s"
            result.failure = why if is_late else f"has not ended within {GRACE_S:g} s after another rank had failed"

    def _ending(self, rank: int) -> str:
        from nvcoll.ranks.failures import ending

        status = self._processes[rank].wait()
        return f"its process {ending(status)}{self._output(rank)}"

    def _output(self, rank: int) -> str:
        """Returns the end of what a rank has printed outside of tests: the stacks of a crash, for example."""
        text = (self._folder / f"{rank}.out").read_text(errors="replace").strip()
        lines = [line for line in text.splitlines() if "/_pytest/" not in line and "/pluggy/" not in line]
        return "".join(f"\n{line}" for line in lines[-SHOWN_LINES:])

    def close(self) -> None:
        """Ends the processes, with what they have started."""
        self.is_open = False
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def _calls_from_outside(processes: Sequence[int]) -> dict[int, list[str]]:
    """Returns where ranks of nvcoll are, by process, without asking them: they may be stuck."""
    try:
        from nvcoll.ranks import recorders

        found, _ = recorders.jobs()
        ranks = [rank for job in found for rank in job.ranks if rank.pid in processes]
        return {rank.pid: [line for words in rank.words for line in _lines(words)] for rank in ranks}
    except Exception:  # this is for a message only
        return {}


def _lines(words: Any) -> list[str]:
    said = words.look()
    waits = [f"{words.communicator}: {wait[0]}" for wait in said["waits"]]
    return [*waits, *(f"{words.communicator}: call {number}, {call}" for number, call in said["recent"])]
