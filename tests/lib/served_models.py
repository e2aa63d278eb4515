"""Small models that model servers serve in tests, and what closed forms say of their products."""

import json

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD, INNER, WORDS = 2, 1024, 16, 4, 64, 2816, 32000
DENSE = {
    **{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16"},
    **{"num_hidden_layers": LAYERS, "hidden_size": HIDDEN, "num_attention_heads": HEADS, "head_dim": HEAD},
    **{"num_key_value_heads": KV_HEADS, "intermediate_size": INNER, "vocab_size": WORDS, "hidden_act": "silu"},
    **{"max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "rope_theta": 10000.0},
}
EXPERTS, OF_TOKEN, OF_EXPERT = 16, 4, 512
MIXTURE = DENSE | {
    **{"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": EXPERTS},
    **{"num_experts_per_tok": OF_TOKEN, "moe_intermediate_size": OF_EXPERT, "norm_topk_prob": True},
    **{"decoder_sparse_step": 1, "mlp_only_layers": []},
}
REQUESTS, PROMPT = 4, 1024
"""What a server that waits gets by default."""


def issued(recording, stage=0):
    return json.loads(recording.step.to_json())["streams"]["ranks"][stage]["issued"]


def flops_of_products(recording, stage=0):
    rows = [op for op in issued(recording, stage) if op["work"] == "gemm"]
    return sum(2 * op["m"] * op["n"] * op["k"] * op.get("batch", 1) for op in rows)


def closed_form(tokens, rows, inner, ranks=1, layers=LAYERS):
    """FLOPs of products of a rank: of all layers for some tokens, and of the logits of some rows."""
    of_layer = HIDDEN * HEAD * (2 * HEADS + 2 * KV_HEADS) + inner
    return 2 * (tokens * layers * of_layer + rows * HIDDEN * WORDS) / ranks
