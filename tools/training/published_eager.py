"""Steps of eager programs whose times were published: `host_judge.py` records them.

    python published_eager.py NAME:KIND

GPT_FAST and LITGPT are folders with clones of pytorch-labs/gpt-fast and Lightning-AI/litgpt.
"""

import os
import sys
import types
from collections.abc import Callable

import torch

MODELS = {
    "llama2-7b": (4096, 11008, 32, 32, 32, 32000),
    "llama2-13b": (5120, 13824, 40, 40, 40, 32000),
    "qwen2.5-7b": (3584, 18944, 28, 28, 4, 152064),
}
FIELDS = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")


def on_gpu(build: Callable[[], torch.nn.Module], dtype: torch.dtype) -> torch.nn.Module:
    """Returns a model that is made on the GPU in a dtype."""
    torch.set_default_dtype(dtype)
    with torch.device("cuda"):
        model = build()
    torch.set_default_dtype(torch.float32)
    return model


def pretend(*names: str) -> None:
    """Makes empty modules, for imports that a step does not need."""
    for name in names:
        module = sys.modules[name] = types.ModuleType(name)
        module.SentencePieceProcessor = module.load_tiktoken_bpe = module.qkv_reassemble = None


def transformers_decode(name: str) -> Callable[[], object]:
    """Decodes a token, greedily, with a cache."""
    import transformers

    kind = "Qwen2" if name.startswith("qwen") else "Llama"
    config = getattr(transformers, f"{kind}Config")(**dict(zip((*FIELDS, "vocab_size"), MODELS[name], strict=True)))
    model = on_gpu(lambda: getattr(transformers, f"{kind}ForCausalLM")(config).eval(), torch.bfloat16)
    state = [torch.ones(1, 64, dtype=torch.long, device="cuda"), None]

    @torch.no_grad()
    def step() -> None:
        out = model(state[0], past_key_values=state[1], use_cache=True)
        state[:] = out.logits[:, -1:].argmax(-1), out.past_key_values

    return step


def gpt_fast_decode(name: str) -> Callable[[], object]:
    """Decodes a token with gpt-fast, eager."""
    sys.path.insert(0, os.environ["GPT_FAST"])
    pretend("sentencepiece", "tiktoken", "tiktoken.load")
    import generate
    from model import Transformer
    from torch.nn.attention import SDPBackend, sdpa_kernel

    model = on_gpu(lambda: Transformer.from_name(name).eval(), torch.bfloat16)
    with torch.device("cuda"):
        model.setup_caches(max_batch_size=1, max_seq_length=512)
        token, position = torch.ones(1, 1, dtype=torch.int), torch.tensor([64], dtype=torch.int)

    @torch.no_grad()
    def step() -> None:
        with sdpa_kernel(SDPBackend.MATH):
            found, probabilities = generate.decode_one_token(model, token, position, temperature=0.8, top_k=200)
            position.add_(1)
            token.copy_(found.clone())
            probabilities.clone()

    return step


def litgpt_decode(name: str) -> Callable[[], object]:
    """Decodes a token with litgpt's model, sampled as its `generate` does."""
    root = f"{os.environ['LITGPT']}/litgpt"
    pretend("litgpt", "litgpt.scripts", "litgpt.scripts.convert_hf_checkpoint")
    sys.modules["litgpt"].__path__ = [root]
    sys.modules["litgpt.scripts"].__path__ = [f"{root}/scripts"]
    from litgpt.config import Config
    from litgpt.model import GPT

    model = on_gpu(lambda: GPT(Config.from_name(name)).eval(), torch.bfloat16)
    with torch.device("cuda"):
        model.max_seq_length = 640
        model.set_kv_cache(batch_size=1)
        token, position = torch.ones(1, dtype=torch.long), torch.tensor([64])

    @torch.no_grad()
    def step() -> None:
        logits = model(token.view(1, -1), position)[0, -1]
        values, at = torch.topk(logits, 50)
        logits = torch.full_like(logits, float("-inf")).scatter_(-1, at, values) / 0.8
        chances = torch.softmax(logits, -1)
        token.copy_(torch.argmax(chances / torch.empty_like(chances).exponential_(1), -1, keepdim=True))
        position.add_(1)

    return step


def transformers_train(name: str) -> Callable[[], object]:
    """Runs forward and backward of the benchmark in transformers' pull requests about attention: no optimizer."""
    import transformers

    name, attention = name.split("-")
    heads = {"embedding_size": 768, "hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12}
    wide = {"hidden_size": 1024, "ffn_dim": 4096, "num_hidden_layers": 24, "num_attention_heads": 16}
    kind, config, size, dtype = {
        "bert": ("BertLMHeadModel", transformers.BertConfig(is_decoder=True), (1, 256), torch.float32),
        "electra": ("ElectraForMaskedLM", transformers.ElectraConfig(**heads), (2, 64), torch.float16),
        "opt": (
            "OPTForCausalLM",
            transformers.OPTConfig(**wide, word_embed_proj_dim=512, do_layer_norm_before=False, use_cache=False),
            (1, 128),
            torch.float16,
        ),
    }[name]
    config._attn_implementation = attention
    model = on_gpu(lambda: getattr(transformers, kind)(config), dtype).train()
    ids = torch.ones(size, dtype=torch.long, device="cuda")

    def step() -> None:
        model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits.sum().backward()

    return step


KINDS = {
    "decode": transformers_decode,
    "gpt-fast": gpt_fast_decode,
    "litgpt": litgpt_decode,
    "train": transformers_train,
}
torch.cuda.set_device(0)
kind, _, name = sys.argv[1].partition(":")
step = KINDS[kind](name)
weight = torch.zeros(1, requires_grad=True)
end = torch.optim.SGD([weight])  # an optimizer ends a step, if a node of autograd was made before; it has no gradients
for _ in range(100):
    step()
    weight.mul(1)
    end.step()
