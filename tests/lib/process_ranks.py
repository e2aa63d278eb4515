"""A job of processes that makes calls of `drawn.Call`: each process is one rank, and this one is none.

Calls of fewer ranks are made by the first ranks of the job, in a communicator that they split off once.
"""

from __future__ import annotations

import secrets
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection

import numpy as np
from drawn import Call, Choice
from processes import WAIT_S

import nvcoll
from nvcoll.ranks.processes import Supervisor, prepare


@dataclass(frozen=True)
class Order:
    """A call for the first ranks of a job. `symmetric` are the ranks whose arrays every rank can reach."""

    choice: Choice
    symmetric: tuple[int, ...]


class Job:
    """Processes that wait for orders. `with` ends them."""

    def __init__(self, world_size: int) -> None:
        place = {"NVCOLL_WORLD_SIZE": str(world_size), "NVCOLL_JOB": f"tests-{secrets.token_hex(8)}"}
        self.ranks = Supervisor()
        for rank in range(world_size):
            self.ranks.start_python(rank, "process_ranks", place | {"NVCOLL_RANK": str(rank)})

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.ranks.processes:
            process.send(None)
        end = time.monotonic() + WAIT_S
        while self.ranks.running() and self.ranks.wait(end):
            pass
        self.ranks.close()

    def run(self, order: Order | Callable[[nvcoll.Communicator], object]) -> list[object]:
        """Has all ranks carry out an order, or call a function of a module; returns their results by rank."""
        for process in self.ranks.processes:
            process.send(order)
        end, answers = time.monotonic() + WAIT_S, {}
        while len(answers) < len(self.ranks.processes):
            events = self.ranks.wait(end)
            assert events, f"of all ranks only {sorted(answers)} have answered {order}"
            for process, told in events:
                answers[process.rank] = told or (False, process.how())
        failures = [f"rank {rank}: {text}" for rank, (is_done, text) in sorted(answers.items()) if not is_done]
        assert not failures, "\n".join([f"{order}", *failures])
        return [answers[rank][1] for rank in range(len(answers))]


def main(pipe: Connection) -> None:
    """Is one rank of a job: carries out orders until there is none."""
    prepare(pipe)
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
