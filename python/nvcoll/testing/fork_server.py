"""The fork server: a process that has loaded nvcoll and numpy, and forks the ranks of one run after the other.

::

    the test                           fork server                ranks
    order                  ──▶         fork               ──▶     join, arm the fault, call the program
                                       collect            ◀──     report, count what is left, end
    reports, ends, what is left  ◀──   end what is left

Ranks end with the fork server (nvcoll.ranks.bound), which is their subreaper: a process that a rank leaves running
becomes its child. It answers when it has no more children.

The fork server forks, so it starts no threads. The linear algebra library of numpy may start threads. It handles forks
itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import pickle
import resource
import select
import signal
import struct
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from nvcoll.ranks import bound, job, membership
from nvcoll.ranks.processes import prepare
from nvcoll.ranks.spawned import raised, returned
from nvcoll.testing.faults import Fault
from nvcoll.testing.residue import Residue, children, residue, residue_since

REPORT_S = 10.0
"""The time that processes have to report and end after a run is over. Chosen: far more than they need."""

GRACE_S = 1.0
"""The time that processes which ranks have started may outlive them. Then the fork server kills them. Chosen."""

PR_SET_CHILD_SUBREAPER = 36
"""Cited: linux/prctl.h."""


@dataclass(frozen=True)
class Order:
    """One run: see ``nvcoll.testing.run_ranks``."""

    program: bytes
    modules: tuple[str, ...]
    world_size: int
    job: tuple[str, bytes]
    fault: Fault | None
    timeout_s: float
    call_timeout_s: float | None
    path: tuple[str, ...]
    folder: str
    environment: dict[str, str] = field(repr=False)


@dataclass
class Report:
    """The report of a rank at its end: its result or exception, pickled, and the resources that it left open."""

    how: tuple[Any, ...] = ()
    ended_s: float | None = None
    residue: Residue = field(default_factory=Residue)


@dataclass
class End:
    """The report of a rank, as far as it has come, and the end of its process."""

    pipe: int
    chunks: list[bytes] = field(default_factory=list)
    status: int | None = None
    is_overdue: bool = False
    is_stopped: bool = False
    was_stopped: bool = False

    def report(self) -> Report:
        """Returns the report; an empty one if the rank has died before it had written it."""
        try:
            report: Report = pickle.loads(b"".join(self.chunks))
        except Exception:
            return Report()
        return report


Answer = tuple[list[End], list[int], tuple[int, int] | None]
"""The end of each rank; the processes left running; the fault's time and steps."""


def main(pipe: Connection) -> None:
    """Carries out orders until the other end of the pipe is closed."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1))
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    np.random.default_rng(np.ones(1, "i8").sum())  # numpy loads its random numbers late
    prepare(pipe)
    wakes, wake = os.pipe()
    os.set_blocking(wakes, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with contextlib.suppress(EOFError, OSError):
        while True:
            order = pipe.recv()
            pipe.send(carry_out(order, pipe, wakes))


def carry_out(order: Order, pipe: Connection, wakes: int) -> Answer:
    """Runs ranks."""
    os.chdir(order.folder)
    os.environ.clear()
    os.environ.update(order.environment)
    sys.path[:] = order.path
    for module in order.modules:
        with contextlib.suppress(Exception):  # the rank reports it
            importlib.import_module(module)
    gc.collect()
    gc.freeze()
    heard, strikes = os.pipe()
    os.set_blocking(heard, False)
    server, ends = os.getpid(), dict[int, End]()
    for rank in range(order.world_size):
        report, reports = os.pipe()
        ends[fork(partial(be_process, order, rank, server, reports, strikes))] = End(report)
        os.close(reports)
    os.close(strikes)
    collect(ends, wakes, pipe, order.timeout_s)
    left = reap()
    words = b""
    with contextlib.suppress(BlockingIOError):
        words = os.read(heard, 16)
    os.close(heard)
    return list(ends.values()), left, struct.unpack("=QQ", words) if words else None


def fork(work: Callable[[], object]) -> int:
    """Does some work in a child process, and returns the number of the child. The child ends after the work."""
    process = os.fork()
    if process == 0:
        try:
            work()
        except SystemExit:
            raise  # the process ends as any program that raises it
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    return process


def reap() -> list[int]:
    """Waits until no child is left. Returns the children that it had to kill."""
    killed: set[int] = set()
    end = time.monotonic() + GRACE_S
    while True:
        try:
            process, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return sorted(killed)
        if process == 0:
            if time.monotonic() > end:
                killed |= children()
                for child in children():
                    os.kill(child, signal.SIGKILL)
            time.sleep(0.001)


def collect(ends: dict[int, End], wakes: int, pipe: Connection, timeout_s: float) -> None:
    """Reads reports until all processes have ended. Continues stopped processes last, and kills late ones."""
    by_pipe = {end.pipe: end for end in ends.values()}
    limit: float | None = time.monotonic() + timeout_s
    while any(end.status is None for end in ends.values()):
        patience_s = None if limit is None else max(0.0, limit - time.monotonic())
        ready, _, _ = select.select([wakes, pipe.fileno(), *by_pipe], [], [], patience_s)
        if pipe.fileno() in ready:
            os._exit(1)  # the test is gone, and ranks end with this process
        for descriptor in ready:
            if descriptor == wakes:
                os.read(wakes, 4096)
            elif chunk := os.read(descriptor, 1 << 20):
                by_pipe[descriptor].chunks.append(chunk)
            else:
                del by_pipe[descriptor]
        note_ends(ends)
        running = {process: end for process, end in ends.items() if end.status is None}
        if not ready:
            for process, end in running.items():
                end.is_overdue = True
                os.kill(process, signal.SIGKILL)
            limit = None
        elif running and all(end.is_stopped for end in running.values()):
            for process, end in running.items():
                end.is_stopped = False
                os.kill(process, signal.SIGCONT)
    for end in ends.values():
        os.set_blocking(end.pipe, False)
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(end.pipe, 1 << 20):
                end.chunks.append(chunk)
        os.close(end.pipe)


def note_ends(ends: dict[int, End]) -> None:
    """Notes which processes have ended or were stopped."""
    for process, end in ends.items():
        if end.status is not None:
            continue
        number, status = os.waitpid(process, os.WNOHANG | os.WUNTRACED)
        if number and os.WIFSTOPPED(status):
            end.is_stopped = end.was_stopped = True
        elif number:
            end.status = os.waitstatus_to_exitcode(status)


def be_process(order: Order, rank: int, server: int, report: int, strikes: int) -> None:
    """Runs the process of a rank.

    Args:
        order: the run.
        rank: the rank.
        server: its parent, with which it ends.
        report: the descriptor for its report.
        strikes: the descriptor for the time of the fault and the steps done before it.
    """
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    bound.end_with_parent(server)
    data = memoryview(pickle.dumps(be_rank(order, rank, strikes)))
    while data:
        data = data[os.write(report, data) :]


def be_rank(order: Order, rank: int, strikes: int) -> Report:
    """Runs one rank of a job."""
    os.environ.update(job.environment_of(rank, order.world_size, *order.job))
    before = residue()
    limits = {one: resource.getrlimit(one) for one in (resource.RLIMIT_AS, resource.RLIMIT_NOFILE)}
    report = call(order, strikes)
    for one, limit in limits.items():
        resource.setrlimit(one, limit)  # a fault may have lowered it
    (membership.finalize if report.how[0] == "returned" else membership.fail)()
    report.residue = residue_since(before, patience_s=GRACE_S)
    return report


def call(order: Order, strikes: int) -> Report:
    """Joins the job, arms the fault and calls the program. Afterwards nothing keeps the communicator alive."""
    report = Report()
    try:
        comm = membership.init(timeout=order.call_timeout_s, join_timeout=order.timeout_s)
        fn, args = pickle.loads(order.program)
        if order.fault is not None:
            order.fault.arm(comm, strikes)
        value = fn(comm, *args)
        report.ended_s = time.monotonic()
        report.how = returned(value)
    except SystemExit:
        raise
    except BaseException as error:
        report.ended_s = report.ended_s or time.monotonic()
        report.how = raised(error)
    return report
