"""The machines that a log may be of: every usual one is found by its own log, whether healthy or not."""

from dataclasses import replace

import pytest
from check_logs import MIB, table
from hypothesis import example, given
from hypothesis import strategies as st

from nvcoll import fabric
from nvcoll.check import candidates, formats, nccl_tests, odds
from nvcoll.check.verdict import CANNOT_TELL, HEALTHY, SICK, SUSPICIOUS, among

OF_TWO_MAKERS = [("NVIDIA H100 80GB HBM3", "hgx-h100"), ("AMD Instinct MI300X", "mi300x-8")]
SIZES = [64 * MIB, 256 * MIB, 1024 * MIB]
USUAL = [
    (board, network)
    for row in candidates._usual()
    for board in row["boards"]
    for network in row["networks"]
    if board != "gb200-nvl72" and board != "gb300-nvl72"
]


def devices(gpu, nodes, each):
    """Returns the lines of devices of some nodes."""
    return "\n".join(
        f"#  Rank {at} Group 0 Pid 1 on host{at // each} device {at % each} [0x1] {gpu}" for at in range(nodes * each)
    )


def log_of(gpu, nodes=1, each=8, times=None, lines=""):
    """Returns a log of all_reduce with a name of its GPUs, or without devices."""
    head = f"{lines}\n{devices(gpu, nodes, each)}" if gpu else lines
    (log,) = nccl_tests.read("log", table(times or {MIB: 100}, ranks=nodes * each, head=head))
    return log


def times_on(machine, slower):
    """Returns the times of sizes on a machine, so much slower than predicted."""
    return {one.nbytes: one.time_us * slower for one in machine.predict("all_reduce", SIZES)}


def found(log):
    """Returns the name of the likeliest machine."""
    return odds.found([log])[0].of(log).name


@pytest.mark.parametrize(("board", "network"), USUAL)
def test_a_usual_board_takes_its_usual_networks(board, network):
    assert fabric(f"{board}x2+{network}").nodes == 2


@given(st.sampled_from(USUAL), st.integers(1, 3), st.sampled_from([1.0, 1.04]))
@example(("hgx-a100", "ethernet-100-1"), 2, 1.0)  # TCP is a fault on most such boards
def test_healthy_logs_of_usual_machines_are_not_called_sick(usual, nodes, slower):
    board, network = usual
    machine = fabric(f"{board}x{nodes}+{network}") if nodes > 1 else fabric(board)
    each = machine.world_size // nodes
    if machine.world_size == 1:
        return
    log = log_of(machine.gpu_model.names[0], nodes, each, times_on(machine, slower))
    (one,) = among([odds.judged(log, odds.found([log]), None)])
    assert one.verdict != SICK
    if nodes == 1 and len(list(candidates.fitting(log))) == 1:
        assert one.verdict == HEALTHY and one.machine == board


@pytest.mark.parametrize("slower", [4, 30])
@pytest.mark.parametrize("board", ["hgx-h100", "hgx-a100", "hgx-b200", "mi300x-8"])
def test_a_board_far_below_its_rate_is_not_healthy(board, slower):
    machine = fabric(board)
    log = log_of(machine.gpu_model.names[0], times=times_on(machine, slower))
    (one,) = among([odds.judged(log, odds.found([log]), None)])
    assert one.verdict == SICK and one.machine == board


def test_the_number_of_efa_cards_tells_the_machine():
    info = "NCCL INFO NET/OFI Selected Provider is efa (found 32 nics)\nNCCL INFO Using network AWS Libfabric"
    assert found(log_of("NVIDIA H100 80GB HBM3", 2, lines=info)) == "hgx-h100x2+efa-100-32"


def test_the_medium_that_a_log_names_is_that_of_its_network():
    line = "NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]"
    every = odds.found([log_of("NVIDIA H100 80GB HBM3", 2, lines=line)])
    assert every and all(one.candidate.network.startswith("roce-") for one in every)


def test_boards_without_a_name_are_told_apart_by_their_rates():
    for board in ("hgx-h100", "hgx-b200", "rtx4090-8-staged"):
        assert found(log_of("", each=8, times=times_on(fabric(board), 1.0))).startswith(board)


def test_where_machines_disagree_each_is_named_with_its_verdict():
    log = log_of("NVIDIA H100 80GB HBM3", 2, times=times_on(fabric("hgx-h100x2+ib-hdr-8"), 1.0))
    (one,) = among([odds.judged(log, odds.found([log]), None)])
    assert len(one.machines) > 1 and one.verdict == CANNOT_TELL
    assert {of.verdict for of in one.machines} > {HEALTHY}
    for of in one.machines:  # a machine that is named is one that can be passed
        assert fabric(of.machine).world_size == 16


def test_hosts_of_a_rack_are_one_machine():
    assert found(log_of("NVIDIA GB200", 18, 4)).startswith("gb200-nvl72")
    log = log_of("NVIDIA GB200", 4, 4)
    machine = odds.found([log])[0].of(log)
    assert (machine.world_size, machine.nodes) == (16, 1)


def test_hosts_whose_lines_are_missing_are_counted_by_their_boards():
    lines = devices("NVIDIA H100 80GB HBM3", 2, 8).splitlines()
    text = table({MIB: 100}, ranks=64, head="\n".join([lines[0], lines[-1]]))
    (log,) = nccl_tests.read("log", text)
    assert odds.found([log])[0].of(log).nodes == 8


def test_cards_that_are_sold_in_no_box_are_in_one_of_their_lanes():
    log = log_of("AMD Instinct MI100", each=2, times=times_on(fabric("2xmi100"), 1.0))
    assert found(log) == "pcie4-2-p2p with gpu mi100"


def test_nothing_is_looked_for_where_a_log_tells_nothing():
    (log,) = nccl_tests.read("log", "no table")
    one = odds.judged(log, odds.found([log]), None)
    assert (one.verdict, one.reasons) == (CANNOT_TELL, ["the log has no row of a table"])


def test_one_of_the_two_cards_of_a_spark_is_named():
    times = {one.nbytes: one.time_us for one in fabric("gb10-1x2+roce-100-1").predict("all_reduce", SIZES)}
    log = log_of("NVIDIA GB10", 2, 1, times)
    (one,) = among([odds.judged(log, odds.found([log]), None)])
    assert one.verdict == SICK and any("(1 of 2 cards)" in each.ailment.name for each in one.suspects)


def test_logs_that_name_different_gpus_are_of_different_machines():
    logs = [log_of(name, times=times_on(fabric(on), 1.0)) for name, on in OF_TWO_MAKERS]
    found = [of[0].of(log).name for log, of in zip(logs, odds.of_each(logs), strict=True)]
    assert found == [on for _, on in OF_TWO_MAKERS]


def test_different_gpus_in_one_log_are_as_the_slowest():
    gpus = ["NVIDIA H100 80GB HBM3"] * 8 + ["NVIDIA A100-SXM4-80GB"] * 8
    log = replace(log_of(gpus[0], 2, times=times_on(fabric("hgx-a100x2+ib-hdr-8"), 1.0)), gpus=gpus)
    one = odds.judged(log, odds.found([log]), None)
    assert one.machine.startswith("hgx-a100x2+") and "different GPUs" in one.reasons[-1]


def test_words_behind_the_name_of_a_gpu_are_of_the_same_gpu():
    log = log_of("NVIDIA B200 (node 0)", 2, times=times_on(fabric("hgx-b200x2+ib-ndr-8"), 1.0))
    log = replace(log, gpus=["NVIDIA B200 (node 0)"] * 8 + ["NVIDIA B200 (node 1)"] * 8)
    one = odds.judged(log, odds.found([log]), None)
    assert one.verdict == HEALTHY and not any("different" in reason for reason in one.reasons)


@pytest.mark.parametrize(
    "line",
    [
        "mpirun --host 10.0.0.1:8,10.0.0.2:8 -np 16 all_reduce_perf -g 1",
        "mpirun -np 16 -H a,a,a,a,a,a,a,a,b,b,b,b,b,b,b,b all_reduce_perf -g 1",
        "# Using devices (across 2 nodes)",
    ],
)
def test_the_hosts_of_a_command_are_nodes(line):
    log = log_of("", 2, lines=line)
    every = [one.of(log) for one in odds.found([log])]
    assert every and all(one.nodes == 2 or "nvl72" in one.name for one in every)


def test_what_nvidia_smi_prints_names_the_machine():
    smi = "\n".join(f"GPU {at}: NVIDIA A100-SXM4-80GB (UUID: GPU-{at})" for at in range(8))
    assert found(log_of("", each=8, lines=smi)) == "hgx-a100"


def test_a_rate_of_one_machine_that_another_has_when_sick_is_not_called_healthy():
    half = times_on(fabric("hgx-h100x2+ib-ndr-4"), 1.0)
    log = log_of("", 2, times=half)
    (one,) = among([odds.judged(log, odds.found([log]), None)])
    assert one.verdict == CANNOT_TELL and len(one.machines) > 1


@pytest.mark.parametrize(
    ("link", "gbit", "verdict", "cards"),
    [("Ethernet", 97.6, HEALTHY, ["roce-100-1"]), ("IB", 196.5, CANNOT_TELL, ["ib-hdr-1", "ib-ndr-1"])],
)
def test_a_card_without_a_machine_is_one_whose_line_rate_it_has(link, gbit, verdict, cards):
    text = f"Link type : {link}\n#bytes #iterations BW peak[Gb/sec] BW average[Gb/sec]\n1048576 5000 {gbit} {gbit}\n"
    (log,) = formats.read("log", text)
    (one,) = among([odds.judged(log, odds.found([log]), None)])
    assert one.verdict == verdict and [of.machine.split("+")[1] for of in one.machines][: len(cards)] == cards


@pytest.mark.parametrize(("lines", "verdict"), [("", CANNOT_TELL), ("NCCL INFO Using network Socket", SUSPICIOUS)])
def test_tcp_is_right_only_without_cards(lines, verdict):
    times = times_on(fabric("pcie4-2-p2p[0]x2+ethernet-10-1 with gpu a10g"), 1.0)
    log = log_of("NVIDIA A10G", 2, 1, times, lines)
    (one,) = among([odds.judged(log, odds.found([log]), None)])
    assert one.verdict == verdict and (not lines or one.suspects[0].ailment.key == "tcp")


def test_a_setting_that_would_change_nothing_is_of_another_machine():
    times = times_on(fabric("rtx4090-4-staged"), 3.0)
    log = log_of("", each=4, times=times, lines="NCCL_P2P_DISABLE=1 ./all_reduce_perf -g 4")
    (one,) = among([odds.judged(log, odds.found([log]), None)])
    assert one.suspects[0].ailment.key == "host-staged"


def test_a_variant_of_a_model_is_on_the_board_of_its_model():
    log = log_of("NVIDIA A100-SXM4-40GB", times=times_on(fabric("hgx-a100"), 1.0))
    assert found(log) == "hgx-a100 with gpu a100-sxm-40gb"
    every = [one.of(log).name for log in [log_of("Tesla V100-SXM2-16GB", 2, 1)] for one in odds.found([log])]
    assert {"dgx1-v100[0]x2+ib-edr-4 with gpu v100-sxm-16gb", "dgx2[0]x2+ib-edr-4 with gpu v100-sxm-16gb"} <= {*every}


def test_a_release_of_nccl_that_is_not_known_is_why_there_is_no_machine():
    log = log_of("Tesla V100-SXM2-32GB", 2, lines="NCCL version 2.4.8+cuda10.0")
    one = odds.judged(log, odds.found([log]), None)
    assert one.verdict == CANNOT_TELL and "2.4.8" in one.reasons[-1]


def test_the_links_of_a_matrix_tell_the_generation():
    row = "GPU0     X      NV18    NV18    NV18    SYS     PIX  0-23     0"
    boards = [one.board.gpu_model.nvlinks for one in candidates.fitting(log_of("", 2, lines=row))]
    assert boards and set(boards) == {18}


def test_a_setting_of_the_log_leaves_its_rate_to_the_machine():
    slow = fabric("hgx-a100").predict("all_reduce", SIZES, settings={"NCCL_P2P_DISABLE": 1})
    times = {one.nbytes: one.time_us for one in slow}
    log = log_of("NVIDIA A100-SXM4-80GB", times=times, lines="NCCL_P2P_DISABLE=1 ./all_reduce_perf -g 1")
    likely = odds._likelihood(log, fabric("hgx-a100"))
    assert likely > 5 * odds._likelihood(replace(log, settings={}), fabric("hgx-a100"))
