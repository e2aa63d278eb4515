"""`nvcoll check`: what it reads in logs of nccl-tests, its verdicts on public logs, its output and exit status."""

import json
import random
import re

import judge_logs
import pytest
from check_logs import LOGS, MIB, predicted, table
from command_line import cli, done

import nvcoll
from nvcoll.check import formats, nccl_tests
from nvcoll.check.verdict import CANNOT_TELL, HEALTHY, SICK, SUSPICIOUS, among, judged

INDEX = judge_logs.rows()


def verdict(text, machine="hgx-h100", require=None):
    (log,) = nccl_tests.read("log", text)
    return judged(log, nvcoll.fabric(machine), require, None)


@pytest.mark.parametrize("row", INDEX, ids=[row["file"] for row in INDEX])
def test_collective_and_ranks_of_public_logs_are_read(row):
    logs = formats.read(row["file"], (LOGS / row["file"]).read_text(encoding="utf-8"))
    if not logs[0].rows:
        assert judge_logs.worst_of(judge_logs.thread_of(row)).verdict == CANNOT_TELL
        return
    assert [str(log.ranks) for log in logs if log.ranks] == row["ranks"].split(",") * (
        len(logs) // len(row["ranks"].split(","))
    )
    assert {log.collective for log in logs} <= {row["collective"], None}


@pytest.mark.parametrize(
    "prefix",
    ["", " 0: ", "[1,0]<stdout>:", "[0] ", "> ", "    ", "(head, rank=0, pid=38) [1,0]<stdout>:", "\x1b[32m",
     "2025-11-24T22:01:13.1234Z ", "2025-11-24T22:01:13Z stdout F ", "pod/worker-0 "],
)  # fmt: skip
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_prefixes_of_launchers_are_removed(prefix, end):
    (plain,), (dirty,) = (
        nccl_tests.read("log", text)
        for text in (predicted(), "\ufeff" + end.join(prefix + line for line in predicted().split("\n")))
    )
    assert dirty == plain


def test_lines_of_nccl_inside_a_row_are_skipped():
    whole = predicted()
    torn = whole.replace(" float sum -1 ", " float sum -1\nnode:12:34 [0] NCCL INFO Channel 00/0 : 1[0] via P2P\n", 1)
    assert [row.time_us for row in nccl_tests.read("log", torn)[0].rows] == [
        row.time_us for row in nccl_tests.read("log", whole)[0].rows
    ]


def test_a_row_that_is_torn_is_left_out_and_named():
    lines = predicted().split("\n")
    lines[4] = lines[4][:40]
    (log,) = nccl_tests.read("log", "\n".join(lines))
    assert log.malformed == [(5, "the row is torn: the next one begins before its end")]
    assert len(log.rows) == 10


@pytest.mark.parametrize("word", ["-5.0", "1e999"])
def test_a_row_with_an_impossible_number_is_left_out_and_named(word):
    lines = predicted().split("\n")
    lines[4] = " ".join([*lines[4].split()[:5], word, *lines[4].split()[6:]])
    (log,) = nccl_tests.read("log", "\n".join(lines))
    assert log.malformed == [(5, "a number is negative, too large or too small")]


def test_no_damage_to_a_log_is_an_error_of_the_program():
    damage, texts = random.Random(7), [path.read_text(encoding="utf-8") for path in sorted(LOGS.glob("*.log"))]
    words = ("0 ", "-1 ", "\n", "nan ", "float ", "99999999999999999999 ", "Rank  0 ", "1e999 ", "algbw ")
    for text in damage.choices(texts, k=200):
        for _ in range(8):
            at = damage.randrange(len(text))
            text = text[:at] + damage.choice(words) + text[at + damage.choice((0, 1, 40)) :]
        for log in nccl_tests.read("log", text):
            judged(log, nvcoll.fabric("hgx-h100") if log.ranks == 8 else None, None, "no machine")


def test_a_log_may_have_several_tables():
    logs = formats.read("log", predicted() + "\n" + predicted(collective="all_gather"))
    assert [(log.name, log.collective) for log in logs] == [("log#1", "all_reduce"), ("log#2", "all_gather")]


def test_settings_and_version_are_read():
    info = "n:1:2 [0] NCCL INFO NCCL_NVLS_ENABLE set by environment to 0.\nNCCL version 2.26.2+cuda12.8"
    head = f"mpirun -x NCCL_ALGO=Ring ./x\n{info}"
    (log,) = nccl_tests.read("log", table({MIB: 100}, head=head))
    assert log.settings == {"NCCL_ALGO": "Ring", "NCCL_NVLS_ENABLE": "0"} and log.version == "2.26.2"


@pytest.mark.parametrize(("share", "said"), [(1.0, HEALTHY), (1.2, HEALTHY), (0.9, SICK), (0.4, SICK)])
def test_the_interval_decides_on_one_node(share, said):
    assert verdict(predicted(share)).verdict == said


def test_a_share_below_the_required_is_sick_and_above_healthy():
    assert verdict(predicted(0.94), require=0.9).verdict == HEALTHY
    assert verdict(predicted(0.89), require=0.9).verdict == SICK


def test_busbw_that_falls_is_told_without_a_prediction():
    times = {MIB << power: 10.0 * 1.7**power for power in range(9)} | {MIB << 9: 40000.0}
    (log,) = nccl_tests.read("log", table(times))
    found = judged(log, None, None, "no machine")
    assert found.verdict == SICK and "busbw falls" in found.reasons[0]


def test_a_log_far_below_another_one_is_suspicious():
    both = [verdict(predicted(share, machine="rtx4090-8-p2p"), "rtx4090-8-p2p") for share in (1.25, 0.85)]
    assert {one.verdict for one in both} == {HEALTHY}
    assert [one.verdict for one in among(both)] == [HEALTHY, SUSPICIOUS]


def of_machine(machine, sizes, share, collective="all_reduce", head=""):
    """Returns a table whose busbw is a share of the predicted."""
    fabric = nvcoll.fabric(machine)
    found = fabric.predict(collective, sizes)
    return table({one.nbytes: one.time_us / share for one in found}, collective, fabric.world_size, head)


@pytest.mark.parametrize(("share", "said"), [(1.0, HEALTHY), (0.75, HEALTHY), (0.45, SUSPICIOUS), (2.1, CANNOT_TELL)])
def test_a_wide_interval_makes_a_log_suspicious_only_below_half(share, said):
    machine = "gh200-4x2+slingshot-4"
    found = verdict(of_machine(machine, [128 * MIB], share), machine)
    assert found.verdict == said and not found.rows[0].is_slow
    assert ("as far as a prediction within" in found.reasons[0]) == (share == 0.75)


def test_a_log_outside_a_wide_interval_is_sick_only_below_half():
    machine = "rtxpro6000-server-8-p2p"
    assert verdict(of_machine(machine, [64 * MIB], 0.6), machine).verdict == SUSPICIOUS
    assert verdict(of_machine(machine, [64 * MIB], 0.4), machine).verdict == SICK


@pytest.mark.parametrize(("slow", "said"), [(5, SUSPICIOUS), (1, HEALTHY)])
def test_sizes_that_take_longer_than_larger_ones_are_told_and_many_are_suspicious(slow, said):
    times = {nth << 17: 300.0 + nth if 8 - slow < nth <= 8 else 150.0 + nth for nth in range(4, 14)}
    machine = "pcie5-2-p2px2+slingshot-2"
    found = verdict(table(times, ranks=4), machine)
    assert found.verdict == said
    assert any("1 MiB takes 308 us, 1.125 MiB takes 159 us" in reason for reason in found.reasons)
    assert [one.ailment.key for one in found.suspects] == ["protocol"] * (slow > 1)


@pytest.mark.parametrize(
    ("setting", "machine", "is_judged"),
    [
        ("NCCL_TESTS_SPLIT_MASK=0x7", "hgx-h100[0]x2+ib-ndr-4", False),
        ("NCCL_TESTS_SPLIT=MOD", "hgx-h100[0]x2+ib-ndr-4", False),
        ("NCCL_TESTS_SPLIT_MASK=0x0", "hgx-h100[0]x2+ib-ndr-4", True),
        ("NCCL_TESTS_SPLIT_MASK=0x7", "hgx-h100", True),
    ],
)
def test_groups_that_ran_at_once_and_shared_cards_have_no_prediction(setting, machine, is_judged):
    found = verdict(of_machine(machine, [256 * MIB], 0.5, head=setting), machine)
    assert found.verdict == (SICK if is_judged else CANNOT_TELL)
    assert is_judged or "shared cards" in found.reasons[-1]


def test_peer_access_that_is_off_on_two_nodes_is_told_whatever_the_share():
    machine, off = "rtxpro6000-server-8-cx8x2+roce-400-8", "-x NCCL_P2P_DISABLE=1 -x NCCL_SHM_DISABLE=1"
    for share, said in ((0.81, SUSPICIOUS), (1.0, HEALTHY)):
        found = verdict(of_machine(machine, [1024 * MIB], share, head=off), machine)
        assert found.verdict == said and any("NCCL_P2P_DISABLE=1 is set" in reason for reason in found.reasons)


@pytest.mark.parametrize(
    "line",
    ["WARNING: /dev/infiniband is missing. RDMA will not work.",
     "ls: cannot access '/dev/infiniband': No such file or directory"],
)  # fmt: skip
def test_diagnostics_before_the_table_name_tcp(line):
    machine = "h100-pcie-8-bridgex2+roce-400-4"
    found = verdict(of_machine(machine, [1024 * MIB], 0.81, head=line), machine)
    assert found.verdict == SUSPICIOUS and found.suspects[0].ailment.key == "tcp"


def test_a_setting_that_costs_time_is_named():
    slow = nvcoll.fabric("hgx-h100").predict("all_reduce", [MIB << 10], settings={"NCCL_NVLS_ENABLE": "0"})
    found = verdict(table({slow[0].nbytes: slow[0].time_us}, head="-x NCCL_NVLS_ENABLE=0"))
    assert found.verdict == SUSPICIOUS and any("NCCL_NVLS_ENABLE=0 is set" in reason for reason in found.reasons)
    assert verdict(table({slow[0].nbytes: 2 * slow[0].time_us}, head="-x NCCL_NVLS_ENABLE=0")).verdict == SICK


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no row"),
        (table({1024: 10.0}), "no size from 1 MiB"),
        (table({MIB: 10.0}, head="# nThread 1 nGpus 8 minBytes 8 graph: 1"), "CUDA graphs"),
        (table({MIB: 100.0}, ranks=4), "4 ranks, hgx-h100 has 8 GPUs"),
    ],
)
def test_what_cannot_be_told_has_a_reason(text, reason):
    found = verdict(text)
    assert found.verdict == CANNOT_TELL and reason in found.reasons[-1]


def test_the_exit_status_is_that_of_an_acceptance_test(tmp_path):
    logs = {}
    for name, text in (("good", predicted()), ("bad", predicted(0.4)), ("empty", "")):
        logs[name] = tmp_path / name
        logs[name].write_text(text, encoding="utf-8")
    assert "verdict     healthy" in cli("check", logs["good"], "--on", "hgx-h100").stdout
    assert "verdict     sick" in cli("check", logs["good"], logs["bad"], "--on", "hgx-h100", status=1).stdout
    assert "cannot tell" in cli("check", logs["empty"], "--on", "hgx-h100", status=2).stdout
    assert done("check", tmp_path / "missing").returncode == 2


def test_json_has_the_rows(tmp_path):
    path = tmp_path / "log"
    path.write_text(predicted(), encoding="utf-8")
    (log,) = json.loads(cli("check", path, "--on", "hgx-h100", "--json").stdout)["logs"]
    assert (log["verdict"], log["collective"], log["world_size"]) == ("healthy", "all_reduce", 8)
    assert all(row["low_us"] <= row["predicted_us"] <= row["high_us"] for row in log["rows"])


def test_a_log_of_fewer_ranks_than_the_cluster_says_with_what_it_is_compared():
    ring, cluster = LOGS / "nccl-tests-252-ring-2node.log", "hgx-h100x2+ib-ndr-8"
    said = done("check", ring, "--on", cluster).stdout
    other = "hgx-h100[0-3]x2+ib-ndr-8"
    assert f" 8 ranks: compared with one node of {cluster}; if 4 ranks ran on each of 2 nodes, pass '{other}'\n" in said
    assert "compared with" not in done("check", ring, "--on", other).stdout
    assert "compared with" not in done("check", ring, "--on", "hgx-h100").stdout


def test_a_log_of_half_of_the_ranks_on_all_hosts_is_not_compared_with_one_of_them(tmp_path):
    text = (LOGS / "nccl-tests-290-1node.log").read_text()
    (path := tmp_path / "two.log").write_text(re.sub(r"(Rank +[4-7] .*)node005", r"\1node006", text))
    said = done("check", path, "--on", "hgx-h100x2+ib-ndr-8").stdout
    assert "compared with" not in said
    assert "8 ranks: the log has 2 hosts; if 4 ranks ran on each of 2 nodes, pass" in said
