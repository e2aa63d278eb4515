"""The installed SGLang on the virtual GPU does what closed forms say: products, attention, collectives, cache."""

import importlib.util
import json

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
    pytest.mark.skipif(importlib.util.find_spec("sglang") is None, reason="sglang is not installed"),
]

OFFLINE = """
import sglang

if __name__ == "__main__":
    engine = sglang.Engine(model_path="MODEL", skip_tokenizer_init=True, disable_cuda_graph=True)
    found = engine.generate(input_ids=[[1] * 8, [2] * 9], sampling_params={"max_new_tokens": 2, "temperature": 0.8})
    assert [len(one["output_ids"]) for one in found] == [2, 2], found
    engine.generate(input_ids=[[3] * 700], sampling_params={"max_new_tokens": 8})
"""


@pytest.fixture
def model(tmp_path):
    """Returns a function: the folder of a model."""

    def made(config):
        (tmp_path / "config.json").write_text(json.dumps(config))
        return str(tmp_path)

    return made


def served(model, ranks=1, on="hgx-h100"):
    args = ("--model-path", model, "--tp", str(ranks), "--disable-cuda-graph")
    how = {"world_size": ranks, "serve": True, "is_cached": False, "time_limit": 800}
    return dryrun("sglang.launch_server", *args, is_module=True, on=on, **how)


@pytest.mark.parametrize(("ranks", "on"), [(1, "hgx-h100"), (2, "hgx-h100"), (1, "hgx-a100")])
def test_iterations_of_a_dense_model(model, ranks, on):
    found = served(model(DENSE), ranks, on)
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
    calls = [(op["pattern"], op["bytes"], op.get("as")) for op in issued(decode) if op["work"] == "collective"]
    logits = [("all_gather", 2 * REQUESTS * WORDS, None)] if ranks > 1 else []
    assert calls == [("all_reduce", 2 * REQUESTS * HIDDEN, "sglang")] * (2 * LAYERS + 1) * (ranks > 1) + logits
    of_token = LAYERS * 2 * KV_HEADS // ranks * HEAD * 2
    assert found.kv_tokens * of_token == pytest.approx(decode.facts["served"]["kv_bytes"], rel=1e-3)
    assert found.prefill is not None


def test_experts_are_read_as_far_as_a_batch_reaches_them(model):
    found = served(model(MIXTURE))
    experts = [op for op in issued(found.recording) if op.get("experts")]
    assert len(experts) == 2 * LAYERS
    reached = EXPERTS * (1 - (1 - OF_TOKEN / EXPERTS) ** REQUESTS)
    for op, weights in zip(experts, [2 * OF_EXPERT * HIDDEN, OF_EXPERT * HIDDEN] * LAYERS, strict=True):
        assert op["m"] * op["batch"] * op["n"] * op["k"] == pytest.approx(REQUESTS * OF_TOKEN * weights)
        assert op["bytes"] == pytest.approx(2 * reached * weights, rel=0.05)


def test_a_script_gets_its_answers(model, tmp_path):
    script = tmp_path / "offline.py"
    script.write_text(OFFLINE.replace("MODEL", model(DENSE)))
    found = dryrun(str(script), on="hgx-h100", world_size=1, serve=True, is_cached=False, time_limit=800)
    assert found.recording.facts["served"]["words"].startswith("a token of 1 sequence at 7")
