"""Stress: random programs of ranks, and random calls of several nodes at once with failures in between.

Rounds are numbered, and a round is a function of its number, so that one that failed can be run again alone:
``NVCOLL_STRESS_FIRST=4711 NVCOLL_STRESS_ROUNDS=1 pytest tests/slow/test_stress.py``.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from typing import Any

import pytest
from drawn import HAS_ROOT, OF_ONE_PART, PAIRS, ROWS, Call, Choice, forms_of, pairs_of
from rank_threads import in_threads

import nvcoll
from nvcoll._nvcoll import algorithms

ROUNDS = int(os.environ.get("NVCOLL_STRESS_ROUNDS", "40"))
FIRST = int(os.environ.get("NVCOLL_STRESS_FIRST", "0"))
ALGORITHMS = [row.name for row in algorithms() if row.collective == "all_reduce"]
COUNTS = [0, 1, 2, 7, 31, 64, 509, 4099, 40_000]
WORLD_SIZES = [1, 2, 2, 3, 3, 4, 5, 6, 8, 13]

# A watchdog inside the calls, so that a hang is a Timeout that says who is missing.
WATCHDOG_S = 100.0

pytestmark = pytest.mark.timeout(max(300, ROUNDS))

nodes: dict[tuple[int, int], nvcoll.Node] = {}


def reduction(rng: random.Random, world_size: int, *, is_spmd: bool = True) -> Call:
    """Makes an all_reduce of any op, dtype, algorithm and path."""
    op, dtype = rng.choice(PAIRS)
    choice = Choice("all_reduce", rng.choice(ALGORITHMS), world_size, rng.choice(COUNTS), op=op, dtype=dtype)
    choice.path, choice.form = rng.choice(["mapped", "staged", "pushed"]), rng.choice(["in place", "out"])
    choice.seed = rng.getrandbits(32)
    return Call(choice, is_spmd=is_spmd)


def barrier(comm: nvcoll.Communicator) -> None:
    comm.barrier()


def dawdle(rng: random.Random) -> None:
    """Takes no time, gives way, computes or sleeps."""
    kind = rng.random()
    if kind < 0.1:
        time.sleep(rng.random() * 0.002)
    elif kind < 0.3:
        time.sleep(0)
    elif kind < 0.4:
        sum(range(rng.randrange(20_000)))


def random_calls(rng: random.Random, world_size: int) -> list:
    makes = rng.randint(1, 8)
    return [reduction(rng, world_size).run if rng.random() < 0.75 else barrier for _ in range(makes)]


def spmd_round(number: int) -> None:
    rng = random.Random(number)
    world_size, workers = rng.choice(WORLD_SIZES), rng.choice([1, 2])
    node = nodes.setdefault((world_size, workers), nvcoll.Node(world_size, workers=workers))
    calls = random_calls(rng, world_size)
    failing = rng.randrange(world_size) if rng.random() < 0.1 else None
    fails_at = rng.randrange(len(calls))
    arrived = [0] * len(calls)

    def program(comm):
        own = random.Random(number * 1000 + comm.rank)
        for at, call in enumerate(calls):
            dawdle(own)
            if comm.rank == failing and at == fails_at:
                raise ValueError("injected")
            arrived[at] += 1  # under the interpreter's lock
            call(comm)
            assert call is not barrier or arrived[at] == world_size, "a barrier let a rank go before all had come"
        return comm.rank

    if failing is None:
        assert node.run(program, timeout=WATCHDOG_S) == list(range(world_size))
    else:
        with pytest.raises(ValueError, match="injected"):
            node.run(program, timeout=WATCHDOG_S)


def rooted(rng: random.Random, world_size: int, path: str) -> Call:
    """Makes a call of a collective with a root, of any root and uneven parts."""
    collective, algorithm = rng.choice([row for row in ROWS if HAS_ROOT[row[0]]])
    op, dtype = rng.choice(pairs_of(collective))
    parts = 1 if collective in OF_ONE_PART else world_size
    counts = rng.choice(COUNTS) if parts == 1 else [rng.choice([0, 1, 33, 5000]) for _ in range(parts)]
    choice = Choice(collective, algorithm, world_size, counts, op=op, dtype=dtype, path=path)
    choice.root, choice.form = rng.randrange(world_size), rng.choice(forms_of(collective))
    choice.seed = rng.getrandbits(32)
    return Call(choice, is_spmd=True)


def rooted_round(number: int) -> None:
    """Calls with roots one after the other: a rank that needs nothing from slow ones runs ahead, as stamps let it."""
    rng = random.Random(number)
    world_size = rng.choice(WORLD_SIZES)
    node = nodes.setdefault((world_size, 2), nvcoll.Node(world_size, workers=2))
    path = rng.choice(["mapped", "staged", "pushed"])
    calls = [rooted(rng, world_size, path) for _ in range(rng.randint(3, 12))]
    slow = {rank for rank in range(world_size) if rng.random() < 0.3}

    def program(comm):
        own = random.Random(number * 1000 + comm.rank)
        for call in calls:
            if comm.rank in slow:
                dawdle(own)
            call.run(comm)

    node.run(program, timeout=WATCHDOG_S)
    assert all(guarded.is_intact() for call in calls for guarded in call.guards)


def test_repeated_calls_with_roots_give_the_oracle_s_bits_whoever_is_slow():
    for number in range(FIRST, FIRST + ROUNDS):
        numbered(rooted_round, number)


class Groups:
    """A random program of ranks in random groups of groups: which there are, who calls what in which, and what ends it.

    Communicator 0 is everybody's. Each thread has one script for all ranks; each rank follows its own part,
    and communicators of its own; so whoever waits, waits for one that is on its way.
    """

    def __init__(self, rng: random.Random) -> None:
        self.world_size = rng.choice(WORLD_SIZES)
        self.ranks = [tuple(range(self.world_size))]
        self.splits = [self.random_split(rng, rng.randrange(len(self.ranks))) for _ in range(rng.randint(1, 4))]
        threads = rng.choice([1, 1, 2, 3])
        comms = list(range(len(self.ranks)))
        rng.shuffle(comms)
        self.threads = [self.random_script(rng, comms[thread::threads]) for thread in range(threads)]
        self.failing = rng.randrange(self.world_size) if rng.random() < 0.15 else None

    def random_split(self, rng: random.Random, parent: int) -> tuple[int, list[tuple[int | None, int]], dict[int, int]]:
        """Returns the parent, the color and key of each of its ranks, and the communicator of each color."""
        colors = [None, *range(rng.randint(1, 3))]
        wishes = [(rng.choice(colors), rng.randint(-2, 2)) for _ in self.ranks[parent]]
        groups = {}
        for color in sorted({color for color, _ in wishes if color is not None}):
            members = [(key, at) for at, (found, key) in enumerate(wishes) if found == color]
            groups[color] = len(self.ranks)
            self.ranks.append(tuple(self.ranks[parent][at] for _, at in sorted(members)))
        return parent, wishes, groups

    def random_script(self, rng: random.Random, comms: list[int]) -> list[tuple[int, Any]]:
        """Returns pairs of a communicator and what its ranks call in it."""
        script: list[tuple[int, Any]] = []
        for _ in range(rng.randint(1, 8) if comms else 0):
            at = rng.choice(comms)
            script.append((at, reduction(rng, len(self.ranks[at])).run if rng.random() < 0.75 else barrier))
        for at in comms:
            if at > 0 and rng.random() < 0.1:
                script.insert(rng.randint(0, len(script)), (at, rng.choice(self.ranks[at])))
        return script

    def run(self, comm: nvcoll.Communicator, number: int) -> None:
        own = random.Random(number * 1000 + comm.rank)
        comms = {0: comm}
        for parent, wishes, groups in self.splits:
            if parent in comms:
                dawdle(own)
                color, key = wishes[comms[parent].rank]
                group = comms[parent].split(color, key)
                assert (group is None) == (color is None)
                if group is not None:
                    comms[groups[color]] = group
                    assert group.ranks == self.ranks[groups[color]] and group.ranks[group.rank] == comm.rank
        failures: list[BaseException] = []

        def follow(script: list[tuple[int, Any]]) -> None:
            try:
                self.follow(script, comms, random.Random(own.random()))
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=follow, args=(script,)) for script in self.threads]
        for thread in threads:
            thread.start()
        if comm.rank == self.failing:
            dawdle(own)
            raise ValueError("injected")
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def follow(self, script: list[tuple[int, Any]], comms: dict[int, nvcoll.Communicator], own: random.Random) -> None:
        aborted: dict[int, int] = {}
        for at, call in script:
            if at not in comms:
                continue
            dawdle(own)
            if isinstance(call, int):
                aborted[at] = self.ranks[at].index(call)
                if comms[at].rank == aborted[at]:
                    comms[at].abort()
            elif at in aborted:
                with pytest.raises(nvcoll.Aborted, match=rf"^rank {aborted[at]} called abort"):
                    call(comms[at])
            elif any(later[0] == at and isinstance(later[1], int) for later in script):
                # The abort of a rank that is ahead may come before, after or in the middle of this call.
                with contextlib.suppress(nvcoll.Aborted):
                    call(comms[at])
            else:
                call(comms[at])


def groups_round(number: int) -> None:
    groups = Groups(random.Random(number))
    node = nodes.setdefault((groups.world_size, 1), nvcoll.Node(groups.world_size, workers=1))
    if groups.failing is None:
        node.run(groups.run, number, timeout=WATCHDOG_S)
    else:
        with pytest.raises(ValueError, match="injected"):
            node.run(groups.run, number, timeout=WATCHDOG_S)


def numbered(round_of, number: int, *args) -> None:
    try:
        round_of(number, *args)
    except BaseException as error:
        error.add_note(f"in round {number}: NVCOLL_STRESS_FIRST={number} NVCOLL_STRESS_ROUNDS=1")
        raise


def test_random_programs_of_ranks_give_the_oracle_s_bits():
    for number in range(FIRST, FIRST + ROUNDS):
        numbered(spmd_round, number)


def test_random_groups_of_ranks_in_threads_give_the_oracle_s_bits_and_end_alone():
    for number in range(FIRST, FIRST + ROUNDS):
        numbered(groups_round, number)


def driven_round(number: int, thread: int, node: nvcoll.Node) -> None:
    """One call, perhaps with a deadline that may pass; one without, which must work whatever came before."""
    rng = random.Random(number * 10 + thread)
    if rng.random() < 0.5:
        with contextlib.suppress(nvcoll.Timeout):
            reduction(rng, node.world_size, is_spmd=False).drive(node, timeout=rng.choice([0, 1e-5, 1e-4]))
    if rng.random() < 0.2:
        with pytest.raises(ValueError, match="injected"):
            failing = rng.randrange(node.world_size)

            def program(comm):
                if comm.rank == failing:
                    raise ValueError("injected")
                comm.barrier(timeout=WATCHDOG_S)

            node.run(program)
    reduction(rng, node.world_size, is_spmd=False).drive(node, timeout=WATCHDOG_S)


def test_nodes_in_several_threads_work_after_every_timeout_and_abort():
    def work(thread: int) -> None:
        for number in range(FIRST, FIRST + ROUNDS):
            # A new node now and then: helpers start and stop while those of other nodes work.
            if number % 20 == 0 or number == FIRST:
                rng = random.Random(number * 10 + thread)
                node = nvcoll.Node(rng.choice(WORLD_SIZES), workers=rng.choice([1, 2, 3]))
            numbered(driven_round, number, thread, node)

    in_threads(*(lambda thread=thread: work(thread) for thread in range(3)))
