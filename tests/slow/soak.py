"""A soak: random programs of processes, with deaths, shrinks and rejoins, checked to the bit, for as long as you like.

    python tests/slow/soak.py --seconds 3600
    python tests/slow/soak.py --seconds 60 --seed 7

A round is a few ranks that make the same random calls: collectives of any algorithm, dtype, path and memory, some of
which return at once, groups of calls, messages, and calls of communicators that are split off. In most rounds something
happens to one rank on the way. Survivors must be told who it was, go on in a shrunk communicator, leave, and join one
more job. Every result is compared with the oracle, and what is left open is counted. The last line says what was done.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "lib"))
from drawn import HAS_ROOT, OF_ONE_PART, ROWS, Call, Choice, forms_of, pairs_of, parts_of
from fault_matrix import DEATHS, KINDS

import nvcoll
from nvcoll.testing import Outcome, Ranks, Run, no_residue

CALLS = 12
"""Calls before and after something happens."""

COUNTS = (0, 1, 2, 7, 33, 509, 4099, 20_011)
STOPPED_S = 1.0
"""The timeout of calls in rounds with a stopped rank. Chosen."""


@dataclass(frozen=True)
class Round:
    """A round, from which every rank makes the same program."""

    seed: int
    world_size: int
    kind: str | None
    victim: int
    call: int
    step: int | None
    job: str


@dataclass
class Seen:
    """The calls of a rank and their errors."""

    done: Counter = field(default_factory=Counter)
    error: Exception | None = None


def drawn_choice(rng: random.Random, world_size: int) -> Choice:
    collective, algorithm = rng.choice(ROWS)
    op, dtype = rng.choice(pairs_of(collective))
    counts: int | list[int] = rng.choice(COUNTS)
    if collective not in OF_ONE_PART and rng.random() < 0.3:
        counts = [rng.choice((0, 1, 33, 1000)) for _ in range(parts_of(collective, world_size))]
    return Choice(
        collective,
        algorithm,
        world_size,
        counts,
        op=op,
        dtype=dtype,
        root=rng.randrange(world_size) if HAS_ROOT[collective] else 0,
        path=rng.choice((None, "staged", "pushed")),
        form=rng.choice(forms_of(collective)),
        is_special=rng.random() < 0.3,
        seed=rng.randrange(2**32),
    )


def call_one(comm: nvcoll.Communicator, rng: random.Random, seen: Seen) -> None:
    choice = drawn_choice(rng, comm.world_size)
    symmetric = rng.choice(((), range(comm.world_size), range(rng.randrange(comm.world_size))))
    at_once = rng.random() < 0.3

    def allocate(rank: int, nbytes: int) -> np.ndarray:
        return comm.empty(nbytes, "u1") if rank == comm.rank and rank in symmetric else np.empty(nbytes, "u1")

    call = Call(choice, is_spmd=True, allocate=allocate)
    if at_once:
        call.check_result(comm, call.begin(comm, async_op=True).wait())
    else:
        call.run(comm)
    assert all(guarded.is_intact() for guarded in call.guards), choice
    seen.done["asynchronous" if at_once else "collectives"] += 1


def call_group(comm: nvcoll.Communicator, rng: random.Random, seen: Seen) -> None:
    arrays = [np.full(rng.choice(COUNTS), comm.rank + 1, "i8") for _ in range(rng.randrange(1, 5))]
    with comm.group():
        for x in arrays:
            comm.all_reduce(x)
    assert all((x == comm.world_size * (comm.world_size + 1) // 2).all() for x in arrays)
    seen.done["groups of calls"] += 1


def exchange(comm: nvcoll.Communicator, rng: random.Random, seen: Seen) -> None:
    count, shift, make = rng.choice((0, 7, 4099, 60_011)), rng.randrange(comm.world_size), rng.choice((np, comm))
    to, source = ((comm.rank + one) % comm.world_size for one in (shift, -shift))
    x, out = make.full(count, comm.rank, "i4"), make.full(count, -1, "i4")
    comm.sendrecv(x, to, out, source)
    assert (out == source).all()
    seen.done["messages"] += 1


def call_split(comm: nvcoll.Communicator, rng: random.Random, seen: Seen) -> None:
    colors = rng.randrange(1, 3)
    group = comm.split(comm.rank % colors, rng.choice((None, -comm.rank)))
    seen.done["splits"] += 1
    for _ in range(rng.randrange(3)):
        call_one(group, random.Random(f"{rng.random()} {group.ranks}"), seen)


def call_some(comm: nvcoll.Communicator, seed: str, seen: Seen) -> None:
    rng = random.Random(seed)
    for _ in range(CALLS):
        rng.choices((call_one, call_group, call_split, exchange), (7, 1, 1, 1))[0](comm, rng, seen)


def program(comm: nvcoll.Communicator, this: Round) -> Seen:
    """Is one rank of a round."""
    seen, number = Seen(), comm.rank
    alive = [rank for rank in range(this.world_size) if this.kind is None or rank != this.victim]
    try:
        for part in range(4):
            call_some(comm, f"{this.seed} {part}", seen)
            if this.kind is None:
                break
    except nvcoll.Error as error:
        seen.error = error.with_traceback(None)
        if number == this.victim:
            raise
    if seen.error is not None and this.kind in DEATHS:
        small = comm.shrink(timeout=10)
        assert small.world_size == len(alive)
        seen.done["shrinks"] += 1
        call_some(small, f"{this.seed} shrunk", seen)
    nvcoll.finalize()
    again = nvcoll.init(alive.index(number), len(alive), this.job, timeout=10, join_timeout=10)
    seen.done["rejoins"] += 1
    call_some(again, f"{this.seed} again", seen)
    return seen


def drawn_round(seed: int) -> Round:
    rng = random.Random(seed)
    world_size = rng.randrange(2, 5)
    kind = rng.choice((None, *KINDS, *DEATHS))
    where = rng.randrange(world_size), rng.randrange(CALLS // 2), rng.choice((None, 0, -1))
    return Round(seed, world_size, kind, *where, f"soak-{os.getpid()}-{seed}")


def complaint(this: Round, run: Run) -> str:
    """Returns what was not as it should be, of all ranks: the first may only be told what another did."""
    found = [words for one in run if (words := complaint_of(this, one))]
    return "\n".join(found + ([f"left {run.left}"] if run.left else []))


def complaint_of(this: Round, one: Outcome) -> str:
    if one.is_overdue or (one.residue and one.status != -9):
        return f"{one}: {one.residue}\n{one.trace}"
    if one.rank != this.victim or this.kind is None:
        if not one.returned:
            return f"{one}\n{one.trace}"
        error = one.value.error
        if (error is None) != (this.kind is None):
            return f"{one}: was told {error!r}"
        if error is not None and not is_right(this, error):
            return f"rank {one.rank} was told {type(error).__name__}: {error}"
    return ""


def is_right(this: Round, error: Exception) -> bool:
    if this.kind == "STOP":  # a rank whose time is up leaves the job, which others see instead
        return isinstance(error, nvcoll.Timeout | nvcoll.Aborted | nvcoll.Mismatch)
    number, text = this.victim, str(error)
    if group := re.search(r"the ranks of this communicator are ranks? ([\d, ]+) of the run", text):
        number = [int(rank) for rank in group[1].split(", ")].index(this.victim)  # it is said as there
    if this.kind in DEATHS:
        return isinstance(error, nvcoll.PeerLost) and error.rank == number
    return isinstance(error, nvcoll.Aborted) and f"rank {number} " in text


def soak(seconds: float, seed: int, at_once: int) -> int:
    """Runs rounds; prints what was wrong and, at last, what was done. Returns the number of wrong rounds."""
    done, end, began = Counter(), time.monotonic() + seconds, time.monotonic()
    seeds = iter(range(seed, seed + 10**9))

    def work() -> None:
        with Ranks() as ranks:
            while time.monotonic() < end:
                this = drawn_round(next(seeds))
                fault = KINDS[this.kind](this.victim, this.call, this.step) if this.kind else None
                limit = STOPPED_S if this.kind == "STOP" else 10.0
                try:
                    run = ranks.run(program, this.world_size, this, fault=fault, timeout=60, call_timeout=limit)
                    wrong = complaint(this, run)
                    for one in run:
                        done.update(one.value.done if one.returned else {})
                    done["residue"] += sum(bool(one.residue) for one in run)
                except (AssertionError, nvcoll.Error) as error:
                    wrong = str(error)
                done["rounds"] += 1
                done[f"{this.kind}"] += 1
                if wrong:
                    done["wrong"] += 1
                    print(this, wrong, flush=True)

    with no_residue(), ThreadPoolExecutor(at_once) as pool:
        for one in [pool.submit(work) for _ in range(at_once)]:
            one.result()
    calls = ", ".join(
        f"{done[one]} {one}" for one in ("collectives", "asynchronous", "groups of calls", "splits", "messages")
    )
    faults = ", ".join(f"{kind} {done[kind]}" for kind in KINDS)
    print(
        f"soak of {time.monotonic() - began:.0f} s, seed {seed}: {done['rounds']} rounds; calls of ranks: {calls}; "
        f"faults: {faults}; {done['shrinks']} shrinks and {done['rejoins']} rejoins of ranks; "
        f"{done['wrong']} rounds wrong, {done['residue']} ranks with residue"
    )
    return done["wrong"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--at-once", type=int, default=2, help="the rounds that run side by side")
    options = parser.parse_args()
    sys.exit(soak(options.seconds, options.seed, options.at_once) > 0)
