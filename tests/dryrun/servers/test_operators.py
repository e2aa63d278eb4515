"""Operators of servers: attention reads the keys and values that the cache has of each sequence."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from dryrun_recordings import Log

from nvcoll.dryrun.parent import serving
from nvcoll.dryrun.parent.step import made_of
from nvcoll.dryrun.wire.rank_recording import Group, Op
from nvcoll.dryrun.wire.served import KvCache, Served

CACHE = KvCache(1000, 1 << 30, 4096, element_bytes=1)
DECODE, MIXED = Served("vLLM 1", (1,) * 8, (1023,) * 8, CACHE), Served("vLLM 1", (4, 4), (0, 96), CACHE)


def attended(name, shapes, served, layer=0):
    """Returns queries, keys and the rest of what an operator of attention issues."""
    op = Op(name, bytes=7, inputs=tuple((shape, "bfloat16") for shape in shapes), pairs=1)
    assert serving.attends(op)
    (_, queries, keys), how = serving.attend(
        SimpleNamespace(attention=lambda *shape, **how: (shape, how)), None, op, served, layer
    )
    return queries, keys, how


@pytest.mark.parametrize("served", [DECODE, MIXED])
def test_each_token_sees_those_before_it(served):
    queries, keys, how = attended("vllm::unified_attention_with_output", [(8, 32, 128), *[(8, 8, 128)] * 2], served)
    sees = zip(served.new, served.seen, strict=True)
    pairs = sum(end + 1 for new, seen in sees for end in range(seen, seen + new))
    assert queries * how["sequences"] == 8 and not how["causal"]
    assert queries * keys * how["sequences"] == pairs
    assert how["nbytes"] == 7 + sum(served.seen) * 8 * (128 + 128)


@pytest.mark.parametrize("served", [DECODE, MIXED])
@pytest.mark.parametrize(("layer", "window"), [(0, 16), (1, 10**6), (2, 1), (3, 16)])
def test_a_layer_with_a_window_sees_and_reads_no_more(served, layer, window):
    windowed = replace(served, windows=(16, 0, 1))
    shapes = [(8, 32, 128), *[(8, 8, 128)] * 2]
    queries, keys, how = attended("vllm::unified_attention_with_output", shapes, windowed, layer)
    sees = zip(served.new, served.seen, strict=True)
    pairs = sum(min(end + 1, window) for new, seen in sees for end in range(seen, seen + new))
    assert queries * keys * how["sequences"] == pairs
    assert how["nbytes"] == 7 + sum(min(seen, window - 1) for seen in served.seen) * 8 * (128 + 128)


@pytest.mark.parametrize(("served", "dims"), [(DECODE, (576, 512)), (MIXED, (192, 128))])
def test_latent_attention_reads_one_row_for_all_heads(served, dims):
    shapes = [(8, 16, 192), (8, 512), (8, 1, 64)]
    _, _, how = attended("vllm::unified_mla_attention_with_output", shapes, served)
    assert (how["heads"], how["qk_dim"], how["v_dim"]) == (16, *dims)
    assert how["nbytes"] == 7 + sum(served.seen) * 576


@pytest.mark.parametrize("served", [DECODE, MIXED])
def test_attention_that_gets_the_cache_reads_the_keys_of_its_sequences(served):
    shapes = [(8, 32, 128), *[(900, 1, 8, 128)] * 2]
    queries, keys, how = attended("sgl_kernel::fwd", shapes, served)
    new = attended("vllm::unified_attention_with_output", [(8, 32, 128), *[(8, 8, 128)] * 2], served)
    assert (queries, keys, how["heads"], how["v_dim"]) == (*new[:2], 32, 128)
    assert how["nbytes"] == 2 * (8 * 32 * 128) * 2 + sum(served.new + served.seen) * 8 * (128 + 128)


@pytest.mark.parametrize("cached", [((900, 1, 1, 64), (900, 1, 1, 512)), ((900, 1, 576), (900, 1, 512))])
def test_a_latent_cache_is_read_once_for_all_heads(cached):
    _, _, how = attended("sgl_kernel::fwd", [(8, 16, cached[0][-1]), *cached], DECODE)
    assert (how["heads"], how["qk_dim"], how["v_dim"]) == (16, 576, 512)
    assert how["nbytes"] == 2 * (8 * 16 * cached[0][-1]) * 2 + sum(DECODE.new + DECODE.seen) * 576


def test_an_update_of_the_cache_is_no_attention():
    rows = tuple(((8, 8, 128), "bfloat16") for _ in range(3))
    assert not serving.attends(Op("vllm::unified_kv_cache_update", inputs=rows))
    for name in ("vllm::all_reduce", "sglang::outplace_all_reduce"):
        assert serving.collective(Op(name)) == "all_reduce"
    assert not serving.attends(Op("sgl_kernel::store_kv_cache", inputs=rows)) and not serving.collective(Op("aten::mm"))


@pytest.mark.parametrize(("server", "runs"), [("vLLM 1", "vllm"), ("SGLang 0.5", "sglang"), ("transformers 5", None)])
def test_the_rule_of_a_server_chooses_what_runs_its_all_reduce(server, runs):
    log = Log()
    log.call("all_reduce", 1, 1 << 20)
    log.call("all_gather", 1, 1 << 20)
    groups = {1: Group("unknown", (0, 1, 2, 3)), 2: Group("other", (0, 4))}
    log.call("all_reduce", 2, 1 << 20)
    served = replace(DECODE, server=server, ranks=(0, 1, 2, 3))
    step = made_of([log.recording(0, 8, groups, served=served)], gpu="h100-sxm", name="one").step
    calls = json.loads(step.to_json())["streams"]["ranks"][0]["issued"]
    assert [(op["name"], op.get("as")) for op in calls][:2] == [("tp all_reduce", runs), ("tp all_gather", None)]
    assert calls[2].get("as") is None


@pytest.mark.parametrize(("holders", "named"), [(1, "shard all_gather"), (8, "ep all_gather")])
def test_a_group_that_passes_rows_to_experts_is_expert_parallelism(holders, named):
    log = Log()
    log.call("all_gather", 1, 1 << 20)
    log.call("reduce_scatter", 1, 1 << 20)
    served = replace(DECODE, holders=holders)
    made = made_of([log.recording(0, 8, {1: Group("dp", tuple(range(8)))}, served=served)], gpu="h100-sxm", name="one")
    assert json.loads(made.step.to_json())["streams"]["ranks"][0]["issued"][0]["name"] == named


TOKENS, OF_TOKEN, WIDTH, OF_EXPERT = 8, 4, 2048, 768
BF16 = "bfloat16"


def test_kernels_between_products_of_experts_move_what_these_make():
    log, rows = Log(), TOKENS * OF_TOKEN
    around = log.op("vllm::moe_forward", 0, ((TOKENS, WIDTH), BF16))
    log.launch(around, count=3)
    shapes = [(TOKENS, WIDTH), (128, 2 * OF_EXPERT, WIDTH), (TOKENS, OF_TOKEN, 2 * OF_EXPERT)]
    shapes += [(rows, OF_EXPERT), (128, WIDTH, OF_EXPERT), (TOKENS, OF_TOKEN, WIDTH)]
    for three in (shapes[:3], shapes[3:]):
        log.launch(log.op("fused_moe_kernel", 0, *((shape, BF16) for shape in three)))
        log.launch(around)
    step = made_of([log.recording(served=DECODE)], gpu="h100-sxm", name="one").step
    issued = json.loads(step.to_json())["streams"]["ranks"][0]["issued"]
    assert [op["work"] for op in issued] == ["move", "gemm", "move", "gemm", "move"]
    activated, summed = issued[2]["bytes"], issued[4]["bytes"]
    assert activated == 2 * rows * 3 * OF_EXPERT and summed == 2 * (rows + TOKENS) * WIDTH


def test_an_update_of_the_cache_writes_what_it_reads():
    log = Log()
    log.launch(log.op("vllm::unified_kv_cache_update", 4096, ((8, 8, 128), BF16), ((8, 8, 128), BF16)))
    step = made_of([log.recording(served=DECODE)], gpu="h100-sxm", name="one").step
    [op] = json.loads(step.to_json())["streams"]["ranks"][0]["issued"]
    assert op["bytes"] == 2 * 4096


@pytest.mark.parametrize(("served", "part"), [(DECODE, 1.0), (MIXED, 0.0), (replace(MIXED, new=(1, 4)), 0.2)])
def test_only_results_of_single_tokens_are_joined_from_parts_of_the_keys(served, part):
    log = Log()
    queries, keys = ((sum(served.new), 32, 128), BF16), ((sum(served.new), 8, 128), BF16)
    log.launch(log.op("vllm::unified_attention_with_output", 0, queries, keys, keys), count=2)
    step = made_of([log.recording(served=served)], gpu="h100-sxm", name="one").step
    _, join = json.loads(step.to_json())["streams"]["ranks"][0]["issued"]
    assert join["bytes"] == pytest.approx(part * 2 * 2 * sum(served.new) * 32 * 128)


def test_weights_that_are_widened_take_longer_to_read():
    log = Log()
    sizes = (TOKENS, WIDTH), (32, 2 * OF_EXPERT, WIDTH), (TOKENS, OF_TOKEN, OF_EXPERT)
    for kept in ("float8_e4m3fn", "mxfp4"):
        log.launch(log.op("_matmul_ogs", 0, *zip(sizes, (BF16, kept, BF16), strict=True)))
    step = made_of([log.recording(served=DECODE)], gpu="h100-sxm", name="one").step
    whole, widened = (op["bytes"] for op in json.loads(step.to_json())["streams"]["ranks"][0]["issued"])
    assert 17 / 32 < widened / whole < 0.75
