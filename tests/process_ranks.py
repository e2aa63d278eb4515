"""A job of processes that makes calls of `drawn.Call`: each process is one rank, and this one is none.

Calls of fewer ranks are made by the first ranks of the job, in a communicator that they split off once.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import secrets
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection

import numpy as np
from drawn import Call, Choice
from processes import WAIT_S

import nvcoll


@dataclass(frozen=True)
class Order:
    """A call for the first ranks of a job. `symmetric` are the ranks whose arrays every rank can reach."""

    choice: Choice
    symmetric: tuple[int, ...]


class Job:
    """Processes that wait for orders. `with` ends them."""

    def __init__(self, world_size: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        environment = {"NVCOLL_WORLD_SIZE": str(world_size), "NVCOLL_JOB": f"tests-{secrets.token_hex(8)}"}
        pipes = [spawn.Pipe() for _ in range(world_size)]
        self.pipes = [ours for ours, _ in pipes]
        self.processes = [
            spawn.Process(target=serve, args=(rank, environment, theirs), daemon=True)
            for rank, (_, theirs) in enumerate(pipes)
        ]
        for process in self.processes:
            process.start()
        for _, theirs in pipes:
            theirs.close()

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in self.pipes:
            with contextlib.suppress(OSError):
                pipe.send(None)
        for process in self.processes:
            process.join(WAIT_S)
            process.kill()
        for process in self.processes:
            process.join()
            process.close()
        for pipe in self.pipes:
            pipe.close()

    def run(self, order: Order | Callable[[nvcoll.Communicator], object]) -> list[object]:
        """Has all ranks carry out an order, or call a function of a module; returns their results by rank."""
        for pipe in self.pipes:
            pipe.send(order)
        answers = []
        for rank, pipe in enumerate(self.pipes):
            assert pipe.poll(WAIT_S), f"rank {rank} has not answered {order}"
            answers.append(pipe.recv())
        failures = [f"rank {rank}: {text}" for rank, (is_done, text) in enumerate(answers) if not is_done]
        assert not failures, "\n".join([f"{order}", *failures])
        return [result for _, result in answers]


def serve(rank: int, environment: dict[str, str], pipe: Connection) -> None:
    """Is one rank of a job: carries out orders until there is none."""
    os.environ.update(environment, NVCOLL_RANK=str(rank))
    comm = nvcoll.init(timeout=WAIT_S / 2, join_timeout=WAIT_S)
    groups: dict[int, nvcoll.Communicator | None] = {}
    while (order := pipe.recv()) is not None:
        try:
            answer = (True, carry_out(order, comm, groups))
        except Exception:
            answer = (False, traceback.format_exc())
        pipe.send(answer)


def carry_out(
    order: Order | Callable[[nvcoll.Communicator], object],
    comm: nvcoll.Communicator,
    groups: dict[int, nvcoll.Communicator | None],
) -> object:
    if not isinstance(order, Order):
        return order(comm)
    world_size = order.choice.world_size
    if world_size not in groups:
        groups[world_size] = comm.split(0 if comm.rank < world_size else None)
    group = groups[world_size]
    if group is not None:
        make(order, group)
    return None


def make(order: Order, comm: nvcoll.Communicator) -> None:
    """Makes one rank's part of a call, and checks it."""
    choice = order.choice
    # Results that nvcoll makes are memory of one process, and so is what `drawn.Call` adds in two collectives.
    is_out_of_reach = choice.form == "new" or choice.collective in ("scatter", "exscan")
    if choice.path == "mapped" and (is_out_of_reach or len(order.symmetric) < choice.world_size):
        choice = replace(choice, path=None)

    def allocate(rank: int, nbytes: int) -> np.ndarray:
        return comm.empty(nbytes, "u1") if rank == comm.rank and rank in order.symmetric else np.empty(nbytes, "u1")

    call = Call(choice, is_spmd=True, allocate=allocate)
    call.run(comm)
    assert all(guarded.is_intact() for guarded in call.guards)
