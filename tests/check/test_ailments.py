"""Ailments of `nvcoll check`: each explains its own times, and public logs are judged as their threads found."""

from dataclasses import replace
from functools import cache

import judge_logs
import pytest

import nvcoll
from nvcoll._nvcoll import InvalidArgument
from nvcoll.check.ailments import AILMENTS, named_alone
from nvcoll.check.log import Log
from nvcoll.check.machine import of_ranks
from nvcoll.check.row import Row
from nvcoll.check.verdict import CANNOT_TELL, HEALTHY, SICK, SUSPICIOUS, among, judged

MIB = 1 << 20
pytestmark = pytest.mark.timeout(600)  # all public logs are judged once
SIZES = [(64 * MIB) << power for power in range(6)]


def log(machine, share=1.0, collective="all_reduce", settings=None, **fields):
    """Returns a log whose times are those that are predicted for a machine, over a share."""
    fabric = nvcoll.fabric(machine) if isinstance(machine, str) else machine
    found = fabric.predict(collective, SIZES, settings=settings)
    rows = [Row(nth, one.nbytes, one.time_us / share, None) for nth, one in enumerate(found)]
    return Log("log", collective, fabric.world_size, rows, **fields)


def keys(verdict):
    return [one.ailment.key for one in verdict.suspects]


@cache
def public():
    """Returns the public logs and numbers with the worst verdict on each."""
    return [(thread, judge_logs.worst_of(thread)) for thread in judge_logs.threads()]


@pytest.mark.parametrize(
    ("machine", "ailing", "settings", "key"),
    [
        ("hgx-h100", "hgx-h100", {"NCCL_NVLS_ENABLE": 0}, "no-nvls"),
        ("hgx-h100x2+ib-ndr-8", "hgx-h100x2+ib-ndr-8", {"NCCL_NVLS_ENABLE": 0}, "no-nvls"),
        ("hgx-h100x2+ib-ndr-8", "hgx-h100x2+ib-ndr-4", {}, "half-network"),
        ("hgx-h100x2+ib-ndr-8", "hgx-h100x2+ib-ndr-2", {}, "quarter-network"),
        ("hgx-h100x2+ib-ndr-8", "hgx-h100x2+ethernet-10-1", {}, "tcp"),
        ("hgx-a100", "hgx-a100", {"NCCL_P2P_DISABLE": 1}, "host-staged"),
        ("pcie4-8-p2p", "pcie4-8-p2p", {"NCCL_P2P_DISABLE": 1}, "host-staged"),
    ],
)
def test_an_ailment_is_the_first_or_second_suspect_of_its_own_times(machine, ailing, settings, key):
    found = judged(log(ailing, settings=settings), nvcoll.fabric(machine), None, None)
    assert found.verdict != HEALTHY and key in keys(found)[:2]
    assert 0 < sum(one.odds for one in found.suspects) <= 1 and found.suspects[0].ailment.confirm


@pytest.mark.parametrize(
    ("machine", "family", "part", "of_all", "key"),
    [
        ("pcie4-8-p2p", "pcie", 2, True, "gpu-pcie"),
        ("pcie4-8-p2p", "pcie", 4, True, "gpu-pcie"),
        ("hgx-a100", "nvlink", 2, False, "slow-gpu"),
        ("hgx-h100", "nvlink", 2, False, "slow-gpu"),
        ("v100-4-mesh", "nvlink", 0, True, "no-nvlink"),
    ],
)
def test_a_node_that_lost_lanes_is_found(machine, family, part, of_all, key):
    healthy = nvcoll.fabric(machine)
    found = judged(log(healthy.damaged(family, part, of_all=of_all)), healthy, None, None)
    assert found.verdict != HEALTHY and key in keys(found)[:2]


@pytest.mark.parametrize("rate", [2, 4])
def test_a_lower_rate_that_nccl_does_not_see_keeps_the_algorithm_of_the_healthy_machine(rate):
    healthy = nvcoll.fabric("hgx-h100x2+roce-400-8")
    slower = healthy.damaged("rate", rate)
    found = slower.predict("all_reduce", SIZES, algorithm="NVLSTree", protocol="Simple")
    one = Log("log", "all_reduce", 16, [Row(nth, each.nbytes, each.time_us, None) for nth, each in enumerate(found)])
    suspected = judged(one, healthy, None, None).suspects
    assert suspected[0].ailment.key == {2: "half-network", 4: "quarter-network"}[rate]


def test_the_nodes_of_a_machine_follow_from_the_ranks_of_a_log():
    cluster = nvcoll.fabric("hgx-h100x2+ib-ndr-8")
    assert of_ranks(cluster, 32).name == "hgx-h100x4+ib-ndr-8" and of_ranks(cluster, 8).name == "hgx-h100"
    with pytest.raises(InvalidArgument, match="no whole number of nodes"):
        of_ranks(cluster, 12)
    with pytest.raises(InvalidArgument, match="are not known"):
        of_ranks(nvcoll.fabric("hgx-h100"), 16)
    assert judged(log("hgx-h100x4+ib-ndr-8"), cluster, None, None).machine == "hgx-h100x4+ib-ndr-8"


def test_one_ailment_must_explain_several_collectives():
    """all_reduce without NVLS and with less network take about the same time; all_gather tells them apart."""
    healthy = nvcoll.fabric("hgx-h100x2+ib-ndr-8")
    low = judged(log(healthy, settings={"NCCL_NVLS_ENABLE": 0}), healthy, None, None)
    right = judged(log(healthy, collective="all_gather"), healthy, None, None)
    together, still_right = among([low, right])
    alone = {one.ailment.key: one.odds for one in low.suspects}
    assert keys(together)[0] == "no-nvls" and together.suspects[0].odds > alone["no-nvls"]
    assert "half-network" not in keys(together) and still_right.verdict == HEALTHY


def test_one_ailment_must_explain_one_node_and_several():
    healthy = nvcoll.fabric("hgx-h100x2+ib-ndr-8")
    low = judged(log("hgx-h100x2+ib-ndr-4"), healthy, None, None)
    node = judged(log("hgx-h100"), healthy, None, None)
    (together, _) = among([low, node])
    odds = [{each.ailment.key: each.odds for each in one.suspects} for one in (low, together)]
    assert keys(together)[0] == "half-network" and odds[1].get("no-nvls", 0) < odds[0]["no-nvls"]
    rates = [one.suspects[0].busbw for one in (low, together, among([node, low])[1])]
    assert rates[0] == rates[1] == rates[2]  # of its own log, not of the node's


def test_the_quarter_of_the_network_that_a_public_log_lost_is_found_with_and_without_rings():
    known = {thread.name: verdict for thread, verdict in public()}
    for name in ("nccl-tests-290-2node", "nccl-tests-290-2node-ring"):
        assert keys(known[name])[0] == "quarter-network"


def test_a_fact_or_setting_raises_the_odds_of_its_ailment():
    healthy, slow = nvcoll.fabric("hgx-h100x2+ib-ndr-8"), log("hgx-h100x2+ib-ndr-4", share=1.1)

    def odds(one, key):
        return sum(each.odds for each in judged(one, healthy, None, None).suspects if each.ailment.key == key)

    assert odds(replace(slow, facts={"cards": ["4"]}), "half-network") > odds(slow, "half-network")
    assert odds(replace(slow, facts={"gdr": ["Disabled"]}), "no-nvls") <= odds(slow, "no-nvls")


def test_a_setting_that_predictions_take_does_not_hide_the_ailment_that_it_names():
    healthy, off = nvcoll.fabric("hgx-a100x2+ib-hdr-8"), {"NCCL_NET_GDR_LEVEL": "0"}
    slow = log(healthy.damaged("gpu_direct"))
    assert "no-gpudirect" in keys(judged(replace(slow, settings=off), healthy, None, None))


def test_an_ailment_without_a_rate_needs_a_line_that_names_it():
    healthy, slow = nvcoll.fabric("hgx-h100x2+ib-ndr-8"), log("hgx-h100x2+ib-ndr-8", share=0.02)
    assert not {"mtu", "congested", "wrong-numa"} & {*keys(judged(slow, healthy, None, None))}
    told = replace(slow, facts={"mtu": ["3"]})
    assert "mtu" in keys(judged(told, healthy, None, None))


def test_busbw_that_falls_names_congestion_with_and_without_a_machine():
    fine = log("hgx-h100x2+ib-ndr-8")
    rows = [*fine.rows[:3], *(replace(row, out_of_place_us=30 * row.out_of_place_us) for row in fine.rows[3:])]
    falling = replace(fine, rows=rows)
    assert keys(judged(falling, nvcoll.fabric("hgx-h100x2+ib-ndr-8"), None, None))[0] == "congested"
    assert keys(judged(falling, None, None, "no machine")) == ["congested"]


@pytest.mark.parametrize(
    ("facts", "key", "machine"),
    [
        ({"path": ["NET/IB/GDRDMA"]}, "no-gpudirect", "hgx-h100x2+ib-ndr-8"),
        ({"gdr": ["Enabled"]}, "no-gpudirect", "hgx-h100x2+ib-ndr-8"),
        ({"nvls_channels": ["16"]}, "no-nvls", "hgx-h100"),
        ({"path": ["P2P/CUMEM"]}, "host-staged", "hgx-a100"),
        ({"network": ["IB"]}, "tcp", "hgx-h100x2+ib-ndr-8"),
    ],
)
def test_a_fact_excludes_its_ailment_unless_another_fact_names_it(facts, key, machine):
    ailment = next(one for one in AILMENTS if one.key == key)
    slow = log(ailment.damaged(nvcoll.fabric(machine)), settings=ailment.settings)
    assert key in keys(judged(slow, nvcoll.fabric(machine), None, None))
    assert key not in keys(judged(replace(slow, facts=facts), nvcoll.fabric(machine), None, None))
    both = {"path": ["NET/IB/GDRDMA", "NET/IB"]} if key == "no-gpudirect" else None
    assert both is None or key in keys(judged(replace(slow, facts=both), nvcoll.fabric(machine), None, None))


def test_all_cards_in_a_log_exclude_cards_that_are_missing():
    healthy, slow = nvcoll.fabric("hgx-h100x2+ib-ndr-8"), log("hgx-h100x2+ib-ndr-4")
    (first, *_) = judged(replace(slow, facts={"cards": ["8"]}), healthy, None, None).suspects
    assert first.ailment.key == "half-network" and "cards that are down" not in first.ailment.name


def test_an_ailment_that_explains_the_rates_comes_before_congestion():
    healthy = nvcoll.fabric("hgx-h100x2+ib-ndr-8")
    slow = log(healthy.damaged("ethernet-100", gbit=25))
    row = Row(9, 32 * MIB, slow.rows[0].time_us / 4, None)  # half of the size in a quarter of the time
    assert keys(judged(replace(slow, rows=[row, *slow.rows]), healthy, None, None))[:2] == ["tcp", "congested"]


@pytest.mark.parametrize("line", ["infiniband=missing", "network=Socket"])
def test_a_line_that_names_an_ailment_makes_a_low_log_suspicious(line):
    machine, (name, value) = "h100-pcie-8-bridgex2+roce-400-4", line.split("=")
    low = log(machine, share=0.85)
    assert judged(low, nvcoll.fabric(machine), None, None).verdict == HEALTHY
    found = judged(replace(low, facts={name: [value]}), nvcoll.fabric(machine), None, None)
    assert found.verdict == SUSPICIOUS and keys(found)[0] == "tcp" and f"`{line}`" in found.reasons[0]
    assert keys(found).count("tcp") == 1  # not once more for each rate of TCP


def test_every_ailment_says_what_its_command_prints_and_threads_are_addresses():
    for one in AILMENTS:
        assert one.confirm and one.prints and one.thread.startswith("https://" if one.thread else "")


def test_a_log_without_a_table_names_what_its_lines_tell():
    one = Log("log", None, None, [], facts={"network": ["Socket"]})
    found = judged(one, None, None, None)
    assert found.verdict == CANNOT_TELL and keys(found)[0] == "tcp" and found.suspects[0].odds < 1
    assert named_alone([]) == []


def test_several_jobs_in_one_table_are_a_build_without_mpi():
    found = judged(replace(log("hgx-h100"), jobs=2), nvcoll.fabric("hgx-h100"), None, None)
    assert found.verdict == SICK and keys(found) == ["no-mpi"]


def test_a_time_that_the_settings_of_a_log_explain_is_suspicious():
    healthy, off = nvcoll.fabric("hgx-h100"), {"NCCL_NVLS_ENABLE": "0"}
    slow = replace(log(healthy, settings=off), settings=off)
    assert judged(slow, healthy, None, None).verdict == SUSPICIOUS
    assert judged(replace(slow, settings={}), healthy, None, None).verdict == SICK
    assert judged(slow, healthy, 0.9, None).verdict == SICK


def test_every_class_of_the_tables_is_an_ailment_and_every_machine_exists():
    known = {one.key for one in AILMENTS} | {"no-mpi"}
    threads = list(judge_logs.threads())
    for thread in threads:
        assert thread.classes <= known, thread.name
        assert thread.source == "systems" or thread.link
        assert not thread.on or judge_logs.named_on(thread.on).world_size > 1
    files = {path.stem for path in judge_logs.LOGS.glob("*.log")}
    assert files == {thread.name for thread in threads if thread.source == "logs"}


def test_public_logs_get_the_verdicts_of_their_threads():
    wrong = {
        thread.name
        for thread, verdict in public()
        if verdict.verdict == {"healthy": SICK, "sick": HEALTHY}.get(thread.verdict)
    }
    assert wrong == {"169-2"}  # a number without its size


def test_the_aims_for_public_logs_are_met():
    (_, *cells, _) = judge_logs.figures(public())[-1]
    (healthy, of_healthy), (sick, of_sick), (found, known) = ([int(n) for n in cell.split(" of ")] for cell in cells)
    assert healthy <= 0.05 * of_healthy and sick <= 0.2 * of_sick and found >= 0.7 * known


def test_the_pages_about_public_logs_are_current():
    command = "python tools/check/judge_logs.py --write writes it"
    assert (judge_logs.LOGS / "verdicts.csv").read_text(encoding="utf-8") == judge_logs.verdicts(public()), command
    shown = judge_logs.figures_in_markdown(public())
    for page in judge_logs.PAGES:
        _, _, rest = page.read_text(encoding="utf-8").partition(judge_logs.BEGIN)
        assert rest.partition(judge_logs.END)[0] == shown, command
