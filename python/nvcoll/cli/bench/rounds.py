"""Rounds of the candidates of ``auto``: each round times every candidate once, in random order, on rewritten arrays.

A mode is how a call is run (docs/maintainers/architecture.md). *tile* and *staged* are planned calls that one caller
makes for all ranks. *ranks* are calls that every rank makes for itself in ``Node.run``; rank 0 times them from one
barrier to the next. One large call is timed, or the mean of several small calls in a row: a clock costs a microsecond,
and a barrier of more ranks than processors as much as most calls.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

import nvcoll
from nvcoll import Communicator
from nvcoll.cli.bench.timing import Candidate, dtype_named, layout_of
from nvcoll.cli.operands import CAN_BE_IN_PLACE, Operands, writes_its_arrays

MODES = {"tile": ("mapped", False), "staged": ("staged", False), "ranks": ("mapped", True)}
"""For each mode, the path, and whether every rank calls for itself."""


SETTLING = 8
"""The number of rounds before the timed ones. In these, a node chooses between plain and streaming stores for each
candidate (the engine's `store_choice.rs`)."""

ROW, ROW_BYTES = 10, 4 << 20
"""The largest number of calls in a row, and the bytes that they may move together. Chosen."""


@dataclass
class Call:
    """The call that is timed."""

    collective: str
    count: int
    """Elements of a rank's longer buffer; a multiple of the world size where it is cut among ranks."""
    world_size: int
    dtype: str = "float32"
    in_place: bool = True
    root: int = 0

    def __post_init__(self) -> None:
        self.in_place = self.in_place and CAN_BE_IN_PLACE[self.collective]
        if not writes_its_arrays(self.collective):
            self.count = max(1, self.count // self.world_size) * self.world_size

    @property
    def row(self) -> int:
        """The number of calls between two readings of the clock."""
        nbytes = self.count * dtype_named(self.dtype).itemsize * self.world_size
        return max(1, min(ROW, ROW_BYTES // max(1, nbytes)))

    def operands(self) -> Operands:
        """Makes the arrays of all ranks."""
        layout = layout_of(self.collective, self.world_size, self.count, self.root)
        # Small numbers, which every dtype holds, and whose sums do too.
        data = [
            None if count is None else (np.arange(count) % 3 + rank % 2).astype(dtype_named(self.dtype))
            for rank, count in enumerate(layout.inputs)
        ]
        operands = Operands(layout, data, self.in_place)
        operands.rewrite()
        return operands


def measure(node: nvcoll.Node, mode: str, call: Call, names: Sequence[str], rounds: int) -> dict[str, list[float]]:
    """Times a call by some algorithms.

    Returns:
        For each algorithm, the seconds of a call in every round.
    """
    path, by_rank = MODES[mode]
    draw = random.Random(rounds)
    order = [draw.sample(list(names), len(names)) for _ in range(rounds + SETTLING)]
    return (_by_ranks if by_rank else _by_one)(node, path, call, order)


def _by_one(node: nvcoll.Node, path: str, call: Call, order: list[list[str]]) -> dict[str, list[float]]:
    operands = call.operands()
    arrays, out = operands.arguments()
    candidates = {}
    for name in order[0]:
        plan = node.plan(call.collective, arrays, algorithm=name, out=out, path=path, **operands.options("sum"))
        candidates[name] = Candidate(_row(plan, call.row), [])
    for number, names in enumerate(order):
        for name in names:
            operands.rewrite_inputs()
            candidates[name].run(is_counted=number >= SETTLING)
    return {name: candidate.seconds for name, candidate in candidates.items()}


def _row(plan: nvcoll.Plan, calls: int) -> Callable[[], float]:
    def seconds() -> float:
        start = time.perf_counter()
        for _ in range(calls):
            plan.run()
        return (time.perf_counter() - start) / calls

    return seconds


def _by_ranks(node: nvcoll.Node, path: str, call: Call, order: list[list[str]]) -> dict[str, list[float]]:
    operands = call.operands()

    def program(comm: Communicator) -> dict[str, list[float]]:
        x, out = operands.arguments_of(comm.rank)
        own, fresh = operands.inputs[comm.rank], operands.data[comm.rank]
        method = getattr(comm, call.collective)
        seconds: dict[str, list[float]] = {name: [] for name in order[0]}
        for number, names in enumerate(order):
            for name in names:
                if own is not None and fresh is not None:
                    np.copyto(own, fresh)
                comm.barrier()
                start = time.perf_counter()
                for _ in range(call.row):
                    method(x, algorithm=name, out=out, path=path, **operands.options("sum"))
                comm.barrier()
                if number >= SETTLING:
                    seconds[name].append((time.perf_counter() - start) / call.row)
        return seconds

    return node.run(program)[0]
