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


# https://github.com/deepseek-ai/DeepEP/issues/493
DEEPEP = """[tuning] SMs 24, NVL chunk 28, RDMA chunk 12: 37.02 GB/s (RDMA), 121.12 GB/s (NVL)
[tuning] Best dispatch (FP8): SMs 24, NVL chunk 28, RDMA chunk 24: 38.19 GB/s (RDMA), 124.92 GB/s (NVL)
[tuning] Best combine: SMs 24, NVL chunk 2, RDMA chunk 20: 44.37 GB/s (RDMA), 145.16 GB/s (NVL)
"""

# https://github.com/vinil-v/DeepEP-Azure-buildsuite: two nodes of 8 H100, which the author found right
DEEPEP_OF_TWO_NODES = """
[tuning] Best dispatch (FP8): SMs 24, NVL chunk 28, RDMA chunk 16: 45.97 GB/s (RDMA), 150.04 GB/s (NVL)
[tuning] Best dispatch (BF16): SMs 24, NVL chunk 20, RDMA chunk 12: 60.33 GB/s (RDMA), 196.91 GB/s (NVL)
[tuning] Best combine: SMs 24, NVL chunk 4, RDMA chunk 24: 61.72 GB/s (RDMA), 201.46 GB/s (NVL)
"""

# https://github.com/deepseek-ai/DeepEP/issues/397
DEEPEP_TIMED = (
    "[1,0]<stdout>:[tuning] Best dispatch (BF16): SMs 24, NVL chunk 40, RDMA chunk 4, transmit: 6881.00 us, "
    "notify: 160.81 us, BW: 30.80 GB/s (RDMA), 61.85 GB/s (NVL)\n"
)

# https://github.com/perplexityai/pplx-kernels/issues/10
DEEPEP_INTRANODE = "Best dispatch (BF16): SMs 24, NVL chunk 16, 160.46 GB.\n"

# https://github.com/deepseek-ai/DeepEP/issues/28
DEEPEP_LOW_LATENCY = """Allocating buffer size: 2116.291072 MB ...
[rank 1] Dispatch + combine bandwidth: 42.24 GB/s, avg_t=521.97 us, min_t=517.44 us, max_t=527.33 us
[rank 6] Dispatch + combine bandwidth: 42.22 GB/s, avg_t=522.24 us, min_t=515.81 us, max_t=528.64 us
[rank 0] Dispatch + combine bandwidth: 42.25 GB/s, avg_t=521.91 us, min_t=515.78 us, max_t=526.18 us
"""

# https://github.com/deepseek-ai/DeepEP/pull/605
DEEPEP_V2 = """Profiling:
   * EP:   2/4 | dispatch: 0 GB/s (SO), 860 GB/s (SU), 293.515 us, 252328160 bytes | copy: 5456 GB/s, 92.491 us
   * EP:   3/4 | dispatch: 0 GB/s (SO), 862 GB/s (SU), 293.365 us, 252933184 bytes | copy: 5472 GB/s, 92.450 us
"""

# https://github.com/ROCm/mori/pull/72
MORI = """**80 blocks**
BF16 dispatch: best/avg RDMA bandwidth 79.75 / 74.29 XGMI bandwidth 261.31 / 243.34 GB/s | best/avg latency 1462.81
"""

# https://github.com/microsoft/superbenchmark/blob/main/tests/data/ib_loopback_all_sizes.log
PERFTEST = """                    RDMA_Write BW Test
Link type       : IB
#bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
#bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
4096       2000             10034.02            9948.41                   2.546793
65536      2000             23330.56            21167.79                  0.338685
8388608    2000             23240.68            23240.68                  0.002905
"""

# https://github.com/openucx/ucx/issues/9430
PERFTEST_GBIT = """                    Send BW Test
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      1000             36.43              36.07  \t\t   0.068798
"""

# index id 16023999422, some columns are left out
PERFTEST_LATENCY = """ Outstand reads  : 16
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]
Conflicting CPU frequency values detected: 1500.000000 != 1663.676000. CPU Frequency is not max.
 2       1000          4.70           13.20        4.83                4.82             0.00
"""

# https://github.com/tinygrad/open-gpu-kernel-modules/issues/44
P2P_TEST = """Device: 0, NVIDIA GeForce RTX 4090, pciBusID: 2, pciDeviceID: 0, pciDomainID:0
Device: 1, NVIDIA GeForce RTX 4090, pciBusID: 17, pciDeviceID: 0, pciDomainID:0
Device=0 CAN Access Peer Device=1
P2P Connectivity Matrix
     D\\D     0     1
     0\t     1     1
     1\t     1     1
Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)
   D\\D     0      1
     0 1008.06   6.34
     1   6.34 926.75
Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)
   D\\D     0      1
     0 1015.27   6.60
     1   6.60 945.63
"""

# https://github.com/NVIDIA/nvbandwidth/issues/50, three of six GPUs
NVBANDWIDTH = """Device 0: NVIDIA RTX A6000 (00000000:01:00)
Device 1: NVIDIA RTX A6000 (00000000:25:00)
Running device_to_device_memcpy_read_ce.
memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)
           0         1         2
 0       N/A     26.31     21.90
 1     26.31       N/A     21.86
 2     22.70     21.87       N/A

SUM device_to_device_memcpy_read_ce 140.95
"""

# https://github.com/ai-dynamo/nixl/pull/115
NIXLBENCH = """Block Size (B)      Batch Size     Avg Lat. (us)  B/W (MiB/Sec)  B/W (GiB/Sec)  B/W (GB/Sec)
-----------------------------------------------------------------
4096                64             3.11355        1254.6         1.22519        1.31554
262144              64             3.10316        80563.1        78.6749        84.4766
"""

# https://github.com/kvcache-ai/Mooncake/issues/166
MOONCAKE = """I0326 11:28:40.323503 222467 rdma_context.cpp:125] RDMA device: mlx5_0, LID: 0, GID: (GID_Index 0)
I0326 11:28:41.316805 222467 bench.cpp:334] Test completed: duration 0.01, batch count 1, throughput 0.18 GB/s
"""

# https://github.com/vllm-project/vllm/pull/29346
VLLM = """============ Serving Benchmark Result ============
Successful requests:                     256
Maximum request concurrency:             4
Total input tokens:                      256
Total generated tokens:                  25600
Mean TTFT (ms):                          35.84
Mean TPOT (ms):                          17.20
"""
