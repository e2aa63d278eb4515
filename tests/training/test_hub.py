"""`nvcoll.training.hub`: names of models and formats of weights as hubs of weights write them."""

import json

import pytest
from command_line import cli, refused

from nvcoll.training import hub
from nvcoll.training.models import models, shipped


@pytest.mark.parametrize(
    ("name", "means", "weights"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", "llama3.1-70b", None),
        ("meta-llama/Meta-Llama-3-8B", "llama3-8b", None),
        ("RedHatAI/Meta-Llama-3.1-70B-Instruct-FP8-dynamic", "llama3.1-70b", "fp8"),
        ("nvidia/Llama-3.3-70B-Instruct-NVFP4", "llama3.1-70b", "nvfp4"),
        ("Qwen/Qwen2.5-72B-Instruct-AWQ", "qwen2.5-72b", "int4"),
        ("Qwen/Qwen2.5-32B-Instruct-GPTQ-Int4", "qwen2.5-32b", "int4"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", "qwen3-235b-a22b", "fp8"),
        ("https://huggingface.co/google/gemma-3-27b-it", "gemma3-27b", None),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b", None),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b", None),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-v3", "fp8"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "qwen2.5-32b", None),
        ("deepseek-ai/DeepSeek-V3-0324", "deepseek-v3", "fp8"),
        ("Qwen/Qwen2.5-Coder-32B-Instruct", "qwen2.5-32b", None),
        ("openai/gpt-oss-120b", "gpt-oss-120b", "mxfp4"),
        ("llama-3.1-405b", "llama3.1-405b", None),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nemotron3-nano-30b-a3b", None),
        ("mistralai/Voxtral-Small-24B-2507", None, None),
        ("Qwen/Qwen3-Coder-30B", None, None),
    ],
)
def test_a_name_of_a_hub_is_a_model_and_a_format(name, means, weights):
    assert (shipped(name), hub.weights(name, models())) == (means, weights)


def test_every_model_that_is_shipped_keeps_its_name():
    assert [shipped(name) for name in models()] == list(models())
    assert set(hub.TABLE["same_as"].values()) | set(hub.TABLE["native"]) <= set(models())


@pytest.mark.parametrize(
    ("quantized", "weights"),
    [
        ({"quant_method": "awq", "bits": 4}, "int4"),
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"0": {"weights": {"type": "int", "num_bits": 4}}}},
            "int4",
        ),
        (None, "bf16"),
    ],
)
def test_a_folder_says_the_model_and_its_weights(tmp_path, quantized, weights):
    sizes = {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8}
    fields = {"model_type": "llama", "num_hidden_layers": 32, "vocab_size": 128256, "max_position_embeddings": 8192}
    config = {**fields, **sizes, **({"quantization_config": quantized} if quantized else {})}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = json.loads(cli("serve", str(tmp_path), "--tp", "1", "-n", "1", "--json").stdout)
    assert found["found"][0]["precision"] == weights
    assert any("weights in" in note for note in found["assumed"]) == (weights != "bf16")


def test_what_is_said_on_the_command_line_wins():
    words = ("serve", "deepseek-ai/DeepSeek-R1", "--on", "hgx-b200", "--tp", "8", "--ep", "8", "--dp-attention", "1")
    assert "in nvfp4 by" in cli(*words, "--precision", "nvfp4").stdout
    assert "weights in fp8, as published" in cli(*words).stdout


def test_words_of_servers_are_ours():
    words = ("serve", "llama3-8b", "-n", "1", "--tp", "1", "--json", "--speculate", "2", "--accept", "0.7")
    found = json.loads(cli(*words, "--server", "TensorRT-LLM", "--draft", "eagle").stdout)["found"][0]
    assert (found["server"], found["speculation"]["draft"]) == ("trtllm", "head")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--tensor-parallel-size", "4"), "pass --tp"),
        (("-tp", "4"), "pass --tp"),
        (("--max-model-len", "8192"), "pass --in and --out"),
        (("--request-rate", "2"), "pass --rate"),
        (("--quantization", "awq"), "pass --precision"),
        (("--ttft", "300"), "--ttft 300 is no time: pass milliseconds or seconds, as 20ms or 0.5s"),
    ],
)
def test_options_of_servers_are_answered_with_ours(words, says):
    assert says in refused("serve", "llama3-8b", *words)


def test_a_model_that_is_not_known_is_asked_for_as_a_file():
    assert "pass its config.json" in refused("serve", "mistralai/Voxtral-Small-24B-2507")
