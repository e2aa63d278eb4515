"""Links shared max-min fair end transfers when SimGrid's fluid model does, within 1 %.

What SimGrid said is recorded, with its version; where it is installed it is asked again. `simgrid_cases.py` says which
flows these are, `simgrid_flows.py` how SimGrid is set.
"""

import json
from functools import cache

import pytest
from simgrid_cases import CASES, GOLDEN, PYTHON, apart, in_simgrid, is_installed, simulated

MOST_APART = 0.01
"""Chosen: the project's bar. Found: at most 5e-8."""

has_simgrid = cache(is_installed)


@cache
def golden():
    return json.loads(GOLDEN.read_text())


@pytest.mark.parametrize(("topology", "pattern"), CASES)
def test_flows_end_when_simgrid_said_they_do(topology, pattern):
    assert apart(simulated(topology, pattern), golden()["seconds"][f"{topology} {pattern}"]) < MOST_APART


@pytest.mark.parametrize(("topology", "pattern"), CASES)
def test_flows_end_when_simgrid_says_they_do(topology, pattern):
    if not has_simgrid():
        pytest.skip(f"{PYTHON} has no simgrid: apt-get install python3-simgrid")
    version, ends = in_simgrid(topology, pattern)
    assert apart(simulated(topology, pattern), ends) < MOST_APART
    if version == golden()["simgrid"]:
        assert apart(golden()["seconds"][f"{topology} {pattern}"], ends) < 1e-9, "what is recorded is what it says"
