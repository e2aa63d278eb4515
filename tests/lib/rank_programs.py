"""Programs of ranks for ``nvcoll.testing``. The processes of ranks import this module."""

import os
import subprocess
import sys
import time

import numpy as np


def reduce_often(comm, calls=6):
    """Makes staged calls of several steps; says how many it has made, which an exception keeps from its caller."""
    for _ in range(calls):
        comm.all_reduce(np.ones(300), algorithm="ring", path="staged")
    return calls


def exchange_often(comm, count, rounds=6):
    """Sends to the rank above and receives from the rank below: two messages a round."""
    for _ in range(rounds):
        x, out = np.full(count, comm.rank), np.empty(count, int)
        comm.sendrecv(x, (comm.rank + 1) % comm.world_size, out, (comm.rank - 1) % comm.world_size)
        assert (out == (comm.rank - 1) % comm.world_size).all()
    return rounds


def split_later(comm):
    comm.barrier()
    comm.split(0)


def allocate_later(comm):
    comm.barrier()
    bytearray(100 << 20)


def leave_a_process(comm):
    return subprocess.Popen(["sleep", "600"]).pid


def leave_a_descriptor(comm):
    os.dup(0)


def sleep(comm):
    time.sleep(600)


def exit_with_3(comm):
    sys.exit(3)


def place(comm):
    return comm.rank, comm.world_size, os.getpid(), os.getcwd(), os.environ.get("NVCOLL_TEST")


def return_a_function(comm):
    return lambda: None
