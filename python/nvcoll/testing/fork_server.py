"""The fork server: a process that has loaded nvcoll and numpy, and forks the ranks of one run after the other.

::

    the test                    fork server        launcher          ranks
    order                  ──▶  fork          ──▶  fork         ──▶  join, arm the fault, call the program
    "began", their numbers ◀─────────────────────  wait
    "ended", their reports ◀─────────────────────  collect      ◀──  report, count what is left, end
    "reaped", statuses     ◀──  collect what is left

Each run has its own launcher, because a fault may kill the launcher. Ranks end with it (nvcoll.ranks.bound). The
fork server is the subreaper of all ranks: a process that a rank leaves running becomes its child. It answers when it
has no more children.

The fork server forks, so it starts no threads. The linear algebra library of numpy may start threads. It handles forks
itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import math
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

from nvcoll._nvcoll import Communicator, Error
from nvcoll.ranks import bound, job, membership
from nvcoll.ranks.failures import text_of
from nvcoll.ranks.node import Node
from nvcoll.ranks.processes import prepare
from nvcoll.ranks.spawned import raised, returned
from nvcoll.testing.faults import Fault
from nvcoll.testing.residue import Residue, children, residue, residue_since

REPORT_S = 10.0
"""The time that processes have to report and end after a run is over. Chosen: far more than they need."""

GRACE_S = 1.0
"""The time that processes of ranks may outlive their launcher. Then the fork server kills them. Chosen."""

PR_SET_CHILD_SUBREAPER = 36
"""Cited: linux/prctl.h."""


@dataclass(frozen=True)
class Order:
    """One run: see ``nvcoll.testing.run_ranks``."""

    program: bytes
    modules: tuple[str, ...]
    world_size: int
    job: tuple[str, bytes]
    threads: bool
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
    """The end of a process, and the reports of its ranks."""

    ranks: list[int]
    pipe: int
    chunks: list[bytes] = field(default_factory=list)
    status: int | None = None
    is_overdue: bool = False
    is_stopped: bool = False
    was_stopped: bool = False


def main(pipe: Connection) -> None:
    """Carries out orders until the other end of the pipe is closed."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1))
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    np.random.default_rng(np.ones(1, "i8").sum())  # numpy loads its random numbers late
    prepare(pipe)
    with contextlib.suppress(EOFError, OSError):
        while True:
            order = pipe.recv()
            pipe.send(("reaped", carry_out(order, pipe)))


def carry_out(order: Order, pipe: Connection) -> tuple[dict[int, int], list[int], tuple[int, int] | None]:
    """Runs ranks. Returns the statuses of all processes, those left running, and the fault's time and steps."""
    os.chdir(order.folder)
    os.environ.clear()
    os.environ.update(order.environment)
    sys.path[:] = order.path
    for module in order.modules:
        with contextlib.suppress(Exception):  # the rank reports it
            importlib.import_module(module)
    gc.collect()
    gc.freeze()
    heard, told = os.pipe()
    os.set_blocking(heard, False)
    launcher = fork(lambda: launch(order, pipe, told))
    os.close(told)
    statuses, left = reap(launcher)
    try:
        words = os.read(heard, 16)
    finally:
        os.close(heard)
    return statuses, left, struct.unpack("=QQ", words) if words else None


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


def reap(launcher: int) -> tuple[dict[int, int], list[int]]:
    """Waits until no child is left. Returns the statuses, and the children that it killed after the launcher's end."""
    statuses: dict[int, int] = {}
    killed: set[int] = set()
    end = math.inf
    while True:
        try:
            process, status = os.waitpid(-1, os.WNOHANG if launcher in statuses else 0)
        except ChildProcessError:
            return statuses, sorted(killed)
        if process != 0:
            statuses[process] = os.waitstatus_to_exitcode(status)
            if process == launcher:
                end = time.monotonic() + GRACE_S
        elif time.monotonic() > end:
            killed |= children()
            for child in children():
                os.kill(child, signal.SIGKILL)
        time.sleep(0 if process else 0.001)


def launch(order: Order, pipe: Connection, told: int) -> None:
    """Runs the launcher of one run: forks the ranks, and collects their reports and exit statuses."""
    wakes, wake = os.pipe()
    os.set_blocking(wakes, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    groups = [list(range(order.world_size))] if order.threads else [[rank] for rank in range(order.world_size)]
    launcher, ends = os.getpid(), dict[int, End]()
    for ranks in groups:
        report, reports = os.pipe()
        # The rank closes the descriptors of the launcher, so that they do not count as its residue.
        foreign = [wakes, wake, report, pipe.fileno(), *(end.pipe for end in ends.values())]
        process = fork(partial(be_process, order, ranks, launcher, foreign, reports, told))
        os.close(reports)
        ends[process] = End(ranks, report)
    pipe.send(("began", [process for process, end in ends.items() for _ in end.ranks]))
    collect(ends, wakes, pipe, order.timeout_s)
    pipe.send(("ended", [rank for end in ends.values() for rank in outcomes(end)]))


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
    for descriptor, end in by_pipe.items():
        os.set_blocking(descriptor, False)
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(descriptor, 1 << 20):
                end.chunks.append(chunk)


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


def outcomes(end: End) -> list[tuple[Report, dict[str, Any]]]:
    """Returns the reports of a process's ranks, each with the end of the process."""
    try:
        reports = pickle.loads(b"".join(end.chunks))
    except Exception:
        reports = [Report()] * len(end.ranks)
    how = {"status": end.status, "is_overdue": end.is_overdue, "was_stopped": end.was_stopped}
    return [(report, how) for report in reports]


def be_process(order: Order, ranks: list[int], launcher: int, foreign: list[int], report: int, told: int) -> None:
    """Runs a process of ranks: either one rank that joins a job, or all ranks as threads.

    Args:
        order: the run.
        ranks: the ranks of this process.
        launcher: its parent, with which it ends.
        foreign: descriptors of the launcher.
        report: the descriptor for the reports of the ranks.
        told: the descriptor for the time of the fault and the steps done before it.
    """
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for descriptor in foreign:
        os.close(descriptor)
    bound.end_with_parent(launcher)
    reports = be_threads(order, told) if order.threads else [be_rank(order, ranks[0], told)]
    data = memoryview(pickle.dumps(reports))
    while data:
        data = data[os.write(report, data) :]


def be_rank(order: Order, rank: int, told: int) -> Report:
    """Runs one rank of a job."""
    os.environ.update(job.environment_of(rank, order.world_size, *order.job))
    before, report = residue(), Report()
    limits = {one: resource.getrlimit(one) for one in (resource.RLIMIT_AS, resource.RLIMIT_NOFILE)}

    def program() -> None:
        comm = membership.init(timeout=order.call_timeout_s, join_timeout=order.timeout_s)
        call(order, comm, told, report)

    with contextlib.suppress(Reported):
        program()
    for one, limit in limits.items():
        resource.setrlimit(one, limit)  # a fault may have lowered it
    (membership.finalize if report.how[0] == "returned" else membership.fail)()
    report.residue = residue_since(before, patience_s=GRACE_S)
    return report


def be_threads(order: Order, told: int) -> list[Report]:
    """Runs all ranks of a node."""
    reports = [Report(("raised", None, "Error: the rank was not called", "")) for _ in range(order.world_size)]
    before = residue()
    with contextlib.suppress(Reported):
        Node(order.world_size).run(
            lambda comm: call(order, comm, told, reports[comm.rank]), timeout=order.call_timeout_s
        )
    reports[0].residue = residue_since(before, patience_s=GRACE_S)
    return reports


class Reported(Error):
    """A program raised an exception. Its report contains the exception."""


def call(order: Order, comm: Communicator, told: int, report: Report) -> None:
    """Arms the fault, calls the program of a rank and fills in the report of the rank.

    Raises:
        Reported: the program raised. The original exception would keep its frames alive, and thus the communicator.
    """
    try:
        fn, args = pickle.loads(order.program)
        if order.fault is not None:
            order.fault.arm(comm, told)
        report.how, report.ended_s = returned_at(fn, comm, args)
    except SystemExit:
        raise
    except BaseException as error:
        report.ended_s = time.monotonic()
        report.how = raised(error)
        raise Reported(text_of(error)) from None


def returned_at(fn: Callable[..., Any], comm: Communicator, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], float]:
    value = fn(comm, *args)
    ended_s = time.monotonic()
    return returned(value), ended_s
