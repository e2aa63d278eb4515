"""What `nvcoll check` reads beside the tables of nccl-tests: facts, other formats, and damaged input."""

import pytest
from check_logs import MIB, table

from nvcoll import fabric
from nvcoll.check import formats, nccl_tests
from nvcoll.check.verdict import judged

GIB = 1 << 30


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("[0] NCCL INFO Using network AWS Libfabric", ["network=AWS Libfabric"]),
        ("[0] NCCL INFO Using network IBext_v8", ["network=IBext_v8"]),
        (
            "n1:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB/SHARP [1]mlx5_bond_1:1/RoCE [RO]; OOB eno1:10.0.0.1<0>",
            ["cards=2", "card=mlx5_0", "card=mlx5_bond_1", "medium=IB", "medium=RoCE"],
        ),
        ("NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>", ["cards=1", "card=eth0"]),
        ("NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)", ["provider=efa", "cards=4"]),
        ("NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'", ["gdr=Disabled", "card=mlx5_0"]),
        ("NCCL INFO NVLS multicast support is not available on dev 3", ["nvls=not available"]),
        (
            "NCCL INFO 24 coll channels, 0 collnet channels, 16 nvls channels, 32 p2p channels, 2 per peer",
            ["channels=24", "nvls_channels=16"],
        ),
        ("NCCL INFO comm 0x1 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0", ["nodes=2"]),
        ("NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0/GDRDMA/Shared", ["path=NET/IB/GDRDMA/Shared"]),
        ("Channel 00/0 : 1[0] -> 0[0] [send] via NET/AWS Libfabric/1(0)/GDRDMA", ["path=NET/AWS Libfabric/GDRDMA"]),
        ("NCCL INFO Channel 01 : 0[1000] -> 1[2000] via SHM/direct/direct", ["path=SHM/direct/direct"]),
        ("NCCL INFO Channel 02/0 : 0[0] -> 1[1] via P2P/CUMEM/read comm 0x55 nRanks 08", ["path=P2P/CUMEM/read"]),
        ("NCCL INFO Connected all rings, use ring PXN 0 GDR 1", ["gdr_ring=1"]),
        ("NCCL INFO NET/OFI Selected provider is cxi, fabric is cxi (found 4 nics)", ["provider=cxi", "cards=4"]),
        ("NCCL INFO NET/OFI Running on p5en.48xlarge platform", ["instance=p5en.48xlarge"]),
        ("NCCL INFO === System : maxBw 48.0 totalBw 240.0 ===", ["max_rate=48.0"]),
        ("NCCL INFO + PCI[24.0] - NIC/0 + NET[50.0] - NET/0 (mlx5_3/1/50.0)", ["net_rate=50.0", "card=mlx5_3"]),
        ("rccl-tests: Version develop:33cc4df", ["library=RCCL"]),
        ("HIP version  : 7.0.51831-a3e329ad8", ["library=RCCL"]),
        ("NCCL version 2.18.3+hip5.7", ["library=RCCL"]),
        ("NCCL version 2.26.2+cuda12.8", ["library=NCCL"]),
        ("mpirun --map-by ppr:8:node ./x", ["per_node=8"]),
        ("mpirun -np 16 -N 8 ./x", ["per_node=8"]),
        ("srun -N2 --ntasks-per-node=4 ./x", ["nodes=2", "per_node=4"]),
        ("#SBATCH --nodes=4", ["nodes=4"]),
        ("====== 2-node ======", ["nodes=2"]),
    ],
)  # fmt: skip
def test_facts_of_lines_of_nccl_are_told(line, told):
    (log,) = nccl_tests.read("log", table({MIB: 100}, head=f"{line}\n{line}"))
    assert log.evidence == told


def test_different_values_of_a_fact_stand_side_by_side():
    lines = "\n".join(
        f"NCCL INFO NET/IB : GPU Direct RDMA {word} for HCA 0 'mlx5_0'" for word in ("Enabled", "Disabled")
    )
    (log,) = nccl_tests.read("log", table({MIB: 100}, head=lines))
    assert log.facts["gdr"] == ["Enabled", "Disabled"]


def test_the_command_of_a_run_belongs_to_its_table():
    runs = [
        ("NCCL_ALGO=Ring ./build/all_reduce_perf -b 1M", "all_reduce"),
        ("./build/all_gather_perf -b 1M", "all_gather"),
    ]
    tables = [table({MIB: 100}, name).replace(f"# Collective test starting: {name}_perf", line) for line, name in runs]
    first, second = formats.read("log", "export NCCL_IB_TC=106\n" + "\n".join(tables))
    assert (first.collective, second.collective) == ("all_reduce", "all_gather")
    assert first.settings == {"NCCL_IB_TC": "106", "NCCL_ALGO": "Ring"} and second.settings == {"NCCL_IB_TC": "106"}


def test_a_run_that_failed_before_another_is_not_a_second_job():
    command, header = "$ ./build/all_reduce_perf -b 1M -g 8", "# nThread 1 nGpus 8 minBytes 8 graph: 0"
    devices = "\n".join(f"#  Rank {at} Group 0 Pid 1 on n device {at} [0x1] NVIDIA H100 80GB HBM3" for at in range(8))
    failed = f"{command}\n{header}\n{devices}\nn: Test CUDA failure common.cu:1304 'out of memory'\n"
    whole = table({MIB: 100}, head=f"{header}\n{devices}").partition("\n")[2]
    (log,) = formats.read("log", f"{failed}{command}\n{whole}")
    assert log.jobs == 1 and len(log.devices) == 8 and len(log.rows) == 1


def test_a_row_of_an_unknown_type_is_left_out_and_named():
    (log,) = formats.read("log", table({MIB: 100, 2 * MIB: 200}).replace("float", "fp2", 1))
    assert len(log.rows) == 1 and log.malformed == [(4, "the row is cut short, or its type is unknown; it is left out")]


DESTROYED = "\n".join(
    f"host-{rank // 8}:{rank}:{rank} [{rank % 8}] NCCL INFO comm 0x7f rank {rank} nranks 16 cudaDev {rank % 8} busId 1 "
    "- Destroy COMPLETE"
    for rank in range(16)
)


@pytest.mark.parametrize(
    "text", [f"{table({MIB: 100}, ranks=16)}\n{DESTROYED}", table({MIB: 100}, ranks=16, head=DESTROYED)]
)
def test_lines_of_nccl_that_name_a_rank_have_its_host(text):
    (log,) = nccl_tests.read("log", text)
    assert (log.ranks, len(log.hosts), {*log.hosts}) == (16, 16, {"host-0", "host-1"})
    assert list(log.devices) == [*range(8)] * 2


def test_prose_around_a_table_is_no_fact_of_the_launch():
    prose = "We compare with our older 4-node cluster of 4 nodes; `NCCL_ALGO=Ring` was set, in `all_reduce_perf`."
    (log,) = nccl_tests.read("log", table({MIB: 100}, head=prose))
    assert not log.facts and log.settings == {"NCCL_ALGO": "Ring"}


@pytest.mark.parametrize(
    ("head", "note"),
    [
        ("srun -N 4 --ntasks-per-node=8 ./all_reduce_perf", "4 nodes with 8 tasks each: 32 ranks; taken are 16"),
        ("mpirun -np 64 ./all_reduce_perf", "the command or NCCL: 64 ranks; taken are 16"),
        ("#  Rank 63 Group  0 Pid 1 on h device  7 [0x18] H100", "the lines of devices: 64 ranks; taken are 16"),
        ("# nThread 1 nGpus 6 minBytes 1 maxBytes 2 step: 2(factor)", "the header has 6 GPUs of a process"),
    ],
)
def test_what_contradicts_the_rows_is_named_and_not_taken(head, note):
    (log,) = nccl_tests.read("log", table({GIB: 10000}, ranks=16, head=head))
    assert log.ranks == 16 and not log.facts.get("nodes") and any(note in one for one in log.notes)
    assert any(note in reason for reason in judged(log, fabric("hgx-h100x2+ib-ndr-8"), None, None).reasons)


@pytest.mark.parametrize("number", ["1e300", "1e16", "-5", "inf"])
def test_a_number_that_nobody_measures_is_not_believed(number):
    (log,) = nccl_tests.read("log", table({MIB: 100, GIB: 10000}).replace("10000.00", number))
    assert [row.nbytes for row in log.rows] == [MIB] and "a number is" in log.malformed[0][1]


@pytest.mark.parametrize(("time", "busbw"), [("N/A", "0.00"), ("0.00", "0.00")])
def test_a_row_without_time_and_rate_is_named_and_does_not_hang(time, busbw):
    text = table({GIB: 10000})
    row = [line for line in text.splitlines() if line.startswith(str(GIB))]
    words = row[0].split()
    words[5:9] = words[9:13] = [time, "0.00", busbw, "0"]
    (log,) = nccl_tests.read("log", "# nThread 1 nGpus 1 \n" + text.replace(row[0], " ".join(words)))
    assert not log.rows and log.malformed[0][1] == "the row has no time and no rate"
    assert "hangs" not in str(judged(log, fabric("hgx-h100"), None, None).reasons)


def test_a_row_with_a_negative_size_is_named():
    (log,) = nccl_tests.read("log", table({MIB: 100, GIB: 10000}).replace(f"{GIB} ", f"-{GIB} "))
    assert [row.nbytes for row in log.rows] == [MIB] and "a number is negative" in log.malformed[0][1]
