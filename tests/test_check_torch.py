"""What benchmark scripts of torch print, as `nvcoll check` reads it. The logs are public, or written by the sources."""

import pytest
from command_line import cli

from nvcoll.check import formats, machine

GIB = 1 << 30

# stas00/ml-engineering in a tutorial, index id 43466784132; rows are left out
BENCH = """Environment:
- software: torch=2.7.0, cuda=12.8, nccl=(2, 26, 2)
- hardware: _CudaDeviceProperties(name='NVIDIA H100 80GB HBM3', major=9, minor=0, total_memory=81089MB)

The average bandwidth of all_reduce over 4 ranks (5 warmups / 20 trials):

| payload |    busbw   |    algbw   |
| ------: | ---------: | ---------: |
|   32KiB |   1.18GBps |   0.79GBps |
|    1MiB |  34.50GBps |  23.00GBps |
|   64MiB | 293.25GBps | 195.50GBps |
|    1GiB | 355.72GBps | 237.15GBps |
|    4GiB | 363.27GBps | 242.18GBps |
"""

# https://github.com/stas00/ml-engineering/blob/master/network/README.md; rows are left out
HEADLESS = """$ python -u -m torch.distributed.run --nproc_per_node=8 all_reduce_bench.py

| payload |    busbw   |    algbw   |
| ------: | ---------: | ---------: |
|   32KiB |   1.44GBps |   0.82GBps |
|   64MiB | 346.51GBps | 198.01GBps |
|   16GiB | 482.26GBps | 275.58GBps |
"""

# index id 20193372493
ONE_PAYLOAD = """[gke-a3-mega-asia-a3-mega-asia-node-po-c2a38dbc-fbc1:0]:5
[gke-a3-mega-asia-a3-mega-asia-node-po-c2a38dbc-fbc1:0]:The average bandwidth of all_reduce with a 4.0GB payload (5 trials, 16 ranks):
[gke-a3-mega-asia-a3-mega-asia-node-po-c2a38dbc-fbc1:0]: algbw: 176.590 GBps (1412.7 Gbps)
[gke-a3-mega-asia-a3-mega-asia-node-po-c2a38dbc-fbc1:0]: busbw: 331.106 GBps (2648.8 Gbps)
"""  # noqa: E501

# index id 24685810556
DEEPSPEED = """> x3211c0s37b0n0: ---- Performance of all_reduce on 8 devices ----------------------------------------
> x3211c0s37b0n0: Size (Bytes)         Description               Duration             Throughput (Gbps)    BusBW (Gbps)
> x3211c0s37b0n0: ---------------------------------------------------------------------------------------
> x3211c0s37b0n0: 31.67 GB             8501054668x4              3176.620 ms          171.272              149.863
> x3211c0s37b1n0: [2022-12-02 21:51:21,719] [INFO] [launch.py:350:main] Process 57911 exits successfully.
"""

# by print_header and get_metric_strings of EleutherAI/cookbook, benchmarks/communication/utils.py; the row of
# all_reduce from index id 67371786108
DEEPSPEED_RAW = """
---- Performance of all_reduce on 4 devices ---------------------------------------------------------
Size (Bytes)         Description               Duration (us)        Throughput (GBps)    BusBW (GBps)
----------------------------------------------------------------------------------------------------
4194304              1048576x4                 172.352              48.671               36.504

---- Performance of all_gather on 4 devices ---------------------------------------------------------
Size (Bytes)         Description               Duration (us)        Throughput (GBps)    BusBW (GBps)
----------------------------------------------------------------------------------------------------
4194304              1048576x4                 200.000              83.886               62.915
"""

# index id 53487698706; rows are left out
IBM = """ size(MB)   tavg(usec)    tmin(usec)    tmax(usec)  avgbw(GB/sec)  maxbw(GB/sec)  minbw(GB/sec)
    0.10      740.3          605.3         6288.5          0.26           0.32           0.03
   10.00      993.4          954.6         1023.2         19.50          20.30          18.94
  100.00     5712.5         5412.0         6827.7         33.92          35.80          28.38
 1000.00    50209.2        49438.4        51264.6         38.59          39.19          37.79
 8000.00   398998.2       396793.6       401590.1         38.85          39.06          38.60
"""

# by reportBenchTimeColl of facebookresearch/param, train/comms/pt/comms.py; the times are made up
PARAM = """[Rank   0] allSizes: [1048576] element_size: 4 local_rank: 0, num_pg 1, groupSize 16

\tCOMMS-RES                          total-size (B)  nElementsPerRank      Time(us):p50         p75         p95         Min         Max    AlgBW(GB/s) BusBW(GB/s) TotalTime(us):p50
\tCOMMS-RES-all_gather_base-float32           1048576             16384              50.0        51.0        52.0        49.0        53.0         20.972      19.661                 0.0
\tCOMMS-RES-all_gather_base-float32         134217728           2097152            1000.0      1001.0      1002.0       990.0      1003.0        134.218     125.829                 0.0
"""  # noqa: E501


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


def test_the_header_of_all_reduce_bench_tells_version_and_machine():
    (log,) = formats.read("log", BENCH)
    assert log.version == "2.26.2" and machine.of_header(log).name == "hgx-h100[0,1,2,3]"


def test_more_ranks_than_a_board_has_are_several_nodes():
    (log,) = formats.read("log", BENCH.replace("over 4 ranks", "over 16 ranks"))
    with pytest.raises(ValueError, match="2 nodes"):
        machine.of_header(log)


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
    assert log.told == ["NCCL_ALGO=Ring", "network=Socket"]


def test_tables_of_nccl_tests_and_of_torch_may_stand_in_one_file():
    rows = "# size count type redop root time algbw busbw #wrong\n1048576 262144 float sum -1 50.0 20.97 36.70 0\n"
    assert [len(log.rows) for log in formats.read("log", rows + BENCH)] == [1, 5]


def test_a_log_of_torch_gets_a_verdict(tmp_path):
    (tmp_path / "bench.log").write_text(HEADLESS, encoding="utf-8")
    assert "verdict     healthy" in cli("check", tmp_path / "bench.log", "--on", "hgx-h200").stdout
