"""Rounds of the candidates of ``auto``: each round times every candidate once, in random order, on rewritten arrays.

A mode is how a call is run (see docs/maintainers/auto.md). *tile* and *staged* are planned calls that one caller makes
for all ranks. *ranks* are calls that every rank makes for itself in ``Node.run``; rank 0 times them from one barrier to
the next. One large call is timed, or the mean of several small calls in a row: a clock costs a microsecond,
and a barrier of more ranks than processors as much as most calls.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import nvcoll
from nvcoll import Communicator
from nvcoll._nvcoll import collectives
from nvcoll.cli.bench.timing import Candidate, dtype_named
from nvcoll.cli.operands import Array

MODES = {"tile": ("mapped", False), "staged": ("staged", False), "ranks": ("mapped", True)}
"""For each mode, the path, and whether every rank calls for itself."""


SETTLING = 8
"""The number of rounds before the timed ones. In these, a node chooses between plain and streaming stores for each
candidate (the engine's `store_choice.rs`)."""

ROW, ROW_BYTES = 10, 4 << 20
"""The largest number of calls in a row, and the bytes that they may move together. Chosen."""

Passed = tuple[list[Array | None], list[Array | None] | None]
"""The array and the ``out`` that each rank passes; None if it passes none."""


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
        contract = next(row for row in collectives() if row.name == self.collective)
        self.has_root, self.can_be_in_place = contract.has_root, contract.can_be_in_place
        self.in_place = self.in_place and self.can_be_in_place
        if self.collective in CUT:
            self.count = max(1, self.count // self.world_size) * self.world_size

    @property
    def row(self) -> int:
        """The number of calls between two readings of the clock."""
        nbytes = self.count * dtype_named(self.dtype).itemsize * self.world_size
        return max(1, min(ROW, ROW_BYTES // max(1, nbytes)))

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of a call beside its arrays."""
        return {"root": self.root} if self.has_root else {}

    def arrays(self) -> Passed:
        """Makes the array and the ``out`` of each rank; None if it passes none."""
        n, is_cut = self.world_size, self.collective in CUT
        # Small numbers, which every dtype holds, and whose sums do too.
        whole = [(np.arange(self.count) % 3 + rank % 2).astype(dtype_named(self.dtype)) for rank in range(n)]
        own = [np.split(x, n)[rank] for rank, x in enumerate(whole)] if is_cut else whole
        apart = own if self.in_place else [x.copy() for x in own]
        own_of_root = [x if rank == self.root else x.copy() for rank, x in enumerate(apart)]
        match self.collective:
            case "reduce_scatter":
                return _listed(whole), _listed(apart)
            case "all_gather":
                return _listed(apart), _listed(whole)
            case "gather":
                return _listed(own_of_root), self._on_root(whole)
            case "scatter":
                return self._on_root(whole), _listed(own_of_root)
            case "all_to_all":
                return _listed(whole), [x.copy() for x in whole]
            case "reduce":
                return _listed(whole), None if self.in_place else self._on_root(apart)
            case _:
                return _listed(whole), None if self.in_place else _listed(apart)

    def _on_root(self, arrays: Sequence[Array]) -> list[Array | None]:
        return [x if rank == self.root else None for rank, x in enumerate(arrays)]

    def plan(self, node: nvcoll.Node, passed: Passed, algorithm: str, path: str) -> nvcoll.Plan:
        """Plans the call for all ranks, by an algorithm."""
        inputs, outs = passed
        own, out = self._passed_at_once(inputs), None if outs is None else self._passed_at_once(outs)
        return node.plan(self.collective, own, algorithm=algorithm, out=out, path=path, **self.arguments)

    def _passed_at_once(self, arrays: list[Array | None]) -> Any:
        """Returns the argument of a caller of all ranks: the arrays, or the root's if only the root passes one."""
        return arrays if all(x is not None for x in arrays) else arrays[self.root]


def _listed(arrays: Sequence[Array]) -> list[Array | None]:
    return list(arrays)


CUT = ("reduce_scatter", "all_gather", "gather", "scatter", "all_to_all")
"""The collectives whose longer buffer has a part for every rank."""


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
    passed = call.arrays()
    inputs, _ = passed
    candidates = {name: Candidate(_row(call.plan(node, passed, name, path), call.row), []) for name in order[0]}
    fresh = [None if x is None else x.copy() for x in inputs]
    for number, names in enumerate(order):
        for name in names:
            for x, data in zip(inputs, fresh, strict=True):
                if x is not None and data is not None:
                    np.copyto(x, data)
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
    inputs, outs = call.arrays()

    def program(comm: Communicator) -> dict[str, list[float]]:
        x, out = inputs[comm.rank], None if outs is None else outs[comm.rank]
        fresh = None if x is None else x.copy()
        method = getattr(comm, call.collective)
        seconds: dict[str, list[float]] = {name: [] for name in order[0]}
        for number, names in enumerate(order):
            for name in names:
                if x is not None and fresh is not None:
                    np.copyto(x, fresh)
                comm.barrier()
                start = time.perf_counter()
                for _ in range(call.row):
                    method(x, algorithm=name, out=out, path=path, **call.arguments)
                comm.barrier()
                if number >= SETTLING:
                    seconds[name].append((time.perf_counter() - start) / call.row)
        return seconds

    return node.run(program)[0]
