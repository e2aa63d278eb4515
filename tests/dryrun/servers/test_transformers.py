"""`generate` of the installed transformers: each forward pass is an iteration, and its calls are the closed form."""

import importlib.util
import json

import pytest

from nvcoll.testing import dryrun

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        not all(map(importlib.util.find_spec, ("transformers", "accelerate"))), reason="transformers is not installed"
    ),
]

LAYERS, HIDDEN, INNER, HEADS, KV_HEADS, WORDS = 2, 512, 1024, 8, 8, 4000
GENERATES = """
import sys

import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(sys.argv[1], tp_plan="auto", dtype=torch.bfloat16)
prompt = torch.arange(4 * 128, device="cuda").reshape(4, 128)
model.generate(prompt, max_new_tokens=12, do_sample=False)
"""


def test_each_pass_of_generate_is_an_iteration(tmp_path):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": HIDDEN, "intermediate_size": INNER, "vocab_size": WORDS, "num_hidden_layers": LAYERS}
    heads = {"num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "tie_word_embeddings": False}
    model = LlamaForCausalLM(LlamaConfig(**sizes, **heads, torch_dtype=torch.bfloat16))
    model.to(torch.bfloat16).save_pretrained(tmp_path / "model")
    (tmp_path / "serve.py").write_text(GENERATES)
    decode = dryrun(
        *(str(tmp_path / name) for name in ("serve.py", "model")),
        on="hgx-h100",
        world_size=8,
        serve=True,
        is_cached=False,
        time_limit=300,
    )
    [prefill] = decode.recording.also
    of_layer = 4 * HIDDEN**2 + 3 * HIDDEN * INNER
    for one, tokens, keys in ((decode.recording, 1, 131), (prefill, 128, 128)):
        issued = json.loads(one.step.to_json())["streams"]["ranks"][0]["issued"]
        products = sum(2 * op["m"] * op["n"] * op["k"] for op in issued if op["work"] == "gemm")
        assert products == 2 * 4 * (tokens * LAYERS * of_layer + HIDDEN * WORDS) / 8
        attention = [(op["queries"], op["keys"], op["heads"]) for op in issued if op["work"] == "attention"]
        assert attention == [(tokens, keys, HEADS / 8)] * LAYERS
        calls = [(op["name"], op["bytes"]) for op in issued if op["work"] == "collective"]
        activations, logits = 2 * 4 * tokens * HIDDEN, 2 * 4 * WORDS
        assert calls == [("tp all_reduce", activations)] * 2 * LAYERS + [("tp all_gather", logits)]
    served = decode.recording.facts["served"]
    assert served["words"] == "a token of 4 sequences at 131 tokens" and served["server"].startswith("transformers 5")
    assert decode.kv_tokens == 0 and decode.prefill is not None
