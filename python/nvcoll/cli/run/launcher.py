"""Starts the ranks of a job as processes of this machine, and sees them to their end: ``nvcoll run -n N script.py``.

One thread does everything. It waits for the outputs of the ranks, their ends and signals, whichever comes first::

    an output        its lines are passed on, each with its rank (nvcoll.cli.run.lines)
    a rank fails     the other ranks are told to end (SIGTERM); those that have not ended after a while are killed;
                     with --keep-going the others go on
    a rank ends 0    nothing: the others go on
    a signal         Ctrl-C and the like are passed on to all ranks, which end by them or not

Each rank is in a session of its own. So Ctrl-C reaches it once, from here, and not a second time from the terminal; it
can be ended together with what it has started; and rank 0 may read from the terminal, which a group of processes in the
background of this session may not. The price: ranks control no terminal, and Ctrl-Z stops this process but no rank.

A rank is bound to this process (nvcoll.ranks.bound). If this process is killed, so are the ranks, but not what they
started.

A rank that has ended is not collected until the end: so its number is not given to another process, and a signal
to its group cannot reach a stranger.

Output that comes after the last rank has ended, from programs that ranks have started, is lost.
"""

from __future__ import annotations

import math
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import FrameType

from nvcoll.cli.run.lines import Lines
from nvcoll.ranks import bound, job
from nvcoll.ranks.failures import ending, listed
from nvcoll.ranks.launchers import torch_environment
from nvcoll.ranks.rank_counts import Inbox

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""The signals by which a user or the system ends a job."""

GRACE_S = 5.0
"""How long ranks have to end after another one has failed. Chosen: enough to write a checkpoint of a small model, and
short for somebody who waits."""

PIECE_BYTES = 1 << 16
"""How much of an output is read at once. Cited: pipe(7), a pipe holds as much."""


UNBUFFERED = {"PYTHONUNBUFFERED": "1"}
"""Has ranks write to their pipes at once, as to a terminal: otherwise lines come late, those of a killed rank never."""


@dataclass(eq=False)
class Rank:
    """A rank and its process.

    Attributes:
        number: the rank.
        process: its process, which is the first of its session.
        ended: a descriptor that is readable when the process has ended.
        status: its exit status, or minus the signal that killed it; None: it runs.
    """

    number: int
    process: subprocess.Popen[bytes]
    ended: int = -1
    status: int | None = None


@dataclass(frozen=True)
class Failure:
    """The first failure of a job.

    Attributes:
        status: the exit status of the job: that of the rank, or 128 + the signal that killed it.
        message: which rank it was and how it ended.
    """

    status: int
    message: str


def launch(
    script: Sequence[str],
    world_size: int,
    *,
    is_prefixed: bool,
    keeps_going: bool = False,
    inbox: Inbox | None = None,
) -> Failure | None:
    """Runs a script as the ranks of a job, to the end of all of them; returns the first failure.

    Only rank 0 reads standard input. A single rank has the outputs of this process.

    Args:
        script: the script and its arguments.
        world_size: the number of ranks.
        is_prefixed: each line of output begins with its rank.
        keeps_going: the other ranks go on when one fails.
        inbox: where ranks tell which calls they have made; None: they do not.

    Raises:
        OSError: a process cannot be started, or an output cannot be written. No rank is left.
    """
    for output in (sys.stdout, sys.stderr):
        output.flush()
    shared = [Lines(output.fileno(), is_prefixed=is_prefixed) for output in (sys.stdout, sys.stderr)]
    running = _Job(shared if world_size > 1 else (), keeps_going, inbox)
    with running.signals_passed_on():
        try:
            running.start(script, world_size)
            running.see_to_the_end()
        finally:
            running.close()
    return running.failure()


class _Job:
    """The ranks of a job."""

    def __init__(self, outputs: Sequence[Lines], keeps_going: bool, inbox: Inbox | None) -> None:
        self._outputs = outputs
        self._keeps_going = keeps_going
        self._inbox = inbox
        self._ranks: list[Rank] = []
        self._selector = selectors.DefaultSelector()
        self._signals: list[int] = []
        self._signalled = -math.inf
        self._failed: Rank | None = None
        self._unwritable: OSError | None = None
        self._is_ending = False
        self._deadline = math.inf
        self._killed: list[int] = []

    def start(self, script: Sequence[str], world_size: int) -> None:
        """Starts the ranks; none after a signal."""
        name, token = job.fresh("run")
        of_torch = torch_environment(world_size)
        python = [sys.executable, *subprocess._args_from_interpreter_flags()]  # type: ignore[attr-defined]
        for number in range(world_size):
            place = job.environment_of(number, world_size, name, token) | of_torch
            place |= {"RANK": str(number), "LOCAL_RANK": str(number)}
            if self._inbox is not None:
                place |= self._inbox.environment_of(number)
            try:
                self._start(number, [*python, *script], (UNBUFFERED if self._outputs else {}) | os.environ | place)
            except OSError as error:
                hint = "start fewer ranks, or raise the limits that `ulimit -a` shows"
                raise OSError(error.errno, f"rank {number} cannot be started ({error.strerror}): {hint}") from error
            if self._signals:
                _signal(self._ranks[-1], self._signals[-1])  # which may have come before the rank was listed
                return

    def _start(self, number: int, command: Sequence[str], environment: dict[str, str]) -> None:
        # -P -S: without the modules of the folder and of the user, of which one could be called as one of Python's
        binding = [sys.executable, "-P", "-S", bound.__file__, str(os.getpid())]
        pipe = subprocess.PIPE if self._outputs else None
        process = subprocess.Popen(
            [*binding, *command],
            stdin=None if number == 0 else subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            bufsize=0,
            env=environment,
            pass_fds=() if self._inbox is None else (self._inbox.descriptor,),
            start_new_session=True,
        )
        rank = Rank(number, process)
        self._ranks.append(rank)
        for lines, output in zip(self._outputs, (process.stdout, process.stderr), strict=False):
            assert output is not None
            self._selector.register(output, selectors.EVENT_READ, partial(self._read, rank, lines))
        rank.ended = os.pidfd_open(process.pid)
        self._selector.register(rank.ended, selectors.EVENT_READ, partial(self._note_end, rank))

    def see_to_the_end(self) -> None:
        """Passes outputs on until all ranks have ended, and ends them if one fails."""
        while self._running():
            for key, _ in self._selector.select(self._patience()):
                key.data(key)
            for lines in self._outputs:
                lines.pass_on_rests()
            self._judge()
        for key, _ in self._selector.select(0):  # a pipe is read to its end at once
            key.data(key)
        for lines in self._outputs:
            lines.end()
        self._judge()
        if self._unwritable is not None:
            raise self._unwritable

    def _read(self, rank: Rank, lines: Lines, key: selectors.SelectorKey) -> None:
        piece = os.read(key.fd, PIECE_BYTES)
        if piece:
            lines.take(rank.number, piece)
        else:
            self._selector.unregister(key.fileobj)

    def _note_end(self, rank: Rank, key: selectors.SelectorKey) -> None:
        self._selector.unregister(key.fileobj)
        found = os.waitid(os.P_PIDFD, rank.ended, os.WEXITED | os.WNOWAIT)
        assert found is not None
        rank.status = found.si_status if found.si_code == os.CLD_EXITED else -found.si_status

    def _judge(self) -> None:
        """Ends the ranks if one has failed or an output cannot be written, and kills those that do not end."""
        failed = [rank for rank in self._ranks if rank.status]
        self._unwritable = next((lines.error for lines in self._outputs if lines.error), None)
        now = time.monotonic()
        if self._failed is None:
            # Of several, one that was killed: others may have ended because it did.
            self._failed = min(failed, key=lambda rank: (rank.status or 0) > 0, default=None)
        must_end = self._unwritable or (failed and not self._keeps_going)
        if must_end and not self._is_ending:
            self._is_ending, self._deadline = True, now + GRACE_S
            if now - self._signalled > GRACE_S:  # else they are about to end by that signal
                self._send(signal.SIGTERM)
        if self._running() and now >= self._deadline:
            self._killed = [rank.number for rank in self._running()]
            self._deadline = math.inf
            self._send(signal.SIGKILL)

    def _running(self) -> list[Rank]:
        return [rank for rank in self._ranks if rank.status is None]

    def _patience(self) -> float | None:
        """Returns for how many seconds nothing is to be done if nothing happens; None: for ever."""
        due = min([self._deadline, *(lines.due() for lines in self._outputs)])
        return None if due == math.inf else max(0.0, due - time.monotonic())

    def _send(self, number: int) -> None:
        """Sends a signal to the ranks that run, and what they have started."""
        for rank in self._running():
            _signal(rank, number)

    @contextmanager
    def signals_passed_on(self) -> Iterator[None]:
        """Passes signals on meanwhile, except those that this process ignores."""

        def pass_on(number: int, _frame: FrameType | None) -> None:
            self._signals.append(number)
            self._signalled = time.monotonic()
            self._send(number)

        handlers = {one: signal.getsignal(one) for one in PASSED_ON}
        before = {one: handler for one, handler in handlers.items() if handler not in (signal.SIG_IGN, None)}
        try:
            for one in before:
                signal.signal(one, pass_on)
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    def close(self) -> None:
        """Kills what runs, and after a failure all that ranks have started; lets go of processes and descriptors."""
        if self._running() or self._failed is not None:
            for rank in self._ranks:
                _signal(rank, signal.SIGKILL)
        for rank in self._ranks:
            rank.process.wait()
            for output in (rank.process.stdout, rank.process.stderr):
                if output is not None:
                    output.close()
            if rank.ended >= 0:
                os.close(rank.ended)
        self._selector.close()

    def failure(self) -> Failure | None:
        """Returns the first failure."""
        if self._failed is None or self._failed.status is None:
            return None
        status = self._failed.status
        message = f"rank {self._failed.number} {ending(status)}"
        if -status in self._signals:
            message += ", which nvcoll run has passed on"
        if self._killed:
            message += f"; {listed(self._killed)} did not end within {GRACE_S:g} s, and had to be killed"
        return Failure(status if status > 0 else 128 - status, message)


def _signal(rank: Rank, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(rank.process.pid, number)
