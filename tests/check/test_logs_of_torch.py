"""What benchmark scripts of torch print, as `nvcoll check` reads it. The logs are public, or written by the sources."""

import pytest
from check_logs import BENCH, DEEPSPEED, DEEPSPEED_RAW, HEADLESS, IBM, ONE_PAYLOAD, PARAM
from command_line import cli

from nvcoll.check import formats, odds

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "collective", "ranks", "nbytes", "time_us"),
    [
        (BENCH, "all_reduce", 4, 4 * GIB, 4 * GIB / 242.18e3),
        (HEADLESS, "all_reduce", 8, 16 * GIB, 16 * GIB / 275.58e3),
        (ONE_PAYLOAD, "all_reduce", 16, 4 * 10**9, 4e6 / 176.590),
        (DEEPSPEED, "all_reduce", 8, 4 * 8501054668, 3176620.0),
        (DEEPSPEED_RAW.split("\n\n")[0], "all_reduce", 4, 4 << 20, 172.352),
        (IBM, "all_reduce", 32, 8 * 10**9, 398998.2),
        (PARAM, "all_gather", 16, 128 << 20, 1000.0),
    ],
    ids=["ml-engineering", "no head", "one payload", "deepspeed", "deepspeed --raw", "IBM", "PARAM"],
)
def test_the_largest_row_of_each_script_is_read(text, collective, ranks, nbytes, time_us):
    (log,) = formats.read("log", text)
    assert (log.collective, log.ranks, log.launch) == (collective, ranks, "framework") and not log.malformed
    assert log.rows[-1].nbytes == nbytes and log.rows[-1].time_us == pytest.approx(time_us)


def test_the_size_of_all_gather_in_deepspeed_is_the_input_of_a_rank():
    first, second = formats.read("log", DEEPSPEED_RAW)
    assert (first.name, second.name, second.collective) == ("log#1", "log#2", "all_gather")
    (row,) = second.rows
    assert row.nbytes == 16 << 20 and row.nbytes / row.time_us / 1e3 * 3 / 4 == pytest.approx(62.915, rel=1e-4)


def machine_of(log):
    return odds.found([log])[0].of(log)


def test_the_header_of_all_reduce_bench_tells_version_and_machine():
    (log,) = formats.read("log", BENCH)
    assert log.version == "2.26.2" and machine_of(log).name == "hgx-h100[0-3]"


def test_more_ranks_than_a_board_has_are_several_nodes():
    (log,) = formats.read("log", BENCH.replace("over 4 ranks", "over 16 ranks"))
    assert machine_of(log).nodes == 2 and machine_of(log).node == "hgx-h100"


def test_a_script_names_the_collective_of_ibm():
    text = IBM.replace("38.85  ", "19.43  ")
    (log,) = formats.read("log", f"mpirun -np 32 helper.sh python reduce-scatter-loop.py\n{text}")
    assert (log.collective, log.ranks) == ("reduce_scatter", 32)
    (log,) = formats.read("log", text)
    assert log.collective is None


def test_rows_of_a_script_that_are_cut_are_left_out_and_named():
    (log,) = formats.read("log", IBM[: IBM.rindex("401590.1")])
    assert log.malformed == [(6, "the row cannot be read and is left out")] and len(log.rows) == 4


def test_facts_and_settings_around_a_table_of_torch_are_read():
    info = "n:1:2 [0] NCCL INFO NCCL_ALGO set by environment to Ring.\nn:1:2 [0] NCCL INFO Using network Socket\n"
    (log,) = formats.read("log", info + BENCH)
    assert log.evidence == ["NCCL_ALGO=Ring", "network=Socket"]


def test_tables_of_nccl_tests_and_of_torch_may_stand_in_one_file():
    rows = "# size count type redop root time algbw busbw #wrong\n1048576 262144 float sum -1 50.0 20.97 36.70 0\n"
    assert [len(log.rows) for log in formats.read("log", rows + BENCH)] == [1, 5]


def test_a_log_of_torch_gets_a_verdict(tmp_path):
    (tmp_path / "bench.log").write_text(HEADLESS, encoding="utf-8")
    assert "verdict     healthy" in cli("check", tmp_path / "bench.log", "--on", "hgx-h200").stdout
