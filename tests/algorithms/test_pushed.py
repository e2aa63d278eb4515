"""Pushing as NCCL does: several channels and FIFOs of any depth give the bits that mapped memory gives."""

from __future__ import annotations

import numpy as np
import pytest

import nvcoll
from nvcoll import oracle
from nvcoll._nvcoll import algorithms

pytestmark = pytest.mark.timeout(300)

COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast")
ROWS = [(row.collective, row.name) for row in algorithms() if row.collective in COLLECTIVES]
FIFOS = [(1, 1), (2, 8), (2, 3)]
COUNTS = [0, 1, 1009, 40_001]
IN_PLACE = ("all_reduce", "broadcast")
"""Where arrays come back in place unless `out` is passed."""


def arrays(collective: str, world_size: int, count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(count)
    count *= world_size if collective == "reduce_scatter" else 1
    return [rng.normal(size=count).astype("f4") for _ in range(world_size)]


@pytest.mark.parametrize(("collective", "algorithm"), ROWS)
def test_a_schedule_pushed_through_any_fifo_gives_the_same_bits_whoever_calls(collective, algorithm):
    for world_size in (1, 2, 3, 5, 8):
        mapped = nvcoll.schedule(collective, algorithm, world_size=world_size, in_place=collective in IN_PLACE)
        pushed = [mapped.lower("pushed", channels=channels, slots=slots) for channels, slots in FIFOS]
        assert [schedule.slots for schedule in pushed] == [slots for _, slots in FIFOS]
        with nvcoll.Node(world_size, workers=2) as node:
            for count in COUNTS:
                given = arrays(collective, world_size, count)
                expected = getattr(node, collective)([x.copy() for x in given], algorithm=algorithm)
                for schedule in pushed:
                    copies = [x.copy() for x in given]
                    found = getattr(node, collective)(copies, algorithm=schedule, path="pushed")
                    assert all(map(oracle.same_bits, found, expected)), (world_size, count, schedule.slots)

                def program(comm, given, schedule):
                    x = given[comm.rank].copy()
                    return getattr(comm, collective)(x, algorithm=schedule, path="pushed", timeout=60)

                for schedule in pushed:
                    found = node.run(program, given, schedule, timeout=60)
                    assert all(map(oracle.same_bits, found, expected)), (world_size, count, schedule.slots)


def test_calls_of_different_depths_follow_each_other_in_the_same_staging():
    mapped = nvcoll.schedule("all_reduce", "ring", world_size=4)
    pushed = [mapped.lower("pushed", channels=channels, slots=slots) for channels, slots in FIFOS]
    calls = [*((schedule, "pushed") for schedule in pushed), ("ring", "staged"), ("tree", "pushed"), ("ring", "mapped")]

    def program(comm):
        rng = np.random.default_rng(7)  # the same calls on every rank
        for _ in range(60):
            algorithm, path = calls[rng.integers(len(calls))]
            count = int(rng.choice([1, 33, 5000, 100_003]))
            x = comm.all_reduce(np.full(count, comm.rank + 1, "i4"), algorithm=algorithm, path=path, timeout=60)
            assert (x == 10).all()

    nvcoll.Node(4).run(program, timeout=120)


def test_only_pushing_has_channels_and_slots_of_its_own():
    mapped = nvcoll.schedule("all_reduce", "ring", world_size=3)
    assert (mapped.slots, mapped.lower("staged").slots, mapped.lower("pushed").slots) == (0, 2, 2)
    pushed = mapped.lower("pushed", channels=4, slots=8)
    assert nvcoll.Schedule.parse(str(pushed)).slots == 8
    assert nvcoll.verify(pushed).order == "own"
    for path in ("mapped", "staged"):
        with pytest.raises(nvcoll.InvalidArgument, match="`channels` and `slots` are of the path pushed"):
            mapped.lower(path, slots=8)
    for fifo in ({"slots": 0}, {"slots": 65}, {"channels": 0}, {"channels": -1}, {"slots": "8"}, {"channels": 10**6}):
        with pytest.raises((nvcoll.BuildError, nvcoll.InvalidArgument), match=r"are possible|must be a whole number"):
            mapped.lower("pushed", **fifo)
    with pytest.raises(nvcoll.BuildError, match="cannot be lowered again"):
        pushed.lower("pushed", slots=2)
