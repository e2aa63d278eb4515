"""The fault matrix: the errors of survivors when a rank dies, stops or fails at any step of any collective.

    python tests/slow/fault_matrix.py                every case: 5,000, some 15 minutes on two cores
    python tests/slow/fault_matrix.py --cases 300    300 of them, drawn at random

A case is a kind of fault, a collective with its algorithm, a path, and a step of one rank of three. The ranks make one
call, and the rank is struck in the second one; others may learn of it in the third. `sendrecv` is among the
collectives: each rank sends to the next one, and its steps are moves of its messages. A case is right if

1. every survivor gets the error that the kind of fault promises, with the rank's number;
2. nothing but outputs of the failed call has changed, and no byte around arrays;
3. survivors of a dead rank shrink their communicator and reduce in it;
4. no descriptor, mapping, thread, process or shared file is left.

The time is from the strike to the moment when the program of a survivor has the error.
"""

from __future__ import annotations

import argparse
import itertools
import random
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import local

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "lib"))
from drawn import Call, Choice, Guarded

import nvcoll
from nvcoll._nvcoll import algorithms
from nvcoll.testing import Fault, Ranks, Run

RANKS = 3
CALLS = 4
"""The calls after which a survivor must have an error; the second one is struck."""

KINDS = {
    "KILL": Fault.kill,
    "SEGV": Fault.segfault,
    "_exit": lambda *where: Fault.exit(*where, status=7),
    "exception": Fault.fail,
    "STOP": Fault.stop,
}
DEATHS = {"KILL": {"signal": 9}, "SEGV": {"signal": 11}, "_exit": {"status": 7}}
PATHS = {"symmetric": ("mapped", 60), "staged": ("staged", 60), "pushed": ("pushed", 60), "small": (None, 2)}
"""Path and elements. Arrays are symmetric memory on the first; data travel with the enter on the last."""

MESSAGE_PATHS = ("symmetric", "private", "small")
"""Whose memory messages come from and go to."""

LONG = 100_000
"""The elements of a message that is not copied into the stream, but offered to the receiver."""

STOPPED_S = 0.4
"""The timeout of calls after the first, if a rank is stopped. Chosen: long enough for two on a busy machine."""

AT_ONCE = 6
"""The cases with a stopped rank that run at once, since they mostly wait. Chosen."""


@dataclass(frozen=True)
class Case:
    kind: str
    collective: str
    algorithm: str
    path: str
    rank: int
    step: int | None

    @property
    def is_of_messages(self) -> bool:
        return self.collective == "sendrecv"

    def fault(self) -> Fault:
        return self.place(KINDS[self.kind])

    def place(self, make: Callable[..., Fault]) -> Fault:
        """Returns a fault in the second call: of messages in its receive, which is the fourth."""
        if self.is_of_messages:
            return make(self.rank, 3, self.step).in_messages()
        return make(self.rank, 1, self.step)


@dataclass
class Told:
    """What a survivor has to say."""

    error: Exception | None = None
    at_s: float = 0.0
    is_intact: bool = True
    shrunk_to: int | None = None
    trouble: str = ""


@dataclass
class Result:
    case: Case
    wrong: str
    delays_s: list[float] = field(default_factory=list)
    is_left: bool = False


class Exchange:
    """Sends to the rank above and receives from the rank below."""

    def __init__(self, case: Case, comm: nvcoll.Communicator) -> None:
        def allocate(nbytes: int) -> np.ndarray:
            return comm.empty(nbytes, "u1") if case.path == "symmetric" else np.empty(nbytes, "u1")

        self.below = (comm.rank - 1) % comm.world_size
        x = np.full(LONG if case.path != "small" else 2, comm.rank, np.float32)
        self.x, self.out = Guarded(x, 0, allocate), Guarded(np.zeros_like(x), 0, allocate)
        self.guards = [self.x, self.out]

    def run(self, comm: nvcoll.Communicator, timeout: float) -> None:
        above = (comm.rank + 1) % comm.world_size
        comm.sendrecv(self.x.array, above, self.out.array, self.below, timeout=timeout)
        assert (self.out.array == self.below).all() and (self.x.array == comm.rank).all()


class Barrier:
    """A call without arrays."""

    guards: Sequence[Guarded] = ()

    def run(self, comm: nvcoll.Communicator, timeout: float) -> None:
        comm.barrier(timeout=timeout)


def make(case: Case, comm: nvcoll.Communicator) -> Call | Exchange | Barrier:
    if case.is_of_messages:
        return Exchange(case, comm)
    if case.collective == "barrier":
        return Barrier()
    path, count = PATHS[case.path]
    # Results that nvcoll makes are memory of one process, and so is what `drawn.Call` adds in these two.
    if path == "mapped" and case.collective in ("scatter", "exscan"):
        path = None
    form = "out" if case.collective in ("all_to_all", "exscan") else "in place"
    choice = Choice(case.collective, case.algorithm, RANKS, count, path=path, form=form)

    def allocate(rank: int, nbytes: int) -> np.ndarray:
        is_own = comm.rank == rank and case.path == "symmetric"
        return comm.empty(nbytes, "u1") if is_own else np.empty(nbytes, "u1")

    return Call(choice, is_spmd=True, allocate=allocate)


def program(comm: nvcoll.Communicator, case: Case) -> Told:
    """Makes calls until one fails. The struck rank raises what it gets."""
    told = Told()
    call = make(case, comm)
    guards = call.guards
    before = [guard.memory.copy() for guard in guards]
    for number in range(CALLS):
        for guard, memory in zip(guards, before, strict=True):
            guard.memory[...] = memory
        limit = STOPPED_S if case.kind == "STOP" and number else 10
        try:
            call.run(comm, timeout=limit)
        except nvcoll.Error as error:
            told.at_s = time.monotonic()
            told.error = error.with_traceback(None)
            break
    if told.error is not None and comm.rank == case.rank:
        raise told.error
    told.is_intact = all(guard.is_intact() for guard in guards)
    if told.error is not None and case.kind in DEATHS:
        try:
            survivors = comm.shrink(timeout=5)
            assert (survivors.all_reduce(np.ones(5)) == survivors.world_size).all()
            told.shrunk_to = survivors.world_size
        except nvcoll.Error as error:
            told.trouble = f"shrink: {error}"
    return told


def complaints(case: Case, run: Run) -> Iterator[str]:
    """Yields what is not as it should be."""
    if case.kind == "STOP" and not run[case.rank].was_stopped:
        yield f"rank {case.rank} was not stopped"
    for survivor in (one for one in run if one.rank != case.rank):
        told = survivor.value
        if not isinstance(told, Told):
            yield str(survivor)
        elif told.error is None:
            yield f"rank {survivor.rank} was told nothing"
        else:
            yield from (f"rank {survivor.rank}: {text}" for text in misleading(case, told, run))
    if any(one.is_overdue for one in run):
        yield "a rank was overdue"


def misleading(case: Case, told: Told, run: Run) -> Iterator[str]:
    error, text = told.error, str(told.error)
    name = f"{type(error).__name__}: {text}"
    if case.kind in DEATHS:
        facts = {"rank": case.rank, **DEATHS[case.kind]}
        if not isinstance(error, nvcoll.PeerLost) or any(getattr(error, one) != facts[one] for one in facts):
            yield name
    elif case.kind == "STOP":
        others = [one for one in range(RANKS) if one != case.rank]
        is_named = re.search(rf"\branks? (\d+, )*{case.rank}\b", text)
        is_first = isinstance(error, nvcoll.Timeout) and is_named
        is_second = isinstance(error, nvcoll.Aborted) and any(f"rank {one} timed out" in text for one in others)
        if not (is_first or is_second):
            yield name
    elif not isinstance(error, nvcoll.Aborted) or f"rank {case.rank} " not in text:
        yield name
    if not told.is_intact:
        yield "bytes around an array have changed"
    if told.trouble:
        yield told.trouble
    if case.kind in DEATHS and told.shrunk_to != RANKS - 1:
        yield f"shrunk to {told.shrunk_to}"


_of_thread = local()


def try_case(case: Case) -> Result:
    """Runs one case, in the ranks of this thread."""
    ranks = _of_thread.ranks = getattr(_of_thread, "ranks", None) or Ranks()
    try:
        run = ranks.run(program, RANKS, case, fault=case.fault(), timeout=30)
    except AssertionError as error:
        return Result(case, str(error))
    told = [one.value for one in run if isinstance(one.value, Told) and one.rank != case.rank]
    delays = [one.at_s - run.struck_s for one in told if one.error is not None]
    left = bool(run.left) or any(one.residue for one in run)
    wrong = "; ".join(complaints(case, run))
    return Result(case, wrong, delays, left)


def count_steps(where: Case) -> int:
    """Returns the steps of a rank in a call: it is late at the end, by no time."""
    ranks = _of_thread.ranks = getattr(_of_thread, "ranks", None) or Ranks()
    fault = replace(where, step=-1).place(lambda *at: Fault.delay(0, *at))
    run = ranks.run(program, RANKS, where, fault=fault, timeout=30)
    for rank in run:
        if rank.error is not None:
            raise rank.error
    return run.steps


def places() -> Iterator[Case]:
    """Yields where faults strike: each collective, algorithm and path has its turn at each rank."""
    rows = [(row.collective, row.name) for row in algorithms()]
    for number, ((collective, algorithm), path) in enumerate(itertools.product(rows, PATHS)):
        if collective != "barrier" or path == "small":
            yield Case("", collective, algorithm, path, number % RANKS, None)
    yield from (Case("", "sendrecv", "", path, rank, None) for path in MESSAGE_PATHS for rank in range(RANKS))


def steps_of(place: Case) -> list[int | None]:
    """Returns the moments of a call in a place. A small message may be there before its receive, which then is over."""
    if place.is_of_messages:
        return [None, 0] if place.path == "small" else [None, 0, 1, -1]
    return [None, *range(count_steps(place) + 1), -1]


def every_case() -> list[Case]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        steps = list(zip(places(), pool.map(steps_of, places()), strict=True))
    return [replace(place, kind=kind, step=step) for place, moments in steps for step in moments for kind in KINDS]


def drawn_cases(count: int, rng: random.Random) -> list[Case]:
    """Draws about this number of cases, of every kind alike."""
    few = [rng.choice(list(places())) for _ in range(count // len(KINDS))]
    return [replace(place, kind=kind, step=rng.choice(steps_of(place))) for place in few for kind in KINDS]


def table(results: Sequence[Result]) -> str:
    """Returns the table: a row for each kind of fault."""
    lines = ["fault            tries  right   error after: median     worst  residue"]
    for kind in KINDS:
        own = [one for one in results if one.case.kind == kind]
        delays = sorted(delay for one in own for delay in one.delays_s)
        times = f"{statistics.median(delays) * 1e3:>16.2f} ms {delays[-1] * 1e3:>6.0f} ms" if delays else f"{'-':>29}"
        right = sum(not one.wrong for one in own)
        lines.append(f"{kind:<16} {len(own):>5} {right:>6}   {times} {sum(one.is_left for one in own):>8}")
    return "\n".join(lines)


def wrong_of(results: Sequence[Result]) -> list[str]:
    """Returns what is wrong, in words."""
    return [f"{one.case} {one.wrong}{' left something' * one.is_left}" for one in results if one.wrong or one.is_left]


def run_all(chosen: Sequence[Case]) -> list[Result]:
    """Runs cases: those with a stopped rank side by side, and the others one after the other, since they are timed."""
    stopped = [case for case in chosen if case.kind == "STOP"]
    results = [try_case(case) for case in chosen if case.kind != "STOP"]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return results + list(pool.map(try_case, stopped))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, help="the number of cases; default: all")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), help="the kinds of faults to try")
    options = parser.parse_args()
    chosen = every_case() if options.cases is None else drawn_cases(options.cases, random.Random())
    chosen = [case for case in chosen if case.kind in options.kinds]
    began = time.monotonic()
    results = run_all(chosen)
    print(table(results))
    wrong = wrong_of(results)
    print(f"{len(results)} cases in {time.monotonic() - began:.0f} s, {len(wrong)} wrong", *wrong[:40], sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
