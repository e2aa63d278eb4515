"""Starts a script, or the ranks of a job, as processes of this machine, and sees them to their end: ``nvcoll run``.

One thread does everything. It waits for the outputs of the ranks, their ends and signals, whichever comes first::

    an output        its lines are passed on, each with its rank (nvcoll.text.lines)
    a rank fails     the other ranks get SIGTERM; ranks that have not ended after a while are killed;
                     with --keep-going the others go on
    a rank ends 0    nothing: the others go on
    a signal         Ctrl-C and the like are passed on to all ranks, which end by them or not

Ranks are in sessions of their own, and end with this process (nvcoll.ranks.processes). So Ctrl-C reaches a rank once,
from here, and not a second time from the terminal; and rank 0 may read from the terminal, which a group of processes in
the background of this session may not. The price: ranks control no terminal, and Ctrl-Z stops this process but no rank.
A second Ctrl-C kills the ranks.

Output that comes after the last rank has ended, from programs that ranks have started, is lost.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import IO

from nvcoll.ranks import job, processes
from nvcoll.ranks.launchers import torch_environment
from nvcoll.ranks.processes import Process, Supervisor
from nvcoll.ranks.rank_counts import Inbox
from nvcoll.text.formatting import listed
from nvcoll.text.lines import Lines

PASSED_ON = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")
"""The signals by which a user or the system ends a job, by name: Windows lacks the last two."""

PIECE_BYTES = 1 << 16
"""How much of an output is read at once. Cited: pipe(7), a pipe holds as much."""


INTERRUPTED = 130
"""The exit status after Ctrl-C, however ranks end by it. Cited: shells give 128 + SIGINT."""

UNBUFFERED = {"PYTHONUNBUFFERED": "1"}
"""Has ranks write to their pipes at once, as to a terminal: otherwise lines come late, or never."""


@dataclass(frozen=True)
class Failure:
    """The first failure of a job.

    Attributes:
        status: the exit status of the job: of the rank, or 128 + the signal that killed it; 130 after Ctrl-C.
        message: which rank it was and how it ended.
        ranks: all ranks that have failed.
    """

    status: int
    message: str
    ranks: list[int]


def launch(
    script: Sequence[str],
    world_size: int | None,
    *,
    is_prefixed: bool,
    keeps_going: bool = False,
    inbox: Inbox | None = None,
) -> Failure | None:
    """Runs a script as the ranks of a job, to the end of all of them; returns the first failure.

    Only rank 0 reads standard input. A single rank has the outputs of this process.

    Args:
        script: the script and its arguments.
        world_size: the number of ranks. None: the script is one process, and no rank.
        is_prefixed: each line of output begins with its rank.
        keeps_going: the other ranks go on when one fails.
        inbox: where ranks report their calls; None: they do not.

    Raises:
        OSError: a process cannot be started, or an output cannot be written. No rank is left.
    """
    for output in (sys.stdout, sys.stderr):
        output.flush()
    shared = [Lines(output.fileno(), is_prefixed=is_prefixed) for output in (sys.stdout, sys.stderr)]
    running = _Job(shared if (world_size or 1) > 1 else (), keeps_going, inbox)
    with running, running.signals_passed_on():
        running.start_all(script, world_size)
        running.see_to_the_end()
    return running.failure()


class _Job(Supervisor):
    """The ranks of a job."""

    def __init__(self, outputs: Sequence[Lines], keeps_going: bool, inbox: Inbox | None) -> None:
        super().__init__()
        self._outputs = outputs
        self._keeps_going = keeps_going
        self._inbox = inbox
        self._signals: list[int] = []
        self._signalled = -math.inf
        self._is_interrupted = False
        self._first: Process | None = None
        self._failed: list[int] = []
        self._killed: list[int] = []
        self._unwritable: OSError | None = None

    def start_all(self, script: Sequence[str], world_size: int | None) -> None:
        """Starts the ranks; none after a signal."""
        places = [dict[str, str]()] if world_size is None else _places(world_size)
        python = [sys.executable, *subprocess._args_from_interpreter_flags()]  # type: ignore[attr-defined]
        for number, place in enumerate(places):
            if self._inbox is not None:
                place |= self._inbox.environment_of(number, is_rank=world_size is not None)
            try:
                rank = self._start(number, [*python, *script], os.environ | place)
            except OSError as error:
                hint = "start fewer ranks, or raise the limits that `ulimit -a` shows"
                raise OSError(error.errno, f"rank {number} cannot be started ({error.strerror}): {hint}") from error
            if self._signals:
                rank.signal(self._signals[-1])  # which may have come before the rank was listed
                return

    def _start(self, number: int, command: Sequence[str], environment: dict[str, str]) -> Process:
        pipe = subprocess.PIPE if self._outputs else None
        rank = self.start(
            number,
            command,
            stdin=None if number == 0 else subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            bufsize=0,
            env=(UNBUFFERED if self._outputs else {}) | environment,
            pass_fds=() if self._inbox is None else (self._inbox.descriptor,),
        )
        for lines, output in zip(self._outputs, (rank.popen.stdout, rank.popen.stderr), strict=False):
            assert output is not None
            self._pass_on(rank, lines, output)
        return rank

    def _pass_on(self, rank: Process, lines: Lines, output: IO[bytes]) -> None:
        def read() -> tuple[Lines, bytes] | None:
            piece = os.read(output.fileno(), PIECE_BYTES)
            return (lines, piece) if piece else None

        self.watch(rank, output, read)

    def see_to_the_end(self) -> None:
        """Passes outputs on until all ranks have ended, and ends them if one fails."""
        while self.running():
            self._hear(min([self.deadline, *(lines.due() for lines in self._outputs)]))
            for lines in self._outputs:
                lines.pass_on_rests()
            self._judge()
        self._hear(0)  # a pipe is read to its end at once
        for lines in self._outputs:
            lines.end()
        self._judge()
        if self._failed:
            self.kill()  # what ranks have started
        if self._unwritable is not None:
            raise self._unwritable

    def _hear(self, until: float) -> None:
        ended = []
        for rank, output in self.wait(until):
            if output is None:
                ended.append(rank)
            else:
                lines, piece = output
                lines.take(rank.rank, piece)
        failed = [rank for rank in ended if rank.status]
        if failed and self._first is None:
            self._is_interrupted = signal.SIGINT in self._signals
        self._failed += [rank.rank for rank in failed]
        if self._first is None:
            # Of several, one that was killed: others may have ended because it did.
            self._first = min(failed, key=lambda rank: (rank.status or 0) > 0, default=None)

    def _judge(self) -> None:
        """Ends the ranks if one has failed or an output cannot be written, and kills ranks that do not end."""
        self._unwritable = next((lines.error for lines in self._outputs if lines.error), None)
        now = time.monotonic()
        must_end = self._unwritable or (self._failed and not self._keeps_going)
        if must_end and self.deadline == math.inf and not self._killed:
            self.begin_grace()
            if now - self._signalled > processes.GRACE_S:  # else they are about to end by that signal
                self._send(signal.SIGTERM)
        if now >= self.deadline and self.running():
            self._killed = [rank.rank for rank in self.running()]
            self.deadline = math.inf
            self.kill()

    def _send(self, number: int) -> None:
        """Sends a signal to the ranks that run, and what they have started."""
        for rank in self.running():
            rank.signal(number)

    @contextmanager
    def signals_passed_on(self) -> Iterator[None]:
        """Passes signals on meanwhile, except signals that this process ignores."""

        def pass_on(number: int, _frame: FrameType | None) -> None:
            is_second = number == signal.SIGINT and number in self._signals
            self._signals.append(number)
            self._signalled = time.monotonic()
            self._send(signal.SIGKILL if is_second else number)

        handlers = {one: signal.getsignal(one) for one in map(signal.Signals.__getitem__, PASSED_ON)}
        before = {one: handler for one, handler in handlers.items() if handler not in (signal.SIG_IGN, None)}
        try:
            for one in before:
                signal.signal(one, pass_on)
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    def failure(self) -> Failure | None:
        """Returns the first failure."""
        if self._first is None or self._first.status is None:
            return None
        status = self._first.status
        message = f"rank {self._first.rank} {self._first.how()}"
        if -status in self._signals:
            message += ", which nvcoll run has passed on"
        elif self._is_interrupted:
            message = "interrupted: nvcoll run has passed signal 2 (SIGINT) on to the ranks"
        if self._killed:
            message += f"; {listed(self._killed)} did not end within {processes.GRACE_S:g} s, and had to be killed"
        status = INTERRUPTED if self._is_interrupted else status if status > 0 else 128 - status
        return Failure(status, message, self._failed)


def _places(world_size: int) -> list[dict[str, str]]:
    """Returns the variables from which each rank reads its place: nvcoll's, and torchrun's."""
    (name, token), of_torch = job.fresh("run"), torch_environment(world_size)
    return [
        job.environment_of(rank, world_size, name, token) | of_torch | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        for rank in range(world_size)
    ]
