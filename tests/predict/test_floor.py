"""No public measurement of a healthy machine is faster than the floor of the fabric that models it."""

from functools import cache
from pathlib import Path

from nvcoll._nvcoll import collectives

import judging
from nccl_estimate import built

DATA = Path(__file__).parents[2] / "data" / "nccl-tests"

COLLECTIVES = {row.name for row in collectives()}


@cache
def floor_of(system: judging.System, collective: str) -> tuple[float, float]:
    """Returns the microseconds of no bytes and of one more."""
    fabric = built(system)
    latency, gib = (fabric.floor(collective, nbytes) for nbytes in (0, 1 << 30))
    return latency, (gib - latency) / (1 << 30)


def rows():
    return [row for row in judging.read(DATA) if row.healthy == "yes" and row.collective in COLLECTIVES]


def test_no_healthy_measurement_is_faster_than_the_floor():
    faster, compared = [], 0
    for row in rows():
        latency, per_byte = floor_of(row.system, row.collective)
        compared += 1
        if row.time_us < latency + per_byte * row.nbytes:
            faster.append((row.system.system_id, row.collective, row.nbytes))
    assert not faster
    assert compared > 2500
