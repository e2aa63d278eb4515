"""How fast are ring, tree and nvswitch (NVLS) between ranks that are processes, beside ranks that are threads?

``python -m pytest benches/test_processes.py`` prints a table for each number of ranks and size. Each line is a call of
rank 0, from a barrier of all ranks until the call returns. Before each call every rank rewrites its array, and after it
every rank reads and checks it.
"""

import multiprocessing
import os
import secrets

import numpy as np
import pytest

import nvcoll

SIZES = {"1KiB": 2**10, "64KiB": 2**16, "1MiB": 2**20, "16MiB": 2**24}
KINDS = ["threads", "private", "symmetric"]
"""Ranks that are threads, and processes with arrays of numpy or of ``comm.empty``."""

SETTLING = 8
"""Rounds that are not timed: in them, ranks choose between plain and streaming stores (`store_choice.rs`)."""

LIMIT_S = 60
"""A watchdog: how long a call, a join or an end may take."""


def rank_main(comm, name, nbytes, kind, benchmark=None):
    """Makes calls on one rank, for as long as rank 0 times them; returns the number of wrong elements of all ranks."""
    fresh = np.full(nbytes // 4, comm.rank + 1, "f4")
    x = comm.array(fresh) if kind == "symmetric" else fresh.copy()
    total, wrong, calls = comm.world_size * (comm.world_size + 1) / 2, np.zeros(1), np.zeros(1)

    def begin():
        np.copyto(x, fresh)
        comm.barrier()

    def call():
        comm.all_reduce(x, algorithm=name)

    def check():
        wrong[0] += np.count_nonzero(x != total)

    def ask_for_one_more():
        if calls[0]:
            check()
        calls[0] += 1
        comm.broadcast(np.ones(1))
        begin()

    if benchmark is None:
        while comm.broadcast(np.empty(1))[0]:
            begin()
            call()
            check()
    else:
        benchmark.pedantic(call, setup=ask_for_one_more, rounds=20, warmup_rounds=SETTLING)
        check()
        comm.broadcast(np.zeros(1))
    return comm.all_reduce(wrong)[0]


def serve(rank, world_size, job, pipe):
    """Is one rank of a job, until the pipe closes."""
    comm = nvcoll.init(rank, world_size, job, timeout=LIMIT_S, join_timeout=LIMIT_S)
    while (order := pipe.recv()) is not None:
        rank_main(comm, *order)


@pytest.fixture(scope="module", params=[2, 4])
def job(request):
    """This process as rank 0 of a job; returns its communicator and the pipes to the others."""
    if not hasattr(os, "pidfd_open"):
        pytest.skip("ranks are processes on Linux only")
    spawn, name = multiprocessing.get_context("spawn"), f"benches-{secrets.token_hex(8)}"
    pipes = [spawn.Pipe() for _ in range(1, request.param)]
    processes = [
        spawn.Process(target=serve, args=(rank, request.param, name, theirs), daemon=True)
        for rank, (_, theirs) in enumerate(pipes, 1)
    ]
    for process in processes:
        process.start()
    yield nvcoll.init(0, request.param, name, timeout=LIMIT_S, join_timeout=LIMIT_S), [ours for ours, _ in pipes]
    for ours, _ in pipes:
        ours.send(None)
    for process in processes:
        process.join(LIMIT_S)
        assert process.exitcode == 0
    nvcoll.finalize()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["ring", "tree", "nvswitch"])
def test_all_reduce_of_ranks_that_call_for_themselves(benchmark, job, name, kind, size):
    comm, pipes = job
    benchmark.group = f"all_reduce {comm.world_size} ranks {size}"
    order = (name, SIZES[size], kind)
    if kind == "threads":
        program = lambda rank: rank_main(rank, *order, benchmark if rank.rank == 0 else None)  # noqa: E731
        wrong = nvcoll.Node(comm.world_size).run(program, timeout=LIMIT_S)[0]
    else:
        for pipe in pipes:
            pipe.send(order)
        wrong = rank_main(comm, *order, benchmark)
    assert wrong == 0
