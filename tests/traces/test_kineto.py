"""Traces of torch.profiler as recorded steps."""

import gzip
import json
from pathlib import Path

import pytest
from made_traces import Writer, of_two_layers

import nvcoll
from nvcoll._nvcoll import Issue, StepBuilder
from nvcoll.traces import kineto, opened

TRACES = Path(__file__).parent


def ops_of(found, rank=0):
    """The operations of a rank of the first step of a trace."""
    return json.loads(found.steps[0].to_json())["streams"]["ranks"][rank]["issued"]


def read(*writers, **how):
    """Reads what writers wrote."""
    documents = [(f"rank{nth}.json", one.document) for nth, one in enumerate(writers)]
    return kineto.read(documents, "h100-sxm", **how)


def waits(ops):
    """Pairs of names: what waits, and for what it waits, through events."""
    names, pairs, recorded = {}, [], {}
    pending = {}
    for op in ops:
        if op["work"] == "record":
            recorded[op["event"]] = names[op["stream"]]
        elif op["work"] == "stream_wait":
            pending.setdefault(op["stream"], []).append(recorded[op["event"]])
        elif op["work"] == "host_wait":
            pairs.append(("processor", recorded[op["for"]["event"]]))
        elif op["work"] != "host":
            names[op["stream"]] = op["name"]
            pairs += [(op["name"], other) for other in pending.pop(op["stream"], [])]
    return pairs


def test_kernels_keep_their_times_and_collectives_get_pattern_bytes_and_group():
    found = read(of_two_layers())
    ops = [op for op in ops_of(found) if op["work"] in ("timed", "collective")]
    assert [op["name"] for op in ops] == ["gemm 1", "all_reduce", "gemm 2", "all_reduce", "adam"]
    assert [round(op["seconds"] * 1e6) for op in ops if "seconds" in op] == [1001, 1000, 300], "with the gap to gemm 2"
    assert all((op["bytes"], op["pattern"], op["group"]) == (4e7, "all_reduce", "dp") for op in ops if "bytes" in op)
    step = json.loads(found.steps[0].to_json())
    assert step["gpus"] == 8 and step["groups"] == {"dp": {"kind": "dp", "size": 8, "stride": 1}}
    assert step["streams"]["gpu"] == "a100-sxm" and step["streams"]["ranks"][0]["stands_for"] == 8


@pytest.mark.parametrize(
    ("name", "gpu", "words"),
    [
        ("NVIDIA GeForce RTX 2080 Ti", "rtx2080ti", "it was recorded on GeForce RTX 2080 Ti"),
        ("NVIDIA TITAN Xp", "NVIDIA TITAN Xp", "it was recorded on NVIDIA TITAN Xp"),
        ("NVIDIA A100-PG509-200", "NVIDIA A100-PG509-200", "it was recorded on NVIDIA A100-PG509-200"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm", ""),
    ],
)
def test_a_trace_was_recorded_on_the_gpu_that_it_names(name, gpu, words):
    step = read(of_two_layers(gpu=name)).steps[0]
    assert json.loads(step.to_json())["streams"]["gpu"] == gpu
    reasons = [one for one in nvcoll.training.Machine("hgx-h100").predict(step).extrapolated if "recorded" in one]
    assert len(reasons) == bool(words) and all(one.startswith(words) for one in reasons)


def test_collectives_wait_for_what_was_launched_before_and_the_optimizer_for_the_last():
    assert waits(ops_of(read(of_two_layers()))) == [
        ("all_reduce", "gemm 1"),
        ("all_reduce", "gemm 2"),
        ("adam", "all_reduce"),
    ]
    assert any("derived from times" in note for note in read(of_two_layers()).notes)


def test_the_measured_parts_sum_up_to_the_step():
    found = read(of_two_layers()).measured
    assert found.seconds == pytest.approx(3e-3) and found.computing_s == pytest.approx(2.3e-3, abs=5e-6)
    assert found.exposed_s == pytest.approx(0.5e-3, abs=5e-6)
    assert found.computing_s + found.exposed_s + found.idle_s == pytest.approx(found.seconds)


def test_the_processor_keeps_its_time_but_not_that_in_which_it_waited():
    one = Writer()
    one.step(1, 0, 5000)
    one.kernel("long", 100, 110, 3000)
    one.call("cudaDeviceSynchronize", 200, 2912)
    one.kernel("short", 3500, 3510, 10)
    ops = ops_of(read(one))
    assert [op["work"] for op in ops] == [
        "host",
        "timed",
        "record",
        "host",
        "host_wait",
        "host",
        "timed",
        "host",
    ]
    hosts = [round(op["seconds"] * 1e6) for op in ops if op["work"] == "host"]
    assert hosts == [105, 95, 395, 1495]


def test_a_launch_that_waited_in_a_full_queue_counts_as_a_short_one():
    one = Writer()
    one.step(1, 0, 9000)
    one.kernel("long", 100, 110, 8000)
    one.event("cuda_runtime", "cudaLaunchKernel", 200, 7000, correlation=77)
    one.event("kernel", "next", 8110, 10, 7, stream=7, device=0, correlation=77)
    hosts = [round(op["seconds"] * 1e6) for op in ops_of(read(one)) if op["work"] == "host"]
    assert hosts[1] == 95 + 20


def test_a_copy_that_blocks_holds_the_processor():
    one = Writer()
    one.step(1, 0, 900)
    one.kernel("sum", 100, 110, 400)
    one.event("cuda_runtime", "cudaMemcpyAsync", 120, 400, 1, correlation=9)
    one.event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 511, 2, 7, stream=7, device=0, correlation=9)
    assert waits(ops_of(read(one))) == [("processor", "Memcpy DtoH (Device -> Pageable)")]


@pytest.mark.parametrize(
    ("name", "shapes", "pattern", "nbytes"),
    [
        ("_allgather_base", (100, 800), "all_gather", 1600),
        ("_reduce_scatter_base", (800, 100), "reduce_scatter", 1600),
        ("all_to_all", (800, 800), "all_to_all", 1600),
        ("broadcast", (100, 100), "broadcast", 200),
        ("allreduce_coalesced", (100, 100), "all_reduce", 200),
    ],
)
def test_names_and_sizes_of_torch(name, shapes, pattern, nbytes):
    one = Writer()
    one.step(1, 0, 900)
    words = {"Collective name": name, "In msg nelems": shapes[0], "Out msg nelems": shapes[1]}
    one.collective("X", 100, 110, 10, 0, dtype="BFloat16", **words)
    (op,) = (op for op in ops_of(read(one)) if op["work"] == "collective")
    assert (op["pattern"], op["bytes"]) == (pattern, nbytes)


def test_ranks_of_groups_may_be_shortened_and_stand_elsewhere():
    one = Writer(ranks=64)
    one.document["distributedInfo"]["pg_config"] = [{"pg_name": "7", "ranks": [*range(0, 64, 8)]}]
    one.step(1, 0, 900)
    more = {"Process Group Name": "7", "Group size": 8, "Process Group Ranks": "[0, ...]"}
    one.collective("AllReduce", 100, 110, 10, 64, **more, **{"Process Group Description": "mesh_fsdp"})
    more = {"Process Group Name": "9", "Group size": 8, "Process Group Ranks": "[0, 1, ..., 7]"}
    one.collective(
        "AllReduce", 200, 210, 10, 64, **more, **{"Process Group Description": "TENSOR_MODEL_PARALLEL_GROUP"}
    )
    groups = json.loads(read(one).steps[0].to_json())["groups"]
    assert groups == {
        "shard": {"kind": "shard", "size": 8, "stride": 8},
        "tp": {"kind": "tp", "size": 8, "stride": 1},
    }


def test_groups_are_named_by_their_parallelism_their_calls_or_their_ranks():
    builder = StepBuilder("groups", gpus=16, gpu="h100-sxm")
    rank = builder.rank(0, stands_for=16, name="all")

    def called(ranks, name, *calls):
        number = builder.group(ranks, rank=0, called=name)
        for call in calls:
            rank.collective(Issue(0), call, 1e9, number)
        return number

    numbers = [called(ranks, "default_pg", "all_reduce") for ranks in ((0, 1), (0, 8), (0, 8), range(16))]
    numbers.append(called((0, 2), "7", "all_gather", "reduce_scatter"))
    numbers += [called(range(size), "mesh_tp", "all_reduce") for size in (8, 8, 4)]
    groups = json.loads(builder.finish().to_json())["groups"]
    names = [builder.name_of(number) for number in numbers]
    assert names == ["dp", "default_pg", "default_pg", "dp 2", "shard", "tp", "tp", "mesh_tp"]
    assert groups["mesh_tp"] == {"kind": "tp", "size": 4, "stride": 1} and groups["shard"]["kind"] == "shard"


def test_older_traces_say_sizes_with_the_call_of_torch_alone():
    one = Writer()
    one.step(1, 0, 900)
    words = {"Collective name": "allreduce", "In msg nelems": 256, "dtype": "Half", "Group size": 8}
    one.event("cpu_op", "record_param_comms", 95, 20, 1, **{"External id": 5}, **words)
    one.kernel("ncclKernel_AllReduce_RING_LL_Sum_half(ncclWorkElem)", 100, 110, 10, 20, external=5)
    (op,) = (op for op in ops_of(read(one)) if op["work"] == "collective")
    assert op["bytes"] == 512


def test_sends_and_collectives_without_sizes_keep_their_times_and_this_is_said():
    one = Writer()
    one.step(1, 0, 900)
    one.kernel("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", 100, 110, 10, 20)
    one.kernel("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", 200, 210, 10, 20)
    found = read(one)
    assert not [op for op in ops_of(found) if op["work"] == "collective"]
    assert {"sends and receives keep their measured time", "collectives without sizes keep their measured time"} <= {
        *found.notes
    }


def test_files_of_several_ranks_are_one_step():
    found = read(of_two_layers(0), of_two_layers(1))
    ranks = json.loads(found.steps[0].to_json())["streams"]["ranks"]
    assert [(one["rank"], one["stands_for"]) for one in ranks] == [(0, 4), (1, 4)]
    with pytest.raises(nvcoll.InvalidArgument, match="several files are of rank 1"):
        read(of_two_layers(1), of_two_layers(1))


def test_all_ranks_take_the_same_step():
    def rank(number, times):
        one = Writer(number)
        for nth, time in enumerate(times):
            one.step(nth, 1000 * nth, 1000 * nth + time)
            one.kernel(f"of {nth}", 1000 * nth + 10, 1000 * nth + 20, 5)
        return one

    found = read(rank(0, [100, 200, 300]), rank(1, [300, 900, 100]))
    for nth in range(2):
        assert [op["name"] for op in ops_of(found, nth) if "name" in op] == ["of 1"]


def test_the_step_of_median_time_is_taken_or_the_one_that_is_named():
    one = Writer()
    for number, (start, end) in enumerate([(0, 100), (100, 400), (400, 600)]):
        one.step(number, start, end)
        one.kernel(f"of {number}", start + 10, start + 20, 5)
    assert [op["name"] for op in ops_of(read(one)) if "name" in op] == ["of 2"]
    assert [op["name"] for op in ops_of(read(one, number=1)) if "name" in op] == ["of 1"]
    with pytest.raises(nvcoll.InvalidArgument, match=r"no ProfilerStep#7: it has 0, 1, 2"):
        read(one, number=7)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda one: one.events.clear(), "has no launches"),
        (lambda one: one.event("kernel", "x", "noon", 1, device=0), "event without name, `ts` or `dur`"),
        (lambda one: one.event("kernel", "x", 1, 1, device=1), "several GPUs, one rank in each file"),
        (lambda one: one.step(1, 2900, 3000), "has no kernels in step 1"),
    ],
)
def test_documents_that_are_no_traces_of_a_gpu_are_refused(change, said):
    one = of_two_layers()
    change(one)
    with pytest.raises(nvcoll.InvalidArgument, match=said):
        read(one)


def test_events_of_synchronisation_are_exact():
    found = opened([TRACES / "event_sync.json.gz"])
    ops = ops_of(found)
    names = [op["name"].split("_128")[0] for op in ops if op["work"] == "timed"]
    assert names == ["Memset (Device)", "ampere_sgemm"] * 3 and not found.notes
    streams = [op["stream"] for op in ops if op["work"] == "timed"]
    assert streams == [20, 20, 28, 28, 24, 24]
    wait = next(op for op in ops if op["work"] == "stream_wait")
    record = next(op for op in ops if op["work"] == "record" and op["event"] == wait["event"])
    assert (wait["stream"], record["stream"]) == (24, 20), "cudaStreamWaitEvent of the trace"


def test_a_real_step_of_ddp():
    found = opened([TRACES / "ddp_two_a100.json.gz"])
    ops = ops_of(found)
    sizes = [(op["pattern"], op["bytes"]) for op in ops if op["work"] == "collective"]
    assert [name for name, _ in sizes] == ["broadcast"] * 2 + ["all_reduce"] * 5
    assert sum(nbytes for name, nbytes in sizes if name == "all_reduce") == 4 * 25_557_032, "ResNet-50 in fp32"
    assert sum(op["work"] == "timed" for op in ops) == 1251
    document = json.loads(gzip.decompress((TRACES / "ddp_two_a100.json.gz").read_bytes()))
    kernels = [one for one in document["traceEvents"] if one["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")]
    assert len(kernels) == 1251 + 7
    spent = sum(op["seconds"] for op in ops if op["work"] == "host")
    assert spent == pytest.approx(found.measured.seconds, rel=1e-3), "the processor never waited"
