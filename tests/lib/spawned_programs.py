"""Programs of ranks for ``nvcoll.spawn``. The processes of ranks import this module."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import nvcoll
from nvcoll.ranks.job import settings


class TellingTwoError(Exception):
    """An exception that can be pickled and not unpickled."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


class OfTheRankError(Exception):
    """An exception that its own process can unpickle, and no other one."""

    def __reduce__(self):
        return _only_in, (os.getpid(), str(self))


class OfTheRank:
    """A result that its own process can unpickle, and no other one."""

    def __reduce__(self):
        return _only_in, (os.getpid(), "")


def _only_in(process, text):
    if os.getpid() != process:
        raise LookupError("not here")
    return OfTheRankError(text)


def place(comm, *args):
    found = settings()
    assert (comm.rank, comm.world_size) == (found.rank, found.world_size)
    return comm.rank, comm.world_size, found.job, found.token, found.launcher, os.getpid(), os.getsid(0), args


def large(comm, count):
    return np.full(count, comm.rank, dtype="f8")


def write(_comm, path):
    with open(path, "a") as file:
        file.write(f"{os.getpid()}\n")


def hang(comm, path, ranks=(0, 1, 2)):
    """Hangs on some ranks; notes the processes of the rank and of a program that it starts."""
    child = subprocess.Popen(["sleep", "600"])
    with open(path, "a") as file:
        file.write(f"{os.getpid()} {child.pid}\n")
    if comm.rank in ranks:
        time.sleep(600)
    child.kill()
    child.wait()


def wait_for_lines(path, count):
    """Waits until ranks have written so many lines to a file."""
    while not os.path.exists(path) or Path(path).read_text().count("\n") < count:
        time.sleep(0.01)


def fail_while_others_hang(comm, path):
    if comm.rank == 1:
        wait_for_lines(path, comm.world_size - 1)
        raise ValueError("boom")
    hang(comm, path)


def die_while_others_hang(comm, path):
    if comm.rank == 1:
        wait_for_lines(path, comm.world_size - 1)
        os.kill(os.getpid(), signal.SIGKILL)
    hang(comm, path)


def fail_in_turn(comm, path):
    """Rank 2 fails first; rank 0 is aborted by it, and rank 1 fails by itself."""
    if comm.rank != 2:
        wait_for_lines(path, 1)
    else:
        write(comm, path)
    raise (nvcoll.Aborted("rank 2 has failed"), KeyError("one"), ValueError("two"))[comm.rank]


def fail_while_others_reduce(comm):
    if comm.rank == 1:
        raise ValueError("boom")
    for _ in range(2):
        comm.all_reduce(np.ones(10))


def fail_alike(_comm):
    raise ValueError("alike")


def raise_telling_two(comm):
    raise TellingTwoError(comm.rank, comm.rank)


def raise_of_the_rank(_comm):
    raise OfTheRankError("far away")


def with_a_note(_comm):
    error = ValueError("boom")
    error.add_note("a note of the program")
    raise error


def leave(comm, leave, status):
    if comm.rank == 1:
        leave(status)


def exit_while_others_reduce(comm):
    if comm.rank == 1:
        sys.exit(3)
    for _ in range(2):
        comm.all_reduce(np.ones(10))


def be_killed(comm, number):
    if comm.rank == 1:
        os.kill(os.getpid(), number)


def generator(_comm):
    return (one for one in range(3))


def of_the_rank(_comm):
    return OfTheRank()


def stay_after_returning(comm):
    import threading

    if comm.rank == 1:
        threading.Thread(target=time.sleep, args=(600,)).start()


def nothing(_comm):
    pass


async def asynchronous(_comm):
    pass


def be_late_to_a_call_of_one_that_leaves(comm, collective, scalar=None):
    """Rank 0 calls with symmetric memory and leaves the job as soon as rank 1 has entered. Returns what rank 1 gets.

    With `scalar`, by which the call multiplies the array of rank 0, rank 1 is the root: rank 0 leaves before it comes.
    """
    count = 5000 if scalar is None else 100
    x = comm.full(count, 2.0) if comm.rank == 0 else np.full(count, 3.0)
    options = {} if scalar is None else {"root": 1, "op": nvcoll.premul_sum(scalar if comm.rank == 0 else 1.0)}
    time.sleep(0.02 * comm.rank)
    getattr(comm, collective)(x, path="staged", timeout=5, **options)
    if comm.rank == 0:
        nvcoll.finalize()
        return None
    return float(x[0]), float(x[-1])
