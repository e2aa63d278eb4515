"""Logs of other tools than nccl-tests, beside the same machine. The logs are public, some with changed figures."""

import json

import check_logs
import pytest
from command_line import done

from nvcoll import fabric
from nvcoll.check import deepep, formats
from nvcoll.check.row import Row
from nvcoll.check.verdict import CANNOT_TELL, HEALTHY, SICK, SUSPICIOUS, among, examined, judged

TWO, H800, GIB = "hgx-h100x2+ib-ndr-8", "hgx-h800x2+ib-ndr-8", 1 << 30
H800_INSIDE = f"{check_logs.DEEPEP_INTRANODE}Best combine: SMs 24, NVL chunk 4: 158.00 GB/s (NVL)\n"


def verdicts(text, on):
    """Returns the verdict on each log of a text."""
    return [judged(log, fabric(on), None, None) for log in formats.read("log", text)]


@pytest.mark.parametrize(
    ("text", "on", "what", "gbs", "predicted"),
    [
        (check_logs.DEEPEP_TIMED, "hgx-h100x4+ib-ndr-8", "DeepEP dispatch BF16", 30.80, 58.67),
        (check_logs.DEEPEP_INTRANODE, "hgx-h800", "DeepEP dispatch BF16", 160.46, 155.43),
        (check_logs.DEEPEP_V2, "gb200-4", "DeepEP dispatch", 862.0, 816.0),
        (check_logs.MORI, "mi300x-8x2+roce-400-8", "DeepEP dispatch BF16", 79.75, 88.0),
        (check_logs.PERFTEST_GBIT, "hgx-h100x2+roce-400-8", "send bandwidth", 4.51, 48.0),
        (check_logs.P2P_TEST, "rtx4090-2-p2p", "copy between GPUs (P2P)", 6.60, 24.26),
        (check_logs.NVBANDWIDTH, "pcie4-4-p2p", "copy between GPUs (CE)", 21.90, 24.26),
        (check_logs.NIXLBENCH, "hgx-h100", "nixlbench transfer", 84.48, 68.8),
    ],
    ids=["DeepEP", "inside a node", "DeepEP V2", "MORI", "perftest", "p2p", "nvbandwidth", "NIXL"],
)  # fmt: skip
def test_a_row_of_each_tool_is_beside_what_the_machine_gives(text, on, what, gbs, predicted):
    (one,) = verdicts(text, on)
    row = one.rows[0]
    assert one.log.collective == what and row.busbw == pytest.approx(gbs, rel=1e-3)
    assert row.prediction.busbw == pytest.approx(predicted, rel=1e-3) and one.trust


def test_of_a_search_the_best_lines_count_and_each_kernel_has_a_verdict():
    dispatch, combine = verdicts(check_logs.DEEPEP, TWO)
    assert (dispatch.log.collective, combine.log.collective) == ("DeepEP dispatch FP8", "DeepEP combine BF16")
    assert (dispatch.log.name, combine.log.name) == ("log#1", "log#2") and dispatch.verdict == HEALTHY


def test_tokens_of_fp8_take_more_than_the_time_of_their_bytes():
    assert [one.verdict for one in verdicts(check_logs.DEEPEP_OF_TWO_NODES, TWO)] == [HEALTHY] * 3


@pytest.mark.parametrize(("card", "nvlink", "nodes"), [(45.97, 150.04, 2), (57.6, 115.65, 4), (41.6, 60.0, None)])
def test_the_quotient_of_the_rates_over_nvlink_and_cards_shows_the_nodes(card, nvlink, nodes):
    assert deepep.nodes(card, nvlink) == nodes


def test_a_log_of_deepep_has_the_ranks_that_its_rates_show():
    (two, *_), (four,) = (
        formats.read("log", text) for text in (check_logs.DEEPEP_OF_TWO_NODES, check_logs.DEEPEP_TIMED)
    )
    assert (two.ranks, len(set(two.hosts)), two.ranks_between) == (16, 2, None)
    assert four.may_have(32) and four.may_have(64) and not four.may_have(16)


@pytest.mark.parametrize(
    ("text", "board"),
    [(H800_INSIDE, "hgx-h800"), (check_logs.DEEPEP_OF_TWO_NODES, "hgx-h100")],
    ids=["inside a node", "between nodes"],
)
def test_a_log_of_deepep_without_gpus_is_of_a_board_that_runs_it(tmp_path, text, board):
    (tmp_path / "ep.log").write_text(text)
    found = json.loads(done("check", tmp_path / "ep.log", "--json").stdout)["logs"]
    assert {one["machine"].partition("x2+")[0] for one in found} == {board}


@pytest.mark.parametrize("number", ["-38.19", "nan", "1e-9", "3e99", "0"])
def test_a_line_of_deepep_whose_rate_is_no_rate_is_left_out_and_named(number):
    dispatch, _ = formats.read("log", check_logs.DEEPEP.replace("38.19", number).replace("124.92", number))
    assert not dispatch.rows and [line for line, _ in dispatch.malformed] == [2]


def test_dispatch_inside_a_node_does_not_see_the_network():
    tool, row, machine = deepep.throughput(0.0, 150.0, 24, "V1"), Row(1, GIB, None, None), fabric(H800)
    assert tool.time_us(machine, row) == tool.time_us(machine.damaged("rate", 8), row)


def test_tokens_for_other_nodes_are_bound_by_cards_and_on_two_nodes_by_nvlink():
    tool, row, machine = deepep.throughput(43.0, 140.0, 24, "V1"), Row(1, GIB, None, None), fabric(H800)
    assert tool.time_us(machine.damaged("nvlink", 2), row) > 1.9 * tool.time_us(machine, row)
    tool, machine = deepep.throughput(51.0, 102.0, 24, "V1"), machine.with_nodes(8)
    assert tool.time_us(machine.damaged("rate", 2), row) == pytest.approx(2 * tool.time_us(machine, row))


def test_low_latency_of_an_older_release_is_inside_the_interval_and_named():
    (one,) = verdicts(check_logs.DEEPEP_LOW_LATENCY, "hgx-h800x2+ib-ndr-8")
    assert one.verdict == SUSPICIOUS and one.rows[0].row.time_us == pytest.approx(521.97)
    assert any("before June 2025" in reason for reason in one.reasons)


def test_low_latency_on_efa_is_refused():
    (one,) = verdicts(check_logs.DEEPEP_LOW_LATENCY, "hgx-h200x2+efa-200-16")
    assert one.verdict == CANNOT_TELL and "EFA" in one.reasons[0]


def test_sizes_of_perftest_that_do_not_fill_a_card_are_no_rows():
    (one,) = verdicts(check_logs.PERFTEST, "hgx-a100x2+ib-hdr-8")
    assert [row.row.nbytes for row in one.rows] == [65536, 8388608] and one.verdict == HEALTHY
    assert one.rows[1].busbw == pytest.approx(23240.68 * 2**20 / 1e9, rel=1e-4)


def test_a_bidirectional_test_has_twice_the_rate():
    (one,) = verdicts(check_logs.PERFTEST.replace("BW Test", "Bidirectional BW Test"), "hgx-a100x2+ib-hdr-8")
    assert one.rows[0].prediction.busbw == pytest.approx(2 * 24.25)


def test_a_latency_is_judged_by_the_interval_alone():
    (one,) = verdicts(check_logs.PERFTEST_LATENCY, "hgx-a100x2+roce-100-8")
    assert one.log.collective == "read latency" and one.rows[0].row.time_us == 4.83 and one.verdict == HEALTHY
    (slow,) = verdicts(check_logs.PERFTEST_LATENCY.replace("4.83 ", "48.3 "), "hgx-a100x2+roce-100-8")
    assert slow.verdict == SICK


def test_an_average_far_below_the_peak_is_no_measurement():
    (one,) = verdicts(check_logs.PERFTEST_GBIT.replace("36.43", "236.43"), TWO)
    assert one.verdict == CANNOT_TELL and "the average is 15 % of the peak" in one.reasons[0]


@pytest.mark.parametrize("number", ["-36.07", "nan", "0.00", "1e99"])
def test_a_row_of_perftest_whose_rate_is_no_rate_is_left_out_and_named(number):
    (one,) = formats.read("log", check_logs.PERFTEST_GBIT.replace("36.07", number))
    assert not one.rows and len(one.malformed) == 1


@pytest.mark.parametrize("name", ["rxe_server", "siw0"])
def test_rdma_in_software_is_not_judged(name):
    (one,) = verdicts(f" Dual-port : OFF   Device         : {name}\n{check_logs.PERFTEST_GBIT}", TWO)
    assert one.verdict == CANNOT_TELL and f"{name} is RDMA in software" in one.reasons[0]
    text = f"host:1:2 [0] NCCL INFO NET/IB : Using [0]{name}:1/RoCE\n{check_logs.table({GIB: 9000.0}, ranks=16)}"
    (one,) = verdicts(text, TWO)
    assert one.verdict == CANNOT_TELL and f"{name} is RDMA in software" in one.reasons[-1]


def test_a_test_of_cards_on_one_node_has_no_prediction():
    (one,) = verdicts(check_logs.PERFTEST, "hgx-a100")
    assert one.verdict == CANNOT_TELL and "no network" in one.reasons[0]


def test_a_matrix_names_the_slowest_partner_of_each_gpu():
    (one,) = verdicts(check_logs.NVBANDWIDTH, "pcie4-4-p2p")
    assert [row.row.case for row in one.rows] == ["0 to 2", "1 to 2", "2 to 1"] and one.verdict == HEALTHY


@pytest.mark.parametrize(
    "text",
    ["Running device_local_copy.\nmemcpy local GPU(column) bandwidth (GB/s)\n", "SUM device_local_copy 8930.99\n"],
)
def test_a_test_of_nvbandwidth_that_is_not_read_is_named(text):
    (one,) = verdicts(text, "hgx-h100")
    assert one.verdict == CANNOT_TELL and "`device_local_copy` has no matrix" in one.reasons[0]


def test_the_gpus_of_a_matrix_name_the_machine(tmp_path):
    log = tmp_path / "p2p.log"
    log.write_text(check_logs.P2P_TEST.replace("NVIDIA GeForce RTX 4090", "NVIDIA H100 80GB HBM3"))
    (one,) = json.loads(done("check", log, "--json").stdout)["logs"]
    assert one["machine"] == "hgx-h100[0-1]" and one["verdict"] == SICK
    assert [row["case"] for row in one["rows"]] == ["0 to 1", "1 to 0"]


def test_a_short_run_of_mooncake_is_no_measurement():
    (one,) = verdicts(check_logs.MOONCAKE, TWO)
    assert one.verdict == CANNOT_TELL and "0.01 s" in one.reasons[0]
    (long,) = verdicts(check_logs.MOONCAKE.replace("duration 0.01", "duration 10.0"), TWO)
    assert long.verdict == SICK and long.rows[0].prediction.busbw == pytest.approx(48.5)


def test_metrics_of_superbench_are_rows_of_its_tools():
    metrics = {
        "node": "sb-validation-01",
        "nccl-bw:nvlink/allreduce_1073741824_time:0": 8140.0,
        "gemm-flops/FP64:7": 9030.2,
        "ib-loopback/IB_write_8388608_Avg_0:0": 23941.57,
        "ib-loopback/ib_write_bw_8388608:1": 12.1,
        "mem-bw/H2D_Mem_BW:0": 25.6,
        "gpu-copy-bw:perf/gpu0_to_gpu1_read_by_dma_bw": 275.9,
    }
    found = {log.collective: log for log in formats.read("log", json.dumps(metrics))}
    assert found["all_reduce"].ranks == 8 and found["all_reduce"].rows[0].time_us == 8140.0
    cards = {row.case: row.nbytes / row.time_us / 1e3 for row in found["write bandwidth"].rows}
    assert cards == {"card 0": pytest.approx(23.94157), "card 1": pytest.approx(12.1)}
    assert found["copy between host and GPU"].rows[0].case == "0 to 0"
    assert found["copy between GPUs"].rows[0].case == "0 to 1"


def test_a_result_of_a_server_needs_its_command():
    first, second = verdicts(check_logs.VLLM, "hgx-h100")
    assert (first.log.collective, second.log.collective) == ("TTFT of vllm", "TPOT of vllm")
    assert first.verdict == CANNOT_TELL and "the model and the GPUs of the server" in first.reasons[0]


def test_a_result_of_a_server_is_beside_the_plan_of_the_server():
    text = f"vllm serve meta-llama/Meta-Llama-3-8B --tensor-parallel-size 1\n{check_logs.VLLM}"
    first, second = verdicts(text, "hgx-h100")
    assert first.verdict == HEALTHY and second.verdict == SICK and second.rows[0].prediction.time_us > 1000


def test_a_card_at_half_rate_explains_perftest_and_all_reduce_once(tmp_path):
    half = fabric(TWO).damaged("rate", 2)
    rows = "".join(
        f"{one.nbytes} {one.nbytes // 4} float sum -1 {one.time_us:.1f} {one.algbw:.2f} {one.busbw:.2f} 0\n"
        for one in half.predict("all_reduce", ["256M", "1G"])
    )
    (tmp_path / "ar.log").write_text(f"# size count type redop root time algbw busbw #wrong\n{rows}")
    (tmp_path / "bw.log").write_text(check_logs.PERFTEST_GBIT.replace("36.07", "194.0"))
    printed = done("check", tmp_path / "ar.log", tmp_path / "bw.log", "--on", TWO).stdout
    assert printed.count("half of the network: bonded cards") == 1 and "cards that are down" not in printed
    assert "as for" in printed


def test_the_machine_that_explains_perftest_is_asked_about_all_logs():
    logs = formats.read("bw", check_logs.PERFTEST_GBIT.replace("36.07", "194.0"))
    (one,) = among([examined(log, fabric(TWO), None, None) for log in logs])
    assert one.suspects[0].ailment.key == "half-network" and one.suspects[0].busbw == pytest.approx(24.25)


def test_json_of_other_tools_fits_the_schema(tmp_path):
    import json_schemas

    from nvcoll.cli.formats import schema

    log = tmp_path / "bw.log"
    log.write_text(check_logs.PERFTEST)
    json_schemas.validate(
        schema("check"), json.loads(done("check", log, "--on", "hgx-a100x2+ib-hdr-8", "--json").stdout)
    )


@pytest.mark.parametrize(
    ("text", "word", "damaged"),
    [
        (check_logs.DEEPEP_LOW_LATENCY, "42.2", "4.2.2"),
        (check_logs.DEEPEP_V2, "0 GB/s (SO), 86", "0 GB/s (SO), 0"),
        (check_logs.PERFTEST_GBIT, "36.07", "3.6.07"),
        (check_logs.NVBANDWIDTH, "0         1         2", "0.5         1         2"),
        (check_logs.NIXLBENCH, "84.4766", ""),
        (check_logs.VLLM, "17.20", "1.7.20"),
    ],
)
def test_a_row_with_a_damaged_number_is_left_out(text, word, damaged):
    assert all(one.verdict for one in verdicts(text.replace(word, damaged), TWO))


def test_a_row_of_nixlbench_whose_rate_is_no_rate_is_left_out_and_named():
    (one,) = formats.read("log", check_logs.NIXLBENCH.replace("84.4766", "-84.4766"))
    assert one.malformed and len(one.rows) < len(formats.read("log", check_logs.NIXLBENCH)[0].rows)
