"""Rounds of ``nvcoll bench --processes``: each rank is a process, with arrays of its own.

All ranks go through the same rounds in the same order. They meet in a barrier before and after each call, and each
times its own; the slowest counts. Baselines are run by rank 0, on the arrays of all ranks in its own memory, while the
others wait. The oracle is run by rank 0 too, which sends every rank the bits that its results must have.

``private`` arrays are numpy's: data move through memory that ranks share. ``symmetric`` arrays are made by
``comm.empty``: each rank reads and writes those of the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import nvcoll
from nvcoll import Algorithm, Communicator
from nvcoll.cli.bench.timing import Candidate, Case, Reduction, baselines_of, count_unequal, timed
from nvcoll.cli.operands import SIDE_OF_PARTS, Array, Operands, distinct

Times = dict[str, tuple[list[float], int]]
"""For each candidate, its seconds by round, and the number of wrong elements."""


@dataclass(frozen=True)
class Job:
    """What ranks time, and in what memory: private or symmetric.

    Attributes:
        chosen: makes the algorithms, by name.
        columns: the columns of an algorithm, None for its name, and whether they are in place.
    """

    collective: str
    reduction: Reduction
    root: int
    memory: str
    chosen: Callable[[], dict[str, str | Algorithm]]
    columns: Sequence[tuple[str | None, bool]]
    has_baselines: bool


def cases_of(job: Job, node: nvcoll.Node, counts: Sequence[int], rounds: int) -> list[Case]:
    """Times some counts on as many new processes as the node has ranks; returns cases without arrays."""
    cases = []
    for count, times in zip(counts, nvcoll.spawn(_times, node.world_size, (job, counts, rounds))[0], strict=True):
        case = Case(node, job.collective, job.reduction, count, job.root, job.memory)
        case.candidates = {name: Candidate(lambda: None, [], None, *measured) for name, measured in times.items()}
        case.baselines = baselines_of(job.collective) if job.has_baselines else []
        cases.append(case)
    return cases


def _times(comm: Communicator, job: Job, counts: Sequence[int], rounds: int) -> list[Times]:
    """Times some counts, on one rank."""
    node, chosen = nvcoll.Node(comm.world_size), job.chosen()

    def case(count: int) -> Case:
        new = RankCase(comm, node, job, count)
        for name, algorithm in chosen.items():
            for column, in_place in job.columns:
                new.add_algorithm(column or name, algorithm, in_place)
        if job.has_baselines:
            new.add_baselines()
        return new

    done = timed(case, counts, rounds, is_shown=comm.rank == 0)
    return [{name: (one.seconds, one.wrong) for name, one in case.candidates.items()} for case in done]


class RankCase(Case):
    """One size, on one rank of several that are processes."""

    def __init__(self, comm: Communicator, node: nvcoll.Node, job: Job, count: int) -> None:
        of_case = (node, job.collective, job.reduction, count, job.root, job.memory)
        super().__init__(*of_case)
        self.comm = comm
        self._whole = Case(*of_case) if comm.rank == 0 else None
        """All ranks in the memory of this one: for the baselines and the oracle."""

    def operands(self, in_place: bool) -> Operands:
        """Returns the arrays of this rank in all calls of one form."""
        if in_place not in self._forms:
            comm, dtype = self.comm, self.reduction.numpy_dtype
            n = self.layout.inputs[comm.rank]
            data: list[Array | None] = [None] * comm.world_size
            data[comm.rank] = None if n is None else self.reduction.data(n, comm.rank)
            make = comm.empty if self.memory == "symmetric" else np.empty
            self._forms[in_place] = Operands(self.layout, data, in_place, comm.rank, lambda count: make(count, dtype))
        return self._forms[in_place]

    def add_algorithm(self, name: str, algorithm: str | Algorithm, in_place: bool | None = None) -> None:
        """Adds an algorithm, by name or written by the user."""
        operands = self.operands(self.in_place if in_place is None else in_place)
        method, options = getattr(self.comm, self.collective), self.options(operands)
        x, out = operands.arguments_of(self.comm.rank)
        call = self._together(lambda: method(x, algorithm=algorithm, out=out, **options))
        self._add(name, operands, call, self._expected(algorithm, operands))

    def options(self, operands: Operands) -> dict[str, Any]:
        """Returns the arguments of a call of one rank: its own scalar alone, and the lengths of the parts of others."""
        options = super().options(operands)
        if self.reduction.op == "premul_sum":
            options["op"] = nvcoll.premul_sum(self.reduction.scalars[self.comm.rank])
        if (side := SIDE_OF_PARTS.get(self.collective)) is not None:
            options["counts"] = (self.layout.inputs, self.layout.outputs)[side]
        return options

    def add_baselines(self) -> None:
        """Adds the baselines of all ranks, which rank 0 runs."""
        self.baselines = baselines_of(self.collective)
        if self._whole is not None:
            self._whole.add_baselines()
        for name in self.baselines:
            if self._whole is None:
                self._add(name, self.operands(self.in_place), self._together(lambda: 0.0))
                continue
            self.candidates[name], self._operands[name] = self._whole.candidates[name], self._whole._operands[name]
            self.candidates[name].call = self._together(self.candidates[name].call)

    def _together(self, call: Callable[[], float | None]) -> Callable[[], float]:
        """Returns a call that begins and ends on all ranks, and returns its seconds on this one."""

        def seconds() -> float:
            self.comm.barrier()  # wakes ranks that slept while rank 0 was busy
            self.comm.barrier()
            start = time.perf_counter()
            measured = call()
            elapsed = time.perf_counter() - start
            self.comm.barrier()
            return measured if isinstance(measured, float) else elapsed

        return seconds

    def _expected(self, algorithm: str | Algorithm, operands: Operands) -> list[Array]:
        """Returns the output of this rank by the oracle, if it has one."""
        found = iter(() if self._whole is None else self._whole._expected(algorithm, operands))
        own = []
        for rank, count in enumerate(self.layout.outputs):
            if count is None:
                continue
            expected = np.empty(count, self.reduction.numpy_dtype) if self._whole is None else next(found)
            self.comm.broadcast(expected.view("u1"))
            if rank == self.comm.rank:
                own.append(distinct(expected, self._known, count_unequal))
        return own

    def let_go(self) -> None:
        """Agrees with the other ranks on the measurements, and frees the arrays."""
        for candidate in self.candidates.values():
            candidate.seconds = self.comm.all_reduce(np.array(candidate.seconds), "max").tolist()
            candidate.wrong = int(self.comm.all_reduce(np.array([candidate.wrong]))[0])
        super().let_go()
        if self._whole is not None:
            self._whole.let_go()
