"""Versions of NCCL that are known to be slower are suspects of `nvcoll check` where the conditions of a thread hold."""

from dataclasses import replace

import pytest
from check_logs import table

import nvcoll
from nvcoll.check import nccl_tests
from nvcoll.check.regressions import REGRESSIONS, of_version
from nvcoll.check.verdict import judged

MACHINE = "pcie5-2-p2px2+slingshot-2"


def log(version):
    """Returns a log of four ranks whose sizes up to 1 MiB are slow."""
    times = {nth << 17: 300.0 + nth if nth <= 8 else 150.0 + nth for nth in range(4, 14)}
    (found,) = nccl_tests.read("log", table(times, ranks=4))
    return replace(found, version=version)


@pytest.mark.parametrize(
    ("version", "is_known"), [("2.30.5", True), ("2.30.4", False), ("2.3.5", False), (None, False)]
)
def test_a_version_is_the_first_suspect_of_the_sizes_of_its_thread(version, is_known):
    found = judged(log(version), nvcoll.fabric(MACHINE), None, None)
    assert ("version" in [one.ailment.key for one in found.suspects]) == is_known
    assert not is_known or found.suspects[0].ailment.thread.endswith("/nccl/issues/2441")


@pytest.mark.parametrize(
    ("machine", "slow", "count"),
    [("hgx-h100x8+efa-100-32", 1 << 30, 1), ("hgx-h100x2+efa-100-32", 1 << 30, 0), ("hgx-a100x8+ib-hdr-8", 1 << 30, 0),
     ("hgx-h100x8+efa-100-32", 1 << 20, 0)],
)  # fmt: skip
def test_nodes_gpus_and_sizes_of_a_thread_must_be_those_of_the_log(machine, slow, count):
    assert len([*of_version(log("2.19.3"), nvcoll.fabric(machine), [slow])]) == count


def test_every_regression_has_a_range_a_workaround_and_a_link():
    for one in REGRESSIONS:
        assert one.what and one.workaround and one.thread.startswith("https://github.com/")
        assert one.nodes[0] <= one.nodes[1] and one.sizes[0] < one.sizes[1]
