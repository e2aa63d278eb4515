"""Ranks on hosts with networks of their own, as users start them: results, and the errors of survivors."""

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from namespaces import Namespaces, Refused

PROGRAM = Path(__file__).parents[1] / "lib" / "hosts_programs.py"


@pytest.fixture
def hosts():
    if find_spec("torch") is None:
        pytest.skip("torch is not installed")
    try:
        with Namespaces(2) as made:
            yield made
    except Refused as error:
        pytest.skip(f"namespaces are refused: {error}")


@pytest.mark.timeout(200)
@pytest.mark.parametrize("ranks", [[2, 2], [1, 2]], ids=["even", "uneven"])
def test_torchrun_starts_ranks_on_several_hosts(hosts, ranks):
    ends = hosts.torchrun(PROGRAM, "sums", ranks=ranks)
    assert [status for status, _ in ends] == [0, 0], ends
    assert sum(output.count("right") for _, output in ends) == sum(ranks)
    assert "by gloo over e0 (10.77.0.1)" in ends[0][1] and "nvcoll" not in ends[1][1]


@pytest.mark.timeout(200)
def test_mpirun_starts_ranks_on_several_hosts(hosts):
    mpirun = shutil.which("mpirun")
    if find_spec("mpi4py") is None or mpirun is None:
        pytest.skip("mpi4py and an MPI are not installed")
    status, output = hosts.mpirun(mpirun, sys.executable, PROGRAM, "sums")
    assert status == 0 and output.count("right") == 4 and "by MPI" in output, output


@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("killed", "PeerLost on a: rank 1 (process "),
        ("raised", "Aborted on a: the program of rank 1 has failed"),
        ("late", "Timeout on a: timed out after 3 s"),
    ],
)
def test_survivors_on_another_host_are_told(hosts, fault, said):
    output = hosts.torchrun(PROGRAM, fault)[1][1]
    assert said in output and "terminate called" not in output, output


@pytest.mark.timeout(200)
def test_a_rank_that_was_alone_on_its_host_is_named_with_it(hosts):
    place = {"NVCOLL_WORLD_SIZE": "2", "MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29504"}
    program = [sys.executable, PROGRAM, "killed"]
    ranks = [hosts.start(name, program, NVCOLL_RANK=str(rank), **place) for rank, name in enumerate("ab")]
    output = hosts.ends(ranks, 60)[0][1]
    assert "PeerLost on b: the connection to rank 1 broke" in output and "ranks (1,)" in output, output


@pytest.mark.timeout(200)
def test_a_lost_link_is_an_error(hosts):
    program = [sys.executable, PROGRAM, "cut"]
    place = {"NVCOLL_WORLD_SIZE": "2", "MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29503"}
    ranks = [hosts.start(name, program, NVCOLL_RANK=str(rank), **place) for rank, name in enumerate("ab")]
    while "begun" not in (line := ranks[0].stdout.readline()):
        assert line, ranks[0].wait(10)
    hosts.ip("-n b link set e0 down")
    for other, (status, output) in zip("ba", hosts.ends(ranks, 60), strict=True):
        assert status == 0 and f"Timeout on {other}" in output, output
