"""No public measurement of a healthy machine is faster than the floor of the fabric that models it."""

from functools import cache
from pathlib import Path

import pytest

import nvcoll
from nvcoll import validate
from nvcoll._nvcoll import collectives
from nvcoll.nccl_estimate import built

DATA = Path(__file__).parent.parent / "data" / "nccl-tests"

COLLECTIVES = {name for name, *_ in collectives()}

NOT_MODELLED = {
    "t4-1": "a T4 in each node: no preset",
    "h100-pcie-1": "an H100 PCIe in each node: no preset",
    "tcpxo-200-8": "no row in networks.toml",
    "gb200-64": "racks beside racks: the network's cards are those of one tray",
    "gb300-64": "racks beside racks: the network's cards are those of one tray",
}
"""Fabrics and networks of the table that cannot be built yet, and why; the test fails when one of them can."""


@cache
def floor_of(system: validate.System, collective: str) -> tuple[float, float]:
    """Returns the microseconds of no bytes and of one more."""
    fabric = built(system)
    latency, gib = (fabric.floor(collective, nbytes) for nbytes in (0, 1 << 30))
    return latency, (gib - latency) / (1 << 30)


def rows():
    return [row for row in validate.read(DATA) if row.healthy == "yes" and row.collective in COLLECTIVES]


def is_modelled(system):
    return not {system.fabric, system.network} & NOT_MODELLED.keys() or system.n_gpus == 64


def test_no_healthy_measurement_is_faster_than_the_floor():
    faster, compared = [], 0
    for row in rows():
        if not is_modelled(row.system):
            continue
        latency, per_byte = floor_of(row.system, row.collective)
        compared += 1
        if row.time_us < latency + per_byte * row.nbytes:
            faster.append((row.system.system_id, row.collective, row.nbytes))
    assert not faster
    assert compared > 2300


@pytest.mark.parametrize("name", NOT_MODELLED)
def test_what_is_left_out_cannot_be_built(name):
    of_name = [row.system for row in rows() if name in (row.system.fabric, row.system.network)]
    systems = {system for system in of_name if not is_modelled(system)}
    assert systems
    for system in systems:
        with pytest.raises(nvcoll.InvalidArgument):
            built(system).floor("all_reduce", 1)
