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
