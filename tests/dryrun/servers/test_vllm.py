"""The installed vLLM on the virtual GPU does what closed forms say: products, attention, collectives, cache."""

import importlib.util
import json
from functools import cache

import pytest
from served_models import (
    DENSE,
    EXPERTS,
    HEAD,
    HEADS,
    HIDDEN,
    INNER,
    KV_HEADS,
    LAYERS,
    MIXTURE,
    OF_EXPERT,
    OF_TOKEN,
    PROMPT,
    REQUESTS,
    WORDS,
    closed_form,
    flops_of_products,
    issued,
)

from nvcoll.testing import dryrun

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed"),
]

WINDOW = 128
OPENAI = DENSE | {
    **{"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "num_local_experts": EXPERTS},
    **{"num_experts_per_tok": OF_TOKEN, "experts_per_token": OF_TOKEN, "intermediate_size": OF_EXPERT},
    **{"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"], "swiglu_limit": 7.0},
    **{"quantization_config": {"quant_method": "mxfp4"}, "attention_bias": True},
}
LATENT, NOPE, ROTARY, SHARED = 512, 128, 64, 2
DEEPSEEK = DENSE | {
    **{"architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "n_routed_experts": EXPERTS},
    **{"num_experts_per_tok": OF_TOKEN, "moe_intermediate_size": OF_EXPERT, "n_shared_experts": SHARED},
    **{"kv_lora_rank": LATENT, "qk_nope_head_dim": NOPE, "qk_rope_head_dim": ROTARY, "v_head_dim": NOPE},
    **{"num_key_value_heads": HEADS, "q_lora_rank": None, "first_k_dense_replace": 1, "moe_layer_freq": 1},
    **{"n_group": 1, "topk_group": 1, "topk_method": "greedy", "scoring_func": "softmax", "norm_topk_prob": False},
}
QWEN = DENSE | {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Returns a function: a dry run of a model behind `vllm serve`, which runs once for all tests."""

    @cache
    def of_model(text, *options, gpus):
        folder = tmp_path_factory.mktemp("model")
        (folder / "config.json").write_text(text)
        args = ("serve", str(folder), "--enforce-eager", *options)
        return dryrun("vllm", *args, on="hgx-h100", world_size=gpus, serve=True, is_cached=False, time_limit=800)

    def of(config, ranks=1, *options, stages=1, replicas=1):
        options += "--tensor-parallel-size", str(ranks), "--pipeline-parallel-size", str(stages)
        options += "--data-parallel-size", str(replicas)
        return of_model(json.dumps(config), *options, gpus=ranks * stages * replicas)

    return of


@pytest.mark.parametrize(("config", "ranks"), [(DENSE, 1), (DENSE, 2), (QWEN, 1)])
def test_iterations_of_a_dense_model(served, config, ranks):
    found = served(config, ranks)
    decode, (prefill,) = found.recording, found.recording.also
    inner = 3 * HIDDEN * INNER
    assert flops_of_products(decode) == closed_form(REQUESTS, REQUESTS, inner, ranks)
    assert flops_of_products(prefill) == closed_form(REQUESTS * PROMPT, REQUESTS, inner, ranks)
    attention = [op for op in issued(decode) if op["work"] == "attention"]
    assert len(attention) == LAYERS
    for op in attention:
        assert (op["sequences"], op["queries"], op["heads"]) == (REQUESTS, 1, HEADS // ranks)
        assert PROMPT < op["keys"] < PROMPT + 8
        keys_and_values = REQUESTS * op["keys"] * KV_HEADS // ranks * 2 * HEAD * 2
        assert op["bytes"] == pytest.approx(keys_and_values, rel=0.02)
    calls = [(op["pattern"], op["bytes"]) for op in issued(decode) if op["work"] == "collective"]
    logits = [("all_gather", 2 * REQUESTS * WORDS)] if ranks > 1 else []
    assert calls == [("all_reduce", 2 * REQUESTS * HIDDEN)] * (2 * LAYERS + 1) * (ranks > 1) + logits
    of_token = LAYERS * 2 * KV_HEADS // ranks * HEAD * 2
    assert found.kv_tokens * of_token == pytest.approx(decode.facts["served"]["kv_bytes"], rel=1e-3)
    assert found.prefill is not None and found.prefill.seconds > found.seconds


@pytest.mark.parametrize("ranks", [1, 2])
def test_stages_of_a_pipeline_send_activations_and_get_tokens(served, ranks):
    found = served(DENSE, ranks, stages=2)
    decode, (prefill,) = found.recording, found.recording.also
    for one, tokens in ((decode, REQUESTS), (prefill, REQUESTS * PROMPT)):
        for stage, rows in enumerate((0, REQUESTS)):
            flops = closed_form(tokens, rows, 3 * HIDDEN * INNER, ranks, LAYERS // 2)
            assert flops_of_products(one, stage) == flops
            messages = [op for op in issued(one, stage) if op["work"] == "message"]
            part = 2 * tokens * HIDDEN // ranks  # of activations, and of the residual
            assert [(op["way"], op["bytes"]) for op in messages] == [(("send", "recv")[stage], part)] * 2
            assert {op["peer"] for op in messages} == {ranks * (1 - stage)}
            tokens_back = [op["bytes"] for op in issued(one, stage) if op.get("pattern") == "broadcast"]
            assert tokens_back == [8 * REQUESTS] * 2  # token, and two counts
    assert found.tokens_per_second == pytest.approx(REQUESTS / found.seconds / (2 * ranks), rel=1e-6)


def experts_of(recording):
    """Products of experts: for each their FLOPs over those of a multiplication with one weight, and their bytes."""
    rows = [op for op in issued(recording) if op.get("experts")]
    return [(op["m"] * op["batch"] * op["n"] * op["k"], op["bytes"]) for op in rows]


@pytest.mark.parametrize(
    ("config", "ranks", "width"),
    [(MIXTURE, 1, 2), (MIXTURE, 2, 2), (OPENAI, 1, 17 / 32)],
    ids=["one", "two", "gpt_oss"],
)
def test_experts_are_read_as_far_as_a_batch_reaches_them(served, config, ranks, width):
    found = served(config, ranks, *["--enable-expert-parallel"] * (ranks > 1))
    reached = EXPERTS * (1 - (1 - OF_TOKEN / EXPERTS) ** REQUESTS)
    for one, tokens, many in (
        (found.recording, REQUESTS, reached),
        (found.recording.also[0], REQUESTS * PROMPT, EXPERTS),
    ):
        experts = experts_of(one)
        assert len(experts) == 2 * LAYERS
        for (multiplied, nbytes), weights in zip(
            experts, [2 * OF_EXPERT * HIDDEN, OF_EXPERT * HIDDEN] * LAYERS, strict=True
        ):
            assert multiplied == pytest.approx(tokens * OF_TOKEN * weights / ranks)
            if one is found.recording:
                assert nbytes == pytest.approx(width * many * weights / ranks, rel=0.05)
        shared = HIDDEN * HEAD * (2 * HEADS + 2 * KV_HEADS) / ranks + HIDDEN * EXPERTS  # each rank has the whole router
        inner = OF_TOKEN * 3 * HIDDEN * OF_EXPERT / ranks
        products = 2 * (LAYERS * tokens * (shared + inner) + REQUESTS * HIDDEN * WORDS / ranks)
        assert flops_of_products(one) == pytest.approx(products, rel=1e-6)
    calls = [op["bytes"] for op in issued(found.recording) if op.get("pattern") == "all_reduce"]
    assert calls == [2 * REQUESTS * HIDDEN] * (2 * LAYERS + 1) * (ranks > 1)


def test_replicas_pass_rows_to_the_experts_of_each_other(served):
    found = served(MIXTURE, 1, "--enable-expert-parallel", replicas=2)
    for one, tokens in ((found.recording, REQUESTS), (found.recording.also[0], REQUESTS * PROMPT)):
        inner = HIDDEN * EXPERTS + OF_TOKEN * 3 * HIDDEN * OF_EXPERT  # half the experts, and rows of two ranks
        assert flops_of_products(one) == pytest.approx(closed_form(tokens, REQUESTS, inner), rel=1e-6)
        gathered = [2 * tokens * HIDDEN * 2, *[2 * tokens * OF_TOKEN * 4] * 2]  # rows, chosen experts and weights
        calls = [(op["name"], op["bytes"]) for op in issued(one) if op["work"] == "collective"]
        of_layer = [*(("ep all_gather", each) for each in gathered), ("ep reduce_scatter", gathered[0])]
        assert sorted(calls) == sorted(of_layer * LAYERS)
    assert found.tokens_per_second == pytest.approx(REQUESTS / found.seconds, rel=1e-6)


def test_a_layer_with_a_window_sees_no_more(served):
    found = served(OPENAI)
    for one, full in (
        (found.recording, found.recording.facts["served"]["context"]),
        (found.recording.also[0], (PROMPT + 1) / 2),
    ):
        first, second = [op["keys"] for op in issued(one) if op["work"] == "attention"]
        assert second == full
        beyond = PROMPT - WINDOW
        assert first == (WINDOW if one is found.recording else full - beyond * (beyond + 1) / 2 / PROMPT)


def test_latent_attention_projects_each_token_once(served):
    found = served(DEEPSEEK)
    projected = HIDDEN * (HEADS * (NOPE + ROTARY) + LATENT + ROTARY) + HEADS * NOPE * HIDDEN
    absorbed = LATENT * HEADS * 2 * NOPE  # of queries and results in decode; of keys and values in prefill
    experts = HIDDEN * EXPERTS + (SHARED + OF_TOKEN) * 3 * HIDDEN * OF_EXPERT
    of_token = LAYERS * (projected + absorbed) + 3 * HIDDEN * INNER + experts
    for one, tokens, dims in (
        (found.recording, REQUESTS, (LATENT + ROTARY, LATENT)),
        (found.recording.also[0], REQUESTS * PROMPT, (NOPE + ROTARY, NOPE)),
    ):
        assert flops_of_products(one) == pytest.approx(2 * (tokens * of_token + REQUESTS * HIDDEN * WORDS), rel=1e-6)
        attention = [(op["qk_dim"], op["v_dim"], op["heads"]) for op in issued(one) if op["work"] == "attention"]
        assert attention == [(*dims, HEADS)] * LAYERS


def test_products_of_eight_bits_have_their_rate_and_the_cache_half_its_bytes(served):
    found = served(DENSE, 1, "--quantization", "fp8", "--kv-cache-dtype", "fp8")
    for one, tokens in ((found.recording, REQUESTS), (found.recording.also[0], REQUESTS * PROMPT)):
        products = [op for op in issued(one) if op["work"] == "gemm"]
        assert flops_of_products(one) == closed_form(tokens, REQUESTS, 3 * HIDDEN * INNER)
        assert [op["dtype"] for op in products] == ["fp8"] * 4 * LAYERS + ["bf16"], "the logits stay as they are"
    weights = LAYERS * (HIDDEN * HEAD * (2 * HEADS + 2 * KV_HEADS) + 3 * HIDDEN * INNER)
    bytes_of_layers = sum(op["bytes"] for op in issued(found.recording) if op.get("dtype") == "fp8")
    assert bytes_of_layers == pytest.approx(weights, rel=0.05)
    [read, *_] = [op["bytes"] for op in issued(found.recording) if op["work"] == "attention"]
    assert read == pytest.approx(REQUESTS * PROMPT * KV_HEADS * 2 * HEAD, rel=0.02)
    of_token = LAYERS * 2 * KV_HEADS * HEAD
    assert found.kv_tokens * of_token == pytest.approx(found.recording.facts["served"]["kv_bytes"], rel=1e-3)
