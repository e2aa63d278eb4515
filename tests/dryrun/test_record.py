"""From recordings to recorded steps: FLOPs, bytes, groups, messages and totals, by hand."""

import json

import pytest
from dryrun_recordings import BFLOAT16, Log, layer

import nvcoll
from nvcoll._nvcoll import group_word
from nvcoll.dryrun.parent.step import made_of
from nvcoll.dryrun.wire.rank_recording import Group
from nvcoll.dryrun.wire.virtual_gpu import CAPTURED, Kind
from nvcoll.training import WorkStep


def step_of(*recordings, **more):
    """The step, which the reader of steps has accepted."""
    row = json.loads(made_of(recordings, gpu="h100-sxm", name="test", **more).step.to_json())
    WorkStep.from_json(json.dumps(row))
    return row


def ops_of(row, nth=0):
    return row["streams"]["ranks"][nth]["issued"]


def test_a_layer_is_a_step_with_exact_products_bytes_and_lines():
    row = step_of(layer())
    ops = ops_of(row)
    works = [op["work"] for op in ops]
    assert works == [
        *("collective", "record", "stream_wait", "move", "gemm", "attention", "move", "gemm", "gemm"),
        *("collective", "host_wait"),
    ]
    lines = row["streams"]["lines"]
    assert [lines[op["line"]] for op in ops if "line" in op][:3] == [f"t.py:{n} forward" for n in (4, 5, 6)]
    assert {name: ops[4][name] for name in ("m", "n", "k", "dtype")} == {"m": 1024, "n": 64, "k": 64, "dtype": "bf16"}
    attention = {"queries": 512, "keys": 512, "sequences": 2, "heads": 4, "qk_dim": 16, "v_dim": 16}
    assert attention.items() <= ops[5].items() and not ops[5]["backward"] and ops[5]["kernel"] == "fa2"
    assert (ops[6]["launches"], ops[6]["bytes"]) == (3, 600), "launches of an operator share its bytes"
    assert ops[0]["bytes"] == 16 * 4096 and ops[9]["bytes"] == 16 * 8192, "nccl-tests counts the shares of all ranks"
    assert ops[0]["group"] == "shard" and row["groups"] == {"shard": {"kind": "shard", "size": 16, "stride": 1}}
    assert (ops[10]["work"], ops[10]["for"]) == ("host_wait", {"stream": 9})
    memory = row["streams"]["ranks"][0]["memory"]["allocator"]
    assert memory["stack"] == ["t.py:1 <module>", "m.py:3 f"] and memory["reserved"] == 9 << 30
    assert row["streams"]["ranks"][0]["host"] == {"launches": {"operators": 50}}


def test_tokens_and_flops_count_the_model_once():
    row = step_of(layer())
    assert row["tokens"] == 16 * 2 * 512
    forward = 2 * 1024 * 64 * 64
    attention = 2 * 2 * 2 * 4 * 512 * 512 * 16 / 2
    assert row["model_flops"] == 16 * (3 * forward + attention)
    assert step_of(layer(), tokens=5)["tokens"] == 5


def test_what_is_computed_again_is_no_flop_of_the_model():
    log = Log()
    mm, again = log.op("aten::mm"), log.op("aten::mm", is_backward=True)
    log.gemm(8, 8, 8, op=mm)
    for _ in range(3):
        log.gemm(8, 8, 8, op=again)
    made = made_of([log.recording()], gpu="h100-sxm", name="test")
    assert (made.step.model_flops, made.step.flops()) == (16 * 3 * 1024, 16 * 4 * 1024)
    assert made.step.tokens is None and "--tokens" in made.tokens and json.loads(made.step.to_json())["dtype"] == "bf16"


@pytest.mark.parametrize(
    ("reads", "tokens"),
    [
        ([(1, 9), (2, 9), (3, 9)], 512),
        ([(1, 9), (2, 9), (1, 10), (2, 10)], 1024),
        ([(1, 9), (2, 9), (1, 9), (2, 9)], 1024),
        ([(1, 9), (2, 10)], 1024),
    ],
    ids=["one micro-batch", "two micro-batches", "the same one twice", "two towers"],
)
def test_tables_that_read_the_same_integers_count_as_one(reads, tokens):
    log = Log()
    inputs = ((32000, 64), BFLOAT16), ((512,), "int64")
    for numbers in reads:
        log.launch(log.op("aten::embedding", 100, *inputs, numbers=numbers))
    assert step_of(log.recording(world_size=1))["tokens"] == tokens


def test_tensor_parallel_ranks_read_the_same_tokens():
    groups = {1: Group("mesh_tp", tuple(range(8))), 2: Group("mesh_dp_shard", (0, 8))}
    assert step_of(layer(groups=groups))["tokens"] == 2 * 2 * 512


@pytest.mark.parametrize(
    ("dtype", "compute", "name"),
    [
        (14, 68, "bf16"),
        (2, 68, "fp16"),
        (28, 68, "fp8"),
        (0, 68, "fp32"),
        (0, 77, "tf32"),
        (1, 70, "fp64"),
        (33, 68, "fp4"),
    ],
)
def test_the_precision_of_a_product_is_that_of_its_inputs_and_its_sums(dtype, compute, name):
    log = Log()
    log.gemm(8, 8, 8, dtype=dtype, compute=compute)
    row = step_of(log.recording())
    assert ops_of(row)[0]["dtype"] == row["dtype"] == name


def test_operators_with_a_product_move_the_rest_of_their_bytes_once():
    log = Log()
    linear = log.op("aten::addmm", 3 * 8 * 8 * 2 + 100)
    log.gemm(8, 8, 8, op=linear)
    log.launch(linear, count=2)
    _, kernel = ops_of(step_of(log.recording()))
    assert (kernel["launches"], kernel["bytes"]) == (2, 100)


def test_launches_of_other_streams_or_operators_are_operations_of_their_own():
    log = Log()
    one, two = log.op("aten::add", 40), log.op("aten::mul", 60)
    for op, stream in ((one, 7), (one, 8), (two, 7), (two, 7), (one, 7), (0, 7), (0, 7)):
        log.launch(op, stream)
    ops = ops_of(step_of(log.recording()))
    assert [(op["name"], op["stream"], op.get("launches", 1)) for op in ops] == [
        *(("aten::add", 7, 1), ("aten::add", 8, 1), ("aten::mul", 7, 2), ("aten::add", 7, 1)),
        *(("kernel", 7, 1), ("kernel", 7, 1)),
    ]
    assert sum(op["bytes"] for op in ops) == pytest.approx(100)


def test_captured_work_does_not_run_and_events_of_nobody_are_left_out():
    log = Log()
    log.launch(log.op("aten::add", 40))
    log.add(Kind.GEMM | CAPTURED, 7, "cublasGemmEx", 0, 8, 8, 8, 1, 0, 14)
    log.add(Kind.EVENT_RECORD, 7, None, 0, 1)
    log.add(Kind.STREAM_WAIT, 9, None, 0, 2)
    log.add(Kind.HOST_WAIT, 0, None, 0, 2, 3)
    log.add(Kind.COPY, 7, None, 0, 64, 0)
    assert [op["work"] for op in ops_of(step_of(log.recording()))] == ["move"]


def test_events_are_of_their_recordings_whatever_handles_they_had():
    """Threads of torch take events from a pool, so two runs of a script give them to recordings in another way."""
    steps = []
    for one, other in ((1, 2), (3, 3), (9, 4)):
        log = Log()
        log.add(Kind.STREAM_WAIT, 9, None, 0, 50)  # of the step before
        for event in (one, other):
            log.launch(log.op("aten::add", 40))
            log.add(Kind.EVENT_RECORD, 7, None, 0, event)
            log.add(Kind.STREAM_WAIT, 9, None, 0, event)
        log.add(Kind.EVENT_RECORD, 7, None, 0, 50)
        log.add(Kind.EVENT_RECORD, 9, None, 0, one)  # for which nothing waits
        steps.append([(op["work"], op.get("event")) for op in ops_of(step_of(log.recording()))])
    work = ["stream_wait", "move", "record", "stream_wait", "move", "record", "stream_wait", "record"]
    assert steps == [list(zip(work, [3, None, 1, 1, None, 2, 2, 3], strict=True))] * 3


def test_sends_to_all_in_one_group_call_are_an_all_to_all():
    log = Log()
    for peer in range(4):
        log.call("send", 1, 100, peer=peer, together=5)
        log.call("recv", 1, 100, peer=peer, together=5)
    (op,) = ops_of(step_of(log.recording(world_size=4)))
    assert (op["pattern"], op["bytes"], op["group"]) == ("all_to_all", 400, "dp")


def test_messages_have_global_ranks_and_stay_messages():
    groups = {1: Group("mesh_pp", (3, 7, 11, 15))}
    log = Log()
    log.call("send", 1, 100, peer=1, together=5)
    log.call("recv", 1, 100, peer=1, together=5)
    send, recv = ops_of(step_of(log.recording(rank=3, groups=groups)))
    assert (send["way"], send["peer"], send["together"]) == ("send", 7, 5)
    assert (recv["way"], recv["peer"]) == ("recv", 7)


def test_convolutions_are_products_of_as_many_flops():
    log = Log()
    inputs = ((32, 64, 56, 56), "float16"), ((128, 64, 3, 3), "float16")
    log.launch(log.op("aten::cudnn_convolution", 1000, *inputs, flops=2 * 100 * 128 * 576))
    (op,) = ops_of(step_of(log.recording()))
    assert (op["work"], op["m"], op["n"], op["k"], op["dtype"]) == ("gemm", 100, 128, 576, "fp16")


def test_attention_that_is_packed_or_of_fewer_keys_has_its_shapes():
    log = Log()
    packed = [((1000, 8, 64), BFLOAT16), ((1000, 2, 64), BFLOAT16), ((1000, 2, 64), BFLOAT16)]
    log.launch(log.op("flash_attn::_flash_attn_varlen_forward", 1, *packed, is_causal=True))
    gradient = ((2, 8, 128, 64), BFLOAT16)
    keys = ((2, 8, 256, 64), BFLOAT16)
    log.launch(log.op("aten::_scaled_dot_product_cudnn_attention_backward", 1, gradient, gradient, keys, keys), count=2)
    first, second, rest = ops_of(step_of(log.recording()))
    assert (first["heads"], first["queries"], first["sequences"], first.get("causal", True)) == (8, 1000, 1, True)
    assert (second["keys"], second["backward"], second["kernel"], second.get("causal", True)) == (
        256,
        True,
        "cudnn",
        False,
    )
    assert rest["work"] == "move"


def test_groups_have_names_of_the_layout_and_one_name_per_shape():
    names = {
        "TENSOR_MODEL_PARALLEL_GROUP": "tp",
        "mesh_dp_shard_cp": "shard",
        "mesh_dp_replicate": "copies",
        "PIPELINE_MODEL_PARALLEL_GROUP": "pp",
        "CONTEXT_PARALLEL_GROUP": "cp",
        "ep": "ep",
        "DATA_PARALLEL_GROUP_WITH_CP": "dp",
    }
    assert group_word("EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP") == "ep" and group_word("MODEL_PARALLEL_GROUP") is None
    groups = {nth: Group(name, (0, nth)) for nth, name in enumerate(names, 1)}
    groups |= {19: Group("tp", (0, 1, 2, 3)), 20: Group("unused", (0, 1, 5))}
    log = Log()
    for number in range(1, 20):
        if number in groups:
            log.call("all_reduce", number, 64)
    found = [op["group"] for op in ops_of(step_of(log.recording(groups=groups)))]
    assert found == [*names.values(), "tp 2"]


def test_a_second_group_without_a_description_has_its_ranks_as_its_name():
    groups = {1: Group("default_pg", tuple(range(16))), 2: Group("2", (0, 8)), 3: Group("0f" * 16, (0, 4, 8, 12))}
    log = Log()
    for number in groups:
        log.call("all_reduce", number, 64)
    row = step_of(log.recording(groups=groups))
    assert [op["group"] for op in ops_of(row)] == ["world", "dp", "dp of 4, 4 apart"]


@pytest.mark.parametrize(("nbytes", "beside", "name"), [(4, True, "world"), (4, False, "dp"), (1 << 24, True, "dp")])
def test_small_all_reduces_of_all_ranks_beside_other_groups_are_of_the_world(nbytes, beside, name):
    log = Log()
    log.call("all_reduce", 1, nbytes)
    groups = {1: Group("default_pg", tuple(range(16)))}
    if beside:
        groups[2] = Group("mesh_tp", tuple(range(8)))
        log.call("all_reduce", 2, 1 << 24)
    assert ops_of(step_of(log.recording(groups=groups)))[0]["group"] == name


@pytest.mark.parametrize("name", ["default_pg", "mesh_dp"])
def test_a_group_that_reduces_gradients_and_gathers_features_is_of_data_parallelism(name):
    log = Log()
    for _ in range(5):
        log.call("all_reduce", 1, 25 << 20)
    log.call("all_gather", 1, 1 << 20)
    log.call("reduce_scatter", 1, 1 << 20)
    groups = {1: Group(name, tuple(range(16)))}
    assert {op["group"] for op in ops_of(step_of(log.recording(groups=groups)))} == {"dp"}


def test_gathers_and_reduce_scatters_are_of_sharded_parameters_though_the_group_is_called_dp():
    log = Log()
    groups = {1: Group("mesh_dp", (0, 8)), 2: Group("mesh_tp", tuple(range(8)))}
    for number in groups:
        log.call("all_gather", number, 64)
        log.call("reduce_scatter", number, 64)
    assert [op["group"] for op in ops_of(step_of(log.recording(groups=groups)))] == ["shard", "shard", "tp", "tp"]


@pytest.mark.parametrize(
    ("ranks", "group"),
    [
        ((*range(8), *range(128, 136)), {"size": 16, "stride": 1, "runs": 2, "apart": 128}),
        ((0, 4, 32, 36, 64, 68), {"size": 6, "stride": 4, "runs": 3, "apart": 32}),
        ((8, 0, 16), {"size": 3, "stride": 8}),
        ((0, 1, 5), {"size": 3, "stride": 2}),
        ((0, 4, 5, 9), {"size": 4, "stride": 3}),
        ((5,), {"size": 1, "stride": 1}),
    ],
)
def test_a_group_has_runs_of_equal_distances_or_is_taken_to_be_evenly_apart(ranks, group):
    log = Log()
    log.call("all_reduce", 1, 64)
    recording = log.recording(rank=ranks[0], world_size=256, groups={1: Group("tp", ranks)})
    made = made_of([recording], gpu="h100-sxm", name="test")
    assert json.loads(made.step.to_json())["groups"] == {"tp": {"kind": "tp"} | group}
    assert bool(made.notes) == (ranks in ((0, 1, 5), (0, 4, 5, 9)))


@pytest.mark.parametrize("ranks", [(0, 0), (0, 1, 1, 2)])
def test_a_group_with_a_rank_twice_is_refused(ranks):
    log = Log()
    log.call("all_reduce", 1, 64)
    with pytest.raises(nvcoll.InvalidArgument, match="`odd` has the ranks"):
        step_of(log.recording(groups={1: Group("odd", ranks)}))


def test_what_a_cuda_graph_launches_is_marked_but_for_the_first_of_it():
    log = Log()
    one, two, three, after = (log.op(f"aten::{name}", 40) for name in ("one", "two", "three", "after"))
    log.add(Kind.GRAPH_LAUNCH, 7, None, 0, 5)
    log.add(Kind.EVENT_RECORD, 7, None, 0, 5)  # nobody waits for it
    log.launch(one)
    log.add(Kind.GRAPH_LAUNCH, 7, None, 0, 1)  # a graph in the graph
    log.launch(two)
    log.gemm(8, 8, 8, op=three)
    log.launch(after)
    log.add(Kind.GRAPH_LAUNCH, 7, None, 0, 2)
    log.launch(one)
    log.launch(two)
    ops = ops_of(step_of(log.recording()))
    marked = [(op["name"].removeprefix("aten::"), op.get("by_graph", False)) for op in ops]
    names = [("one", False), ("two", True), ("three", True), ("after", False), ("one", False), ("two", True)]
    assert marked == names


@pytest.mark.parametrize("name", ["mesh_pp", "2"])
def test_stages_of_a_pipeline_do_not_multiply_tokens(name):
    """Also where only the messages of a group say that its ranks are stages."""
    log = Log()
    log.launch(log.op("aten::embedding", 100, ((32000, 64), BFLOAT16), ((2, 512), "int64")))
    log.call("send", 1, 100, peer=1)
    log.call("recv", 1, 100, peer=1)
    groups = {1: Group(name, (0, 4, 8, 12)), 2: Group("default_pg", tuple(range(16)))}
    assert step_of(log.recording(groups=groups))["tokens"] == 4 * 2 * 512
