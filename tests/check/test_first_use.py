"""What a new user of nvcoll check runs into: a wrong machine, prefixes of CI systems, files that cannot be read."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from command_line import cli, done

import nvcoll
from nvcoll.check import formats, machine
from nvcoll.check.log import Log
from nvcoll.check.row import Row
from nvcoll.check.verdict import CANNOT_TELL, HEALTHY, SICK, SUSPICIOUS, among, examined, judged

LOGS = Path(__file__).parents[2] / "data" / "nccl-logs"
BOARD = LOGS / "nccl-tests-290-1node.log"


def logs_of(text):
    return formats.read("a.log", text)


@pytest.mark.parametrize("on", ["hgx-a100", "pcie5-8-staged", "rtx4090-8-staged"])
def test_a_log_that_is_faster_than_its_machine_is_of_another_one(on):
    (log,) = logs_of(BOARD.read_text())
    found = judged(log, nvcoll.fabric(on), None, None)
    assert found.verdict == CANNOT_TELL and "faster than this machine can be" in found.reasons[0]


def test_the_gpus_of_the_header_are_compared_with_those_of_the_machine():
    (log,) = logs_of(BOARD.read_text())
    assert machine.doubt(log, nvcoll.fabric("hgx-h100")) is None
    told = machine.doubt(log, nvcoll.fabric("hgx-b200"))
    assert told == "the GPUs of the log are `NVIDIA H100 80GB HBM3`, the GPUs of hgx-b200 are B200 SXM"
    assert told in cli("check", BOARD, "--on", "hgx-b200", status=1).stdout.replace("\n" + 12 * " ", " ")


def test_wrong_elements_are_seen_without_the_footer():
    head, sep, rows = BOARD.read_text().partition("out-of-place")
    lines = [line for line in rows.splitlines() if "Out of bounds" not in line]
    at = next(nth for nth, line in enumerate(lines) if " float " in line)
    words = lines[at].split()
    words[-1] = "7"
    text = head + sep + "\n".join([*lines[:at], " ".join(words), *lines[at + 1 :]])
    assert logs_of(text)[0].wrong_results and not logs_of(BOARD.read_text())[0].wrong_results


@pytest.mark.parametrize(
    "prefix",
    [
        *("[2025-11-25T14:00:00.123Z] ", "2025-11-25 14:00:00 ", "[14:00:01] ", "14:00:01 "),
        *("worker-0  | ", "10.0.0.1: ", "(worker, ip=10.0.0.2) ", "Nov 25 14:00:00 node1 slurmstepd[77]: "),
    ],
)
def test_prefixes_of_ci_systems_are_removed(prefix):
    text = BOARD.read_text()
    (plain,), (prefixed,) = logs_of(text), logs_of("".join(prefix + line for line in text.splitlines(True)))
    assert prefixed.rows == plain.rows and prefixed.gpus == plain.gpus and prefixed.collective == plain.collective


def test_a_file_that_cannot_be_read_does_not_hide_the_others(tmp_path):
    done = cli("check", BOARD, tmp_path / "none.log", "--junit", tmp_path / "x.xml", status=2)
    assert "healthy" in done.stdout and "none.log" not in done.stdout
    assert done.stderr.endswith("none.log: No such file or directory\n") and done.stderr.count("\n") == 1
    kinds = [[child.tag for child in case] for case in ElementTree.parse(tmp_path / "x.xml").iter("testcase")]
    assert kinds == [[], ["error"]]
    steers = cli("check", "none\x1b]0;title\a.log", status=2).stderr
    assert "none\\x1b]0;title\\x07.log: No such file" in steers


def test_the_footer_names_the_collective_and_the_machine_the_ranks(tmp_path):
    rows = [line.split() for line in BOARD.read_text().splitlines() if " float " in line]
    few = "".join(f"{row[0]} {row[1]} float none 0 {row[5]} 0.00 0.00 0\n" for row in rows)
    (tmp_path / "a.log").write_text(few + "# Collective test concluded: broadcast_perf\n")
    (log,) = logs_of((tmp_path / "a.log").read_text())
    assert log.collective == "broadcast" and len(log.rows) == len(rows)
    assert "8 ranks" in done("check", tmp_path / "a.log", "--on", "hgx-h100").stdout


def predicted(name, collective="all_reduce", slower=1.0, least=1 << 20, **fields):
    """A log whose times are the predicted ones."""
    fabric = nvcoll.fabric(name)
    sizes = [least << power for power in range(14)]
    rows = [
        Row(line, found.nbytes, found.time_us * slower, None)
        for line, found in enumerate(fabric.predict(collective, sizes), 1)
    ]
    return Log("a.log", collective, fabric.world_size, rows, **fields)


@pytest.mark.parametrize(
    ("name", "collective"),
    [
        *(
            ("gb300-32", "broadcast"),
            ("hgx-b200", "broadcast"),
            ("gb200-8", "reduce"),
            ("rtx3090-4-bridge", "all_reduce"),
        ),
        *(("hgx-h800x4+roce-400-8", "all_reduce"), ("hgx-h100x32+ib-ndr-8", "all_reduce")),
    ],
)
def test_a_fall_that_is_predicted_is_healthy(name, collective):
    assert judged(predicted(name, collective), nvcoll.fabric(name), None, None).verdict == HEALTHY


def test_hosts_of_the_header_must_be_the_nodes_of_the_machine():
    cluster = nvcoll.fabric("hgx-h100x2+ib-ndr-8")
    one = predicted("hgx-h100", hosts=["a"] * 8)
    assert judged(one, cluster, None, None).verdict == HEALTHY
    two = predicted("hgx-h100", hosts=["a"] * 4 + ["b"] * 4)
    found = judged(two, cluster, None, None)
    assert found.verdict == CANNOT_TELL and "the log has 8 ranks" in found.reasons[0]


def test_logs_of_different_machines_are_not_compared():
    fast, right = predicted("hgx-h100", slower=0.8), predicted("hgx-a100", slower=1.16)
    both = [
        examined(fast, nvcoll.fabric("hgx-h100"), None, None),
        examined(right, nvcoll.fabric("hgx-a100"), None, None),
    ]
    assert among(both)[1].verdict == HEALTHY


def test_a_machine_of_which_no_prediction_is_validated_is_sick_below_half_only():
    board = nvcoll.fabric("mi355x-8")
    verdicts = [judged(predicted("mi355x-8", slower=by), board, None, None).verdict for by in (1.0, 1.3, 2.2)]
    assert verdicts == [HEALTHY, SUSPICIOUS, SICK]


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ('export NCCL_ALGO="Ring"', "Ring"),
        ("NCCL_ALGO set by environment to allgather:tree;allreduce:ring", "allgather:tree;allreduce:ring"),
        ("export NCCL_ALGO=Ring; NCCL_PROTO=LL ./all_reduce_perf", "Ring"),
        ("unset NCCL_ALGO=Ring", None),
    ],
)
def test_values_of_settings(line, value):
    (log,) = logs_of(line + "\n" + BOARD.read_text())
    assert log.settings.get("NCCL_ALGO") == value


def test_control_characters_are_removed():
    (log,) = logs_of("NCCL_IB_HCA=mlx\x1b]0\x07\u202e1\n" + BOARD.read_text())
    assert log.settings["NCCL_IB_HCA"].isprintable()


def test_a_baseline_that_is_not_healthy_is_refused(tmp_path):
    lines = BOARD.read_text().splitlines()
    (tmp_path / "two.log").write_text("\n".join(line for line in lines for _ in range(2 if " float " in line else 1)))
    done_ = done("check", BOARD, "--baseline", tmp_path / "two.log")
    assert done_.returncode == 2 and "jobs in one table" in done_.stderr


def test_the_settings_and_the_version_of_a_log_that_does_not_tell_them_are_options():
    told = ("check", BOARD, "--json")
    (log,) = json.loads(done(*told, "--env", "NCCL_ALGO=Ring", "--nccl-version", "2.20.5").stdout)["logs"]
    assert (log["settings"]["NCCL_ALGO"], log["nccl_version"]) == ("Ring", "2.20.5")
    (plain,) = json.loads(done(*told).stdout)["logs"]
    assert plain["settings"] == {} and plain["nccl_version"] != "2.20.5"
    assert "no setting of NCCL is called `NCCL_ALGORITHM`" in done(*told, "--env", "NCCL_ALGORITHM=Ring").stderr
