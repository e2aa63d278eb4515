"""Logs for tests of `nvcoll check`: where the public ones are, tables of any times, and what scripts of torch print."""

from pathlib import Path

import nvcoll
from nvcoll.check.log import factor

LOGS = Path(__file__).parents[2] / "data" / "nccl-logs"
MIB = 1 << 20

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


def table(times, collective="all_reduce", ranks=8, head="", columns="redop root"):
    """Returns a table in the format of nccl-tests; `times` maps bytes to microseconds."""
    lines = [
        f"# Collective test starting: {collective}_perf",
        head,
        f"# size count type {columns} " + "time algbw busbw #wrong " * 2,
    ]
    for nbytes, time in times.items():
        algbw = nbytes / time / 1e3
        half = f"{time:.2f} {algbw:.3f} {algbw * factor(collective, ranks):.3f} 0"
        count = nbytes // 4 if collective == "all_reduce" else nbytes // 4 // ranks
        lines.append(f"{nbytes} {count} float {'sum' if 'reduce' in collective else 'none'} -1 {half} {half}")
    return "\n".join([*lines, "# Out of bounds values : 0 OK"])


def predicted(share=1.0, machine="hgx-h100", collective="all_reduce"):
    """Returns a table whose busbw is a share of the predicted."""
    sizes = [MIB << power for power in range(11)]
    found = nvcoll.fabric(machine).predict(collective, sizes)
    return table({one.nbytes: one.time_us / share for one in found}, collective)
