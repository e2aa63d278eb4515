"""The supervisor of rank processes, for ``nvcoll run -n``, ``nvcoll.spawn``, tests on ranks and ``nvcoll.testing``.

::

    start     a process is the first of a session of its own, and ends with this one, however this one ends
    wait      for what processes tell, and for their ends, whichever comes first
    grace     after the first failure the other ranks have `GRACE_S` to end by themselves
    kill      a process and its session: all that it has started
    close     collects all processes, and lets go of descriptors

In a session of its own a rank gets no Ctrl-C of the terminal, only what its supervisor passes on. A process that has
ended is not collected before `close`: so its number is not given to another process, and a signal to its session cannot
reach a stranger.

A rank that runs a function of this program is a new Python process. It gets ``sys.path`` and the main module from a
pipe, as ``multiprocessing`` tells its own processes, and afterwards tells what happens by the same pipe.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import spawn
from multiprocessing.connection import Connection, Pipe
from typing import IO, Any, Self

from nvcoll.ranks import bound
from nvcoll.ranks.failures import ending

GRACE_S = 3.0
"""How long ranks have to end after another one has failed. Chosen: enough to tell what happened to them and to write a
small checkpoint, and short for somebody who waits."""

START = (
    "import sys; from importlib import import_module; from multiprocessing.connection import Connection; "
    "pipe = Connection(int(sys.argv[1])); sys.path[:] = pipe.recv(); import_module(sys.argv[2]).main(pipe)"
)
"""The program of a process that runs a module of nvcoll."""


@dataclass(frozen=True)
class Fork:
    """A process that a process of the supervisor has forked, and does not collect."""

    pid: int
    stdout: IO[bytes] | None = None
    stderr: IO[bytes] | None = None

    def wait(self) -> None:
        """Leaves the process to its parent."""

    def kill(self) -> None:
        """Kills the process."""
        os.kill(self.pid, signal.SIGKILL)


@dataclass(eq=False)
class Process:
    """A process of a rank, as its supervisor sees it.

    Attributes:
        rank: the rank.
        popen: the process, which is the first of its session.
        ended: a descriptor that is readable when the process has ended.
        pipe: the connection with it, if it has one.
        status: its exit status, or minus the signal that killed it; None: it runs.
    """

    rank: int
    popen: subprocess.Popen[bytes] | Fork
    ended: int
    pipe: Connection | None = None
    status: int | None = None

    def signal(self, number: int) -> None:
        """Sends a signal to the process and to what it has started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.popen.pid, number)

    def how(self) -> str:
        """Says how it ended."""
        assert self.status is not None
        return ending(self.status)

    def send(self, message: object) -> None:
        """Sends a message. A process that has ended gets none: its end says why."""
        assert self.pipe is not None
        with suppress(OSError):
            self.pipe.send(message)


Event = tuple[Process, Any]
"""A message from a process; None: it has ended."""


class Supervisor:
    """The processes of some ranks. ``with`` kills those that run at its end, and after an exception all they started.

    Attributes:
        processes: by the order of their start.
        deadline: when the processes must have ended, by the monotonic clock.
    """

    def __init__(self, timeout_s: float | None = None) -> None:
        self.processes: list[Process] = []
        self.deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self.kill()
        self.close()

    def start(self, rank: int, command: Sequence[str], *, pipe: Connection | None = None, **how: Any) -> Process:
        """Starts a process.

        Args:
            rank: its rank.
            command: the program and its arguments.
            pipe: the end of a connection whose messages `wait` returns.
            **how: the other arguments of ``subprocess.Popen``.

        Raises:
            OSError: it cannot be started.
        """
        # -P -S: without the modules of the folder and of the user, one of which could have the name of one of Python's
        binding = [sys.executable, "-P", "-S", bound.__file__, str(os.getpid())]
        popen = subprocess.Popen([*binding, *command], start_new_session=True, **how)
        return self.add(rank, popen, pipe)

    def add(self, rank: int, popen: subprocess.Popen[bytes] | Fork, pipe: Connection | None = None) -> Process:
        """Adds a process that was started; arguments as for `start`."""
        try:
            process = Process(rank, popen, os.pidfd_open(popen.pid), pipe)
        except OSError:
            popen.kill()
            popen.wait()
            raise
        self.processes.append(process)
        self._selector.register(process.ended, selectors.EVENT_READ, (process, None))
        if pipe is not None:
            self.watch(process, pipe, lambda: _received(pipe))
        return process

    def start_python(self, rank: int, module: str, place: dict[str, str]) -> Process:
        """Starts a process that calls ``main(pipe)`` of a module, with some environment variables of its own."""
        ours, theirs = Pipe()
        with theirs:
            flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
            process = self.start(
                rank,
                [sys.executable, *flags, "-c", START, str(theirs.fileno()), module],
                pipe=ours,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                env=os.environ | place,
            )
        preparation = spawn.get_preparation_data(f"nvcoll-rank-{rank}")
        process.send(sys.path)
        process.send({**preparation, "authkey": bytes(preparation["authkey"])})
        return process

    def watch(self, process: Process, source: IO[bytes] | Connection, read: Callable[[], object]) -> None:
        """Has `wait` return what `read` returns whenever a source is readable. None: the source has ended."""
        self._selector.register(source, selectors.EVENT_READ, (process, read))

    def wait(self, until: float = math.inf) -> list[Event]:
        """Waits for what processes tell or for the end of one; returns nothing if a time comes first."""
        while True:
            ready = self._selector.select(None if until == math.inf else max(0.0, until - time.monotonic()))
            events = [event for key, _ in ready for event in self._read(key)]
            if events or not ready:
                return events

    def _read(self, key: selectors.SelectorKey) -> list[Event]:
        process, read = key.data
        if read is None:
            return self._end(process, key)
        if (message := read()) is not None:
            return [(process, message)]
        self._selector.unregister(key.fileobj)
        return []

    def _end(self, process: Process, key: selectors.SelectorKey) -> list[Event]:
        """Notes the end of a process; returns the messages that are left in its pipe, and the end."""
        self._selector.unregister(key.fileobj)
        process.status = _status_of(process)
        rest = []
        with suppress(OSError):
            while process.pipe is not None and process.pipe.poll() and (message := _received(process.pipe)) is not None:
                rest.append((process, message))
        return [*rest, (process, None)]

    def running(self) -> list[Process]:
        """Returns the processes that have not ended."""
        return [process for process in self.processes if process.status is None]

    def begin_grace(self) -> None:
        """Gives the processes `GRACE_S` to end, because one has failed."""
        self.deadline = min(self.deadline, time.monotonic() + GRACE_S)

    def kill(self) -> None:
        """Kills all processes, and what they have started."""
        for process in self.processes:
            process.signal(signal.SIGKILL)

    def close(self) -> None:
        """Kills the processes if one runs, collects all, and lets go of descriptors."""
        if self.running():
            self.kill()
        for process in self.processes:
            process.popen.wait()
            for file in (process.pipe, process.popen.stdout, process.popen.stderr):
                if file is not None:
                    file.close()
            os.close(process.ended)
        self.processes = []
        self._selector.close()


def prepare(pipe: Connection) -> None:
    """Makes this process, which `Supervisor.start_python` has started, like its parent: path, folder, main module."""
    os.set_inheritable(pipe.fileno(), False)
    process: Any = multiprocessing.current_process()
    process._inheriting = True  # a main module that starts processes at its import is refused by multiprocessing
    try:
        spawn.prepare(pipe.recv())
    finally:
        del process._inheriting


def _status_of(process: Process) -> int:
    """Returns the exit status of a process that has ended, or minus the signal that killed it."""
    if isinstance(process.popen, Fork):
        try:
            with open(f"/proc/{process.popen.pid}/stat", "rb") as file:
                return os.waitstatus_to_exitcode(int(file.read().split()[-1]))
        except OSError:  # collected, as its parent has ended, too
            return -signal.SIGKILL
    found = os.waitid(os.P_PIDFD, process.ended, os.WEXITED | os.WNOWAIT)
    assert found is not None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


def _received(pipe: Connection) -> Any:
    try:
        return pipe.recv()
    except (EOFError, OSError):
        return None
