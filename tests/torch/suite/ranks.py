"""The ranks of one case: forked processes with a time limit, of which nothing is left.

The suite itself starts a new Python for each rank, which imports torch and the suite in 6 s (measured). This runner
forks ranks from a process that has imported both. A case then takes 0.6 s on average (measured with gloo).

    fork the ranks
    until all have ended:
        one fails               the others get GRACE_S, then they are killed
        the limit passes        every rank says where it stands, then all are killed; the case has failed (hang)
    count and kill the processes that outlive their ranks

Each rank leads a process group, which is killed whole. Processes that left that group are found too: their parents are
dead and this process adopts them (``PR_SET_CHILD_SUBREAPER``, Linux only).

The result of a case is stricter than the suite's, which reads the exit status of rank 0: here, a rank that ends with a
status other than 0 or a skip fails the case. Source: ours.
"""

import contextlib
import ctypes
import glob
import multiprocessing.connection
import os
import signal
import tempfile
import time
from pathlib import Path

from outcomes import Outcome, line_of_error, reason_of
from suite import SKIPS, Suite, harness

GRACE_S = 3
"""How long ranks run on after another has failed. Chosen: most then fail too, and some say more than the first."""

LINGER_S = 1
"""How long a process may outlive its ranks before it counts as leaked. Chosen."""

CONSEQUENCE = "RuntimeError: barrier timeout"
"""What ranks say in the suite's own barrier if another rank does not come: not the cause."""

OUTSIDE = "outside its case: while it made the default group, or when it waited for the others after the case"
"""Where a rank stands that does not say where: the suite answers only during a case."""

PR_SET_CHILD_SUBREAPER = 36

PROCESSES = multiprocessing.get_context("fork")


def adopt_orphans() -> None:
    """Makes this process the parent of descendants whose parents end."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def run_case(suite: Suite, case: str, limit_s: float) -> Outcome:
    """Runs a case; returns its outcome."""
    words = suite.words_of_skip(case)
    if words:
        return Outcome(case, suite.world_size, "skipped", reason_of(words), suite.shown)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for name in ("barrier", "test_dir", "init_dir"):
            Path(folder, name).mkdir()
        began = time.monotonic()
        ranks = [Rank(suite, rank, case, folder) for rank in range(suite.world_size)]
        try:
            watch(ranks, began + limit_s)
        finally:
            for rank in ranks:
                rank.kill()
        outcome = judge(ranks, case, suite)
        outcome.seconds = round(time.monotonic() - began, 2)
        outcome.leaked = kill_orphans()
    return outcome


class Rank:
    """One rank of a case.

    Attributes:
        error: what the rank said when it failed, as a traceback
        stack: where a rank stood that had to be killed
        process: the process
    """

    def __init__(self, suite: Suite, rank: int, case: str, folder: str):
        self.error, self.stack, self.log = "", "", Path(folder, f"rank{rank}.txt")
        self.pipe, theirs = PROCESSES.Pipe()
        self.process = PROCESSES.Process(target=self.enter, args=(suite, rank, case, folder, theirs))
        self.process.start()
        theirs.close()

    def enter(self, suite: Suite, rank: int, case: str, folder: str, pipe) -> None:
        """Runs in the new process."""
        os.setpgid(0, 0)
        log = os.open(self.log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        for descriptor in (1, 2):
            os.dup2(log, descriptor)
        suite.enter(rank, case, folder, pipe)

    @property
    def status(self) -> "int | None":
        """The exit status; None while the rank runs."""
        return self.process.exitcode

    @property
    def has_failed(self) -> bool:
        """Whether the rank ended with a status that is neither success nor a skip."""
        return self.status is not None and self.status != 0 and self.status not in SKIPS

    def listen(self) -> None:
        """Takes what the rank has sent: a long traceback blocks the rank until it is taken."""
        with contextlib.suppress(EOFError, OSError):
            while self.pipe.poll():
                self.error += self.pipe.recv()

    def ask_for_stack(self) -> None:
        """Has a rank that hangs say where it stands."""
        with contextlib.suppress(EOFError, OSError):
            self.pipe.send(harness.MultiProcessTestCase.Event.GET_TRACEBACK)
            if self.pipe.poll(2):
                self.stack = "at\n" + self.pipe.recv()

    def kill(self) -> None:
        """Ends the rank and what it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        if self.status is None:
            self.process.kill()
        self.process.join()
        self.listen()
        self.pipe.close()

    def words(self) -> str:
        """Returns the rank's error: as it sent it, else as it printed it, else how it ended."""
        log = self.log.read_text(errors="replace") if self.log.exists() else ""
        if self.error or "Traceback" in log:
            return self.error or log[log.rindex("Traceback") :]
        ending = signal.Signals(-self.status).name if self.status < 0 else f"exit status {self.status}"
        return f"the rank ended with {ending}\n{log[-2000:]}"


def watch(ranks: list[Rank], deadline: float) -> None:
    """Waits until the ranks have ended, one has failed and `GRACE_S` have passed, or the deadline passes."""
    failed = False
    while running := [rank for rank in ranks if rank.status is None]:
        if not failed and any(rank.has_failed for rank in ranks):
            failed, deadline = True, min(deadline, time.monotonic() + GRACE_S)
        left = deadline - time.monotonic()
        if left <= 0:
            for rank in running:
                rank.listen()
                rank.ask_for_stack()
            return
        multiprocessing.connection.wait([rank.process.sentinel for rank in running], min(left, 0.2))
        for rank in running:
            rank.listen()


def judge(ranks: list[Rank], case: str, suite: Suite) -> Outcome:
    """Returns the outcome of ranks that have ended or were killed."""
    outcome = Outcome(case, suite.world_size, "passed", "", suite.shown)
    hung = [number for number, rank in enumerate(ranks) if rank.status == -signal.SIGKILL]
    failed = [number for number, rank in enumerate(ranks) if rank.has_failed and number not in hung]
    outcome.tracebacks = {str(number): ranks[number].words() for number in failed}
    errors = {number: line_of_error(outcome.tracebacks[str(number)]) for number in failed}
    outcome.tracebacks |= {str(number): f"killed {ranks[number].stack or OUTSIDE}" for number in hung}
    if failed or hung:
        outcome.result = "failed"
        told = [number for number in failed if not errors[number].endswith(CONSEQUENCE)]
        first = (told or failed or hung)[0]
        outcome.reason = f"rank {first}: {errors[first]}" if told or not hung else f"hang: ranks {hung} did not end"
    elif ranks[0].status in SKIPS:
        outcome.result, outcome.reason = "skipped", reason_of(SKIPS[ranks[0].status])
    return outcome


def kill_orphans() -> int:
    """Kills the processes that outlive the ranks; returns how many there are after `LINGER_S`."""
    end = time.monotonic() + LINGER_S
    while (orphans := living_children()) and time.monotonic() < end:
        time.sleep(0.05)
    for orphan in orphans:
        with contextlib.suppress(ProcessLookupError):
            os.kill(orphan, signal.SIGKILL)
    while living_children():
        time.sleep(0.01)
    return len(orphans)


def living_children() -> list[int]:
    """Returns the children of this process that have not ended; takes note of those that have."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return [int(child) for file in glob.glob("/proc/self/task/*/children") for child in Path(file).read_text().split()]
