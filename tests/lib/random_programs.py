"""Random programs of calls that return at once and calls that block, on several communicators, checked to the bit."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
from drawn import Call, Choice

import nvcoll


@dataclass(frozen=True)
class Block:
    """Calls, each with the number of its communicator, and the call that blocks behind them.

    Each rank issues the calls in an order of its own, in which those of one communicator keep theirs. Then it makes the
    call that blocks, before or after it has waited.
    """

    issued: list[tuple[int, Choice]]
    last: tuple[int, Choice] | None
    waits_first: bool
    seed: int


@dataclass(frozen=True)
class Program:
    communicators: int
    blocks: list[Block]


def run(program: Program, comm: nvcoll.Communicator) -> None:
    """Is one rank of a program; checks every result."""
    comms = [comm, *(comm.split(0) for _ in range(program.communicators - 1))]
    for number, block in enumerate(program.blocks):
        order = random.Random(f"{block.seed} {comm.rank}")
        queues = [[choice for at, choice in block.issued if at == own] for own in range(program.communicators)]
        flights = []
        for at in shuffled([at for at, _ in block.issued], order):
            call = Call(queues[at].pop(0), is_spmd=True)
            flights.append((comms[at], call, call.begin(comms[at], async_op=True)))
        order.shuffle(flights)
        if block.waits_first:
            finish(flights)
        if block.last is not None:
            at, choice = block.last
            Call(choice, is_spmd=True).run(comms[at])
        if not block.waits_first:
            finish(flights)
        gathered = comms[-1].all_gather(np.array([number], "i4"), async_op=True)
        assert gathered.wait().tolist() == [number] * comm.world_size


def shuffled(places: list[int], order: random.Random) -> list[int]:
    order.shuffle(places)
    return places


def finish(flights: list[tuple[nvcoll.Communicator, Call, nvcoll.Work]]) -> None:
    for comm, call, work in flights:
        call.check_result(comm, work.wait())
        assert work.done() and work.exception() is None
        assert all(guarded.is_intact() for guarded in call.guards)
