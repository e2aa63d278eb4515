"""Tables as people keep them: other columns, several tables, prefixes, averages, and few digits that show the ranks."""

import pytest
from check_logs import MIB, predicted, table

from nvcoll.check import formats
from nvcoll.check.log import factor

HALF = "time algbw busbw #wrong"


def busbw(log):
    """Returns the busbw of the last row."""
    row = log.rows[-1]
    return row.nbytes / row.time_us / 1e3 * factor(log.collective, log.ranks)


@pytest.mark.parametrize(
    ("names", "row"),
    [
        (f"# size count type redop root {HALF} {HALF} algo proto nchannels",
         "1048576 262144 float sum -1 50.0 20.97 36.70 0 51.0 20.56 35.98 0 RING SIMPLE 64"),
        (f"# size count type redop root {HALF} i_min i_cv% {HALF} i_min i_cv% timestamp",
         "1048576 262144 float sum -1 50.0 20.97 36.70 0 49.0 1.2 51.0 20.56 35.98 0 50.1 1.1 2026-09-26 10:00:00"),
        (f"# size count type redop root {HALF}",
         "1048576 262144 float sum -1 50.0 20.97 36.70 0 51.0 20.56 35.98 0"),
        ("| Size bytes | Count | Type | Reduction | Time | Alg BW | Bus BW | Wrong |",
         "| 1048576 | 262144 | float | sum | 50.0 | 20.97 | 36.70 | 0 |"),
        ("size,count,type,redop,root,time,algbw,busbw,#wrong", "1048576,262144,float,sum,-1,50.0,20.97,36.70,0"),
        ("#NVL  num GPUs  size  algbw  busbw  #wrong  time  algbw  busbw", "NVL8 8 1M 20.97 36.70 0 51.0 20.56 35.98"),
        ("       N    type      op     time  algbw  busbw", "1048576 char sum 0.050 20.97 36.70"),
        ("size time algbw busbw", "1048576 50.0 20.97 36.70"),
    ],
    ids=["algo", "statistics", "half a head", "Markdown", "CSV", "by hand", "NCCL 1", "no type"],
)  # fmt: skip
def test_the_line_of_names_tells_the_columns(names, row):
    (log,) = formats.read("log", f"{names}\n{row}\n")
    assert (log.collective, log.ranks, len(log.rows), len(log.malformed)) == ("all_reduce", 8, 1, 0)
    assert log.rows[0].nbytes == MIB and log.rows[0].time_us == pytest.approx(50.0, rel=1e-3)


def test_busbw_alone_gets_its_times_from_the_ranks():
    (log,) = formats.read("log", "size\ttype\tredop\tbusbw\talgo\n134217728\tfloat\tsum\t229.74\tRING\n")
    assert not log.rows and log.ranks is None and log.may_have(16)
    assert busbw(log.of_ranks(16)) == pytest.approx(229.74)


DEVICES = "\n".join(f"#  Rank {at} Group 0 Pid 1 on n{at // 8} device {at % 8} [0x1] NVIDIA H100" for at in range(16))
SLOW = "536870912 134217728 float sum -1 912877 0.59 1.10 0 910717 0.59 1.11 0"


@pytest.mark.parametrize("head", [DEVICES, "mpirun -np 16 ./x", "NCCL INFO comm 0x1 nRanks 16 Init COMPLETE"])
def test_a_header_wins_over_rows_of_few_digits(head):
    (log,) = formats.read("log", f"{head}\n{SLOW}")
    assert (log.ranks, log.ranks_between) == (16, None)


def test_rows_of_few_digits_give_a_range_of_ranks():
    (log,) = formats.read("log", SLOW.partition(" 910717")[0])
    assert log.ranks == 16 and log.ranks_between == (15, 16)
    assert log.may_have(15) and not log.may_have(17)
    (other,) = formats.read("log", SLOW)
    assert log.meets(other) and not log.meets(formats.read("log", predicted())[0])


def test_rows_of_other_ranks_win_over_a_header():
    (log,) = formats.read("log", f"{DEVICES}\n{predicted()}")
    assert log.ranks == 8


def test_rows_of_a_size_with_other_types_operations_or_roots_are_one_job():
    rows = predicted()
    every = [rows, *(line.replace("float sum", "float prod") for line in rows.split("\n") if " float " in line)]
    (log,) = formats.read("log", "\n".join(every))
    assert log.jobs == 1 and len(log.rows) == 22
    assert {"1 MiB float sum -1", "1 MiB float prod -1"} <= {row.case for row in log.rows}


@pytest.mark.parametrize("ranks", [(16, 32), (16, 16)])
def test_tables_without_heads_end_where_sizes_begin_again(ranks):
    texts = []
    for number in ranks:
        lines = table({MIB << power: 100.0 * 2**power for power in range(8, 11)}, ranks=number).split("\n")
        texts += [f"====== {number // 8}-node ======", *(line for line in lines if " float " in line)]
    logs = formats.read("log", "\n".join(texts))
    assert [(log.ranks, len(log.rows)) for log in logs] == [(number, 3) for number in ranks]
    assert [log.facts["nodes"] for log in logs] == [[str(number // 8)] for number in ranks]


@pytest.mark.parametrize(
    "prefix",
    ["2026-07-02T10:11:12.123Z 01O ", "[2026-07-02 10:11:12,123] [INFO] ", "nccl/0 ", "anything <17> at all: "],
)
def test_rows_are_found_behind_any_prefix(prefix):
    (log,) = formats.read("log", "\n".join(prefix + line for line in predicted().split("\n")))
    assert len(log.rows) == 11 and log.collective == "all_reduce" and not log.malformed


@pytest.mark.parametrize(
    "quoted",
    ['{{"log":"{}\\n","stream":"stdout","time":"2026-07-02T10:11:12.1Z"}}', '    "{}",', '{{"time":1,"msg":"{}"}}'],
    ids=["Docker", "Ansible", "logger"],
)
def test_lines_in_json_are_read(quoted):
    (log,) = formats.read("log", "\n".join(quoted.format(line) for line in predicted().split("\n")))
    assert log.rows == formats.read("log", predicted())[0].rows


COMMAND = "mpirun -np 16 ./all_reduce_perf -b {} -e 16G -f 2 -g 1\n# Avg bus bandwidth    : {}\n"


def test_the_average_of_one_size_is_its_row():
    (log,) = formats.read("log", COMMAND.format("16G", 104.2))
    assert (log.ranks, log.rows[0].nbytes) == (16, 16 << 30) and busbw(log) == pytest.approx(104.2)


def test_the_average_of_a_range_is_no_row():
    (log,) = formats.read("log", COMMAND.format("8", 104.2))
    assert not log.rows and "pass the lines of the table" in log.unlike


def test_groups_that_run_at_once_have_their_own_number_of_ranks():
    devices = "\n".join(
        f"#  Rank {at} Group {at % 8} Pid 1 on n{at // 8} device {at % 8} [0x1] NVIDIA H100" for at in range(16)
    )
    (log,) = formats.read("log", f"NCCL_TESTS_SPLIT_MASK=0x7\n{devices}\n{table({MIB: 100}, ranks=2)}")
    assert log.ranks == 2 and "NCCL_TESTS_SPLIT_MASK=0x7" in log.evidence
