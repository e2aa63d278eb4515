"""What ranks on several hosts do in tests: ``hosts_programs.py PROGRAM``."""

import os
import sys
import time

import numpy as np

import nvcoll


def call(comm):
    x = np.full(1000, comm.rank + 1, np.float32)
    comm.all_reduce(x)
    assert (x == comm.world_size * (comm.world_size + 1) // 2).all()


def sums(comm):
    for _ in range(3):
        call(comm)
    nvcoll.finalize()
    call(again := nvcoll.init(join_timeout=60))
    assert again.hosts == comm.hosts and len(comm.hosts) == 2
    print("right", flush=True)


def killed(comm):
    call(comm)
    if comm.rank == 1:
        os.kill(os.getpid(), 9)
    survive(comm)


def raised(comm):
    if comm.rank == 1:
        raise ValueError("a mistake")
    survive(comm)


def late(comm):
    if comm.rank == 1:
        time.sleep(20)
    survive(comm)


def cut(comm):
    call(comm)
    print("begun", flush=True)
    survive(comm)


def survive(comm):
    """Makes calls until one fails, and says how."""
    try:
        while True:
            call(comm)
            time.sleep(0.02)
    except nvcoll.Error as error:
        print(f"{type(error).__name__} on {error.host}: {error}, ranks {error.ranks}", flush=True)
        time.sleep(2)  # torchrun ends all ranks of a host when one ends


if __name__ == "__main__":
    globals()[sys.argv[1]](nvcoll.init(timeout=3, join_timeout=60))
