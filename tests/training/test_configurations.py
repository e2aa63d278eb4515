"""Configurations of frameworks, as the planner gets them: known dimensions, known layouts, and hostile files."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nvcoll
from nvcoll.training import configurations
from nvcoll.training.fields import TABLES
from nvcoll.training.models import models, software

LLAMA = {"hidden_act": "silu", "tie_word_embeddings": False}
DEEPSEEK_V3 = {
    **{"model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128},
    **{"num_key_value_heads": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048, "vocab_size": 129280},
    **{"n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3},
    **{"moe_layer_freq": 1, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64},
    **{"v_head_dim": 128, "max_position_embeddings": 163840, "num_nextn_predict_layers": 1},
    **{"rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096}, **LLAMA},
}


def config(kind, layers, hidden, heads, kv_heads, ffn, vocab, sequence=4096, **more):
    """The fields of `config.json` that most architectures share."""
    sizes = {"num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads, "vocab_size": vocab}
    more = {"intermediate_size": ffn, "num_key_value_heads": kv_heads, "max_position_embeddings": sequence, **more}
    return {"model_type": kind, **sizes, **more}


PUBLISHED = [
    (config("llama", 32, 4096, 32, 8, 14336, 128256, **LLAMA), 8.03, "llama3-8b"),
    (config("llama", 126, 16384, 128, 8, 53248, 128256, **LLAMA), 405.9, "llama3.1-405b"),
    (config("mistral", 32, 4096, 32, 8, 14336, 32000, sliding_window=4096, **LLAMA), 7.24, "mistral-7b"),
    (config("qwen2", 80, 8192, 64, 8, 29568, 152064, use_sliding_window=False, **LLAMA), 72.7, "qwen2.5-72b"),
    (config("qwen3", 64, 5120, 64, 8, 25600, 151936, head_dim=128, **LLAMA), 32.8, "qwen3-32b"),
    (config("gemma2", 42, 3584, 16, 8, 14336, 256000, head_dim=256, sliding_window=4096), 9.24, "gemma2-9b"),
    (config("phi3", 32, 3072, 32, 32, 8192, 32064, **LLAMA), 3.82, "phi-3-mini"),
    (config("olmo2", 40, 5120, 40, 40, 13824, 100352, **LLAMA), 13.7, "olmo2-13b"),
    (config("gpt_neox", 44, 6144, 64, 64, 24576, 50432, **LLAMA), 20.6, "gpt-neox-20b"),
    (
        {"model_type": "gpt2", "n_layer": 48, "n_embd": 1600, "n_head": 25, "vocab_size": 50257, "n_ctx": 1024},
        1.56,
        None,
    ),
    (config("opt", 64, 9216, 72, None, None, 50272, ffn_dim=36864), 66.0, "opt-66b"),
    ({"model_type": "bloom", "n_layer": 70, "hidden_size": 14336, "n_head": 112, "vocab_size": 250880}, 176.2, None),
    (config("falcon", 32, 4544, 71, None, None, 65024, multi_query=True), 6.92, "falcon-7b"),
    (
        config("falcon", 60, 8192, 128, None, None, 65024, num_kv_heads=8, new_decoder_architecture=True),
        *(41.3, "falcon-40b"),
    ),
    (
        {"model_type": "mpt", "n_layers": 48, "d_model": 7168, "n_heads": 64, "vocab_size": 50432, "max_seq_len": 8192}
        | {"attn_config": {"alibi": True}},
        *(30.0, None),
    ),
    (
        config("mixtral", 32, 4096, 32, 8, 14336, 32000, num_local_experts=8, num_experts_per_tok=2, **LLAMA),
        *(46.7, "mixtral-8x7b"),
    ),
    (
        config("qwen2_moe", 28, 3584, 28, 4, 18944, 151936, num_experts=64, num_experts_per_tok=8, **LLAMA)
        | {"moe_intermediate_size": 2560, "shared_expert_intermediate_size": 20480, "decoder_sparse_step": 1},
        *(57.4, None),
    ),
    (
        config("qwen3_moe", 94, 4096, 64, 4, 12288, 151936, head_dim=128, num_experts=128, num_experts_per_tok=8)
        | {"moe_intermediate_size": 1536, "decoder_sparse_step": 1, "mlp_only_layers": [], **LLAMA},
        *(235.1, "qwen3-235b-a22b"),
    ),
    (
        config("gpt_oss", 36, 2880, 64, 8, 2880, 201088, head_dim=64, num_local_experts=128, num_experts_per_tok=4)
        | {"sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 18, **LLAMA},
        *(116.8, "gpt-oss-120b"),
    ),
    (DEEPSEEK_V3, 671.0, "deepseek-v3"),
    (
        DEEPSEEK_V3 | {"model_type": "deepseek_v32", "index_n_heads": 64, "index_head_dim": 128, "index_topk": 2048},
        *(671.9, "deepseek-v3.2"),
    ),
    (
        config("minimax_m2", 62, 3072, 48, 8, 1536, 200064, head_dim=128, num_local_experts=256)
        | {"num_experts_per_tok": 8, "shared_intermediate_size": 0, **LLAMA},
        *(229.0, "minimax-m2"),
    ),
    (
        config("bailing_moe_v2", 20, 2048, 16, 4, 5120, 157184, head_dim=128, num_experts=256, **LLAMA)
        | {"num_experts_per_tok": 8, "moe_intermediate_size": 512, "num_shared_experts": 1, "first_k_dense_replace": 1},
        *(16.26, "ling-mini-2.0"),
    ),
    (
        config("hunyuan_v1_moe", 32, 4096, 32, 8, 3072, 128167, head_dim=128, num_experts=64)
        | {"moe_topk": [8] * 32, "moe_intermediate_size": [3072] * 32, "num_shared_expert": [1] * 32},
        *(80.4, "hunyuan-a13b"),
    ),
    (
        {"model_type": "llama4", "vision_config": {"hidden_size": 1408}, "text_config": {**LLAMA}}
        | {"text_config": config("llama4_text", 48, 5120, 40, 8, 8192, 202048, head_dim=128, attention_chunk_size=8192)}
        | {
            "num_local_experts": 128,
            "num_experts_per_tok": 1,
            "intermediate_size_mlp": 16384,
            "tie_word_embeddings": False,
        }
        | {"interleave_moe_layer_step": 2},
        *(400.0, None),
    ),
    (
        {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "hidden_size": 5376, "head_dim": 128}}
        | {"intermediate_size": 21504, "num_hidden_layers": 62, "num_attention_heads": 32, "num_key_value_heads": 16}
        | {"sliding_window": 1024},
        *(27.0, "gemma3-27b"),
    ),
]
"""Configurations with the parameters that their authors publish, in billions, and the model that is shipped."""


def read(values, **how):
    return configurations.from_text(json.dumps(values), "config.json", **how)


def parameters(model):
    """Counts the parameters of a model, embedding and head included, norms and biases not."""
    hidden, heads, matrices = model["hidden"], model["heads"], 3 if model["gated"] else 2
    attention = hidden * model["head_dim"] * 2 * (heads + model["kv_heads"])
    if mla := model.get("mla"):
        nope, rope, v = mla["nope"], mla["rope"], mla["v"]
        attention = mla["q"] * (hidden + heads * (nope + rope)) + hidden * (mla["kv"] + rope)
        attention += mla["kv"] * heads * (nope + v) + heads * v * hidden
    total = model["vocab"] * hidden * (1 if model["tied"] else 2)
    for layer in range(model["layers"]):
        experts = model.get("experts")
        total += attention
        if (
            experts
            and layer >= experts["dense_layers"]
            and (layer - experts["dense_layers"] + 1) % experts["every"] == 0
        ):
            total += (
                matrices * hidden * experts["ffn"] * (experts["count"] + experts["shared"]) + hidden * experts["count"]
            )
        else:
            total += matrices * hidden * model["ffn"]
    return total


@pytest.mark.parametrize(("values", "billions", "name"), PUBLISHED, ids=lambda it: it if isinstance(it, str) else None)
def test_parameters_of_a_model_are_those_that_its_authors_publish(values, billions, name):
    assert parameters(read(values).model) / 1e9 == pytest.approx(billions, rel=0.015 if name == "gemma3-27b" else 0.01)


@pytest.mark.parametrize(("values", "name"), [(one, name) for one, _, name in PUBLISHED if name])
def test_dimensions_of_a_model_are_those_of_the_model_that_is_shipped(values, name):
    model = read(values).model
    for key in (
        "layers",
        "hidden",
        "heads",
        "kv_heads",
        "head_dim",
        "gated",
        "tied",
        "experts",
        "mla",
        "indexer",
        "window",
    ):
        shipped = models()[name].get(key)
        assert model.get(key) == shipped, (key, model.get(key), shipped)


NEMOTRON_NANO = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"

QWEN = {"num_experts": 512, "num_experts_per_tok": 10, "head_dim": 256}

HYBRIDS = [
    (
        config("qwen3_next", 48, 2048, 16, 2, 5632, 151936, **QWEN, tie_word_embeddings=False)
        | {"moe_intermediate_size": 512, "shared_expert_intermediate_size": 512},
        "qwen3-next-80b-a3b",
    ),
    (
        {"model_type": "qwen3_5_moe", "tie_word_embeddings": False, "vision_config": {"depth": 27}}
        | {
            "text_config": config("qwen3_5_moe_text", 60, 4096, 32, 2, None, 248320, **QWEN)
            | {"moe_intermediate_size": 1024, "shared_expert_intermediate_size": 1024, "linear_num_value_heads": 64}
            | {"layer_types": [*["linear_attention"] * 3, "full_attention"] * 15, "attn_output_gate": True}
            | {"intermediate_size": 1024, "mtp_num_hidden_layers": 1}
        },
        "qwen3.5-397b-a17b",
    ),
    (
        config("nemotron_h", 52, 2688, 32, 2, 1856, 131072, head_dim=128, tie_word_embeddings=False)
        | {"hybrid_override_pattern": NEMOTRON_NANO, "ssm_state_size": 128, "mamba_num_heads": 64}
        | {"mamba_head_dim": 64, "n_groups": 8, "n_routed_experts": 128, "num_experts_per_tok": 6}
        | {"n_shared_experts": 1, "moe_intermediate_size": 1856, "moe_shared_expert_intermediate_size": 3712},
        "nemotron3-nano-30b-a3b",
    ),
    (
        config("granitemoehybrid", 40, 4096, 32, 8, 768, 100352, tie_word_embeddings=True, num_local_experts=72)
        | {"layer_types": [*["mamba"] * 5, "attention", *["mamba"] * 4] * 4, "num_experts_per_tok": 10}
        | {"mamba_d_state": 128, "mamba_n_heads": 128, "mamba_d_head": 64, "shared_intermediate_size": 1536},
        "granite4-h-small",
    ),
]


@pytest.mark.parametrize(("values", "name"), HYBRIDS, ids=lambda it: it if isinstance(it, str) else None)
def test_a_hybrid_has_the_layers_and_states_of_the_model_that_is_shipped(values, name):
    model, shipped = read(values).model, models()[name]
    same = set(model) & set(shipped) - {"name", "pattern", "sequence"}
    assert {"recurrent", "layers", "experts", "ffn"} <= same
    assert {key: model[key] for key in same} == {key: shipped[key] for key in same}
    assert model.get("output_gate") == shipped.get("output_gate")
    letters = [(one["pattern"] * one["layers"])[: one["layers"]] for one in (model, shipped)]
    assert letters[0] == letters[1]


@pytest.mark.parametrize(
    ("values", "window"),
    [
        (config("mistral", 32, 4096, 32, 8, 14336, 32000, sliding_window=None), None),
        (config("qwen2", 28, 3584, 28, 4, 18944, 152064, use_sliding_window=True, sliding_window=64), 1),
        (
            config(
                "qwen2", 28, 3584, 28, 4, 18944, 1, use_sliding_window=True, sliding_window=64, max_window_layers=28
            ),
            None,
        ),
        (config("cohere2", 32, 4096, 32, 8, 14336, 256000, sliding_window=64), 4),
        (config("olmo3", 2, 4096, 32, 8, 11008, 1, sliding_window=64, layer_types=["full_attention"] * 2), None),
        (config("olmo3", 2, 4096, 32, 8, 11008, 1, sliding_window=64, layer_types=["sliding_attention"] * 2), 1),
    ],
)
def test_a_window_has_the_layers_that_the_file_says(values, window):
    assert (read(values).model.get("window") or {}).get("every") == window


def test_what_transformers_fills_in_and_what_is_not_read_is_said():
    notes = "\n".join(read(PUBLISHED[-1][0]).notes)
    assert "`tie_word_embeddings` is True, the default of gemma3_text" in notes
    assert "multi-token prediction" in "\n".join(read(DEEPSEEK_V3).notes)
    assert "4096 tokens; the longest is 163840" in "\n".join(read(DEEPSEEK_V3).notes)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model_type": "mamba2"}, "`model_type` is 'mamba2', which is not known"),
        ({"architectures": ["LlamaForCausalLM"]}, "`model_type` is ''"),
        ({"model_type": "llama", "num_hidden_layers": 2}, "`hidden_size or n_embd or d_model` is missing"),
        (config("llama", 2, 64, 4, 4, 256, "many"), "`vocab_size` is 'many', a number from 1"),
        (
            config("qwen3", 2, 64, 4, 4, 256, 9, sliding_window=8, layer_types=["linear_attention"] * 2),
            "full_attention",
        ),
        ({"model_type": "jamba"}, "`model_type` is 'jamba': it has Mamba-1, which nvcoll does not know"),
        ({**DEEPSEEK_V3, "index_topk": 2048, "index_topk_freq": 4}, "an indexer that layers share"),
        (
            config("nemotron_h", 4, 64, 4, 4, 256, 9, hybrid_override_pattern="M*"),
            "2 kinds of layers for 4 layers",
        ),
        (config("qwen3_next", 1, 64, 4, 4, 256, 9, layer_types=["kda"]), "'kda', one of linear_attention"),
        ({"zero_optimization": {"stage": 4}}, "`zero_optimization.stage` is '4', one of 0, 1, 2, 3"),
        ({"hello": 1}, "none of the formats that are read: config.json of transformers"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_with_the_field(values, message):
    with pytest.raises(nvcoll.InvalidArgument, match=r"config\.json") as refused:
        read(values)
    assert message in str(refused.value)


MEGATRON = r"""
#!/bin/bash
# the batch doesn't change with TP
GPUS_PER_NODE=8
TP=${TP:-8}; export PP=4
if [ $TP = 4 ]; then PP=2; fi
FP8="no"
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes 64  # all of the cluster
)
MODEL_ARGS="
    --num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 \
    --num-attention-heads 64 --group-query-attention --num-query-groups 8 \
    --seq-length 8192 --max-position-embeddings 8192 --position-embedding-type rope \
    --swiglu --untie-embeddings-and-output-weights --vocab-size 128256
"
if [ "$FP8" == "yes" ]; then
    MODEL_ARGS+=" --fp8-format hybrid"
else
    MODEL_ARGS+=" --bf16"
fi
for I in 1 2; do
    TP=1
done
PARALLEL_ARGS=(
    --tensor-model-parallel-size ${TP}
    --pipeline-model-parallel-size=$PP
    --num-layers-per-virtual-pipeline-stage 4
    --sequence-parallel
    --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather
    "--micro-batch-size 1"
    --global-batch-size 1024
    --recompute-granularity full --recompute-method block --recompute-num-layers 5
)
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py ${MODEL_ARGS} "${PARALLEL_ARGS[@]}"
"""


def test_a_script_of_megatron_says_model_layout_and_software():
    found = configurations.from_text(MEGATRON)
    shipped = models()["llama3-70b"]
    assert all(found.model[key] == shipped[key] for key in ("layers", "hidden", "heads", "kv_heads", "ffn", "gated"))
    assert (found.model["vocab"], found.model["tied"], found.model["positions"]) == (129024, False, "rotary")
    assert found.layout == {
        **{"tp": 8, "sequence_parallel": True, "pp": 4, "vp": 5, "schedule": "interleaved"},
        **{"cp": 1, "ep": 1, "dp": 16, "zero": 1, "micro_batch": 1, "global_batch": 1024},
        **{"sequence": 8192, "dtype": "bf16", "recompute": {"gemm": 0.25, "attention": 0.25, "elementwise": 0.25}},
    }
    assert (found.software, found.software_overrides) == (
        *("megatron-core",),
        {"overlaps_tensor": False, "overlaps_data": True},
    )


GATED_DELTA_NET = {
    **{"rule": "delta", "key_heads": 16, "value_heads": 32, "key_dim": 128, "value_dim": 128},
    "convolution": 4,
}

BASE = (
    "--num-layers 12 --hidden-size 768 --num-attention-heads 12 "
    "--seq-length 1024 --micro-batch-size 2 --vocab-size 50257"
)


@pytest.mark.parametrize(
    ("flags", "part", "expected"),
    [
        (
            "",
            "layout",
            {"dtype": "tf32", "zero": 0, "recompute": "none"},
        ),
        (
            "",
            "model",
            {"ffn": 3072, "gated": False, "tied": True, "vocab": 50304, "positions": "learned", "head_dim": 64},
        ),
        ("--swiglu", "model", {"gated": True, "ffn": 2048}),
        ("--use-torch-fsdp2 --fp8-format e4m3 --bf16", "layout", {"zero": 3, "dtype": "fp8"}),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads", "layout", {"zero": 2}),
        ("--deepspeed --zero-stage 1 --fp16", "layout", {"zero": 1, "dtype": "fp16"}),
        ("--recompute-activations", "layout", {"recompute": "selective"}),
        ("--checkpoint-activations", "layout", {"recompute": "full"}),
        (
            "--num-virtual-stages-per-pipeline-rank 3 --pipeline-model-parallel-size 2",
            "layout",
            {"vp": 3, "pp": 2},
        ),
        (
            "--context-parallel-size 2 --use-tp-pp-dp-mapping",
            "layout",
            {"cp": 2, "dp": 4, "order": "tp-cp-pp-dp"},
        ),
        ("--use-distributed-optimizer --num-distributed-optimizer-instances 2", "layout", {"shard_ranks": 4}),
        (
            "--tp-comm-overlap --grad-reduce-in-bf16",
            "software_overrides",
            {"overlaps_tensor": True, "gradient_bytes": 2},
        ),
        ("--window-size 127,0 --window-attn-skip-freq 2", "model", {"window": {"tokens": 128, "every": 2}}),
        (
            "--num-experts 64 --moe-router-topk 6 --moe-ffn-hidden-size 96 --moe-shared-expert-intermediate-size 192 "
            "--moe-layer-freq [0]*3+[1]*9",
            "model",
            {"experts": {"count": 64, "top_k": 6, "ffn": 96, "shared": 2, "dense_layers": 3, "every": 1}},
        ),
        (
            "--num-experts 8 --moe-layer-freq ([0,1]*6)",
            "model",
            {"experts": {"count": 8, "top_k": 2, "ffn": 3072, "shared": 0, "dense_layers": 0, "every": 2}},
        ),
        (
            "--experimental-attention-variant gated_delta_net --linear-attention-freq 4 --attention-output-gate",
            "model",
            {"pattern": "mmma" * 3, "output_gate": True, "recurrent": GATED_DELTA_NET},
        ),
        (
            "--experimental-attention-variant gated_delta_net --linear-attention-freq ([1]*2+[0])*4",
            "model",
            {"pattern": "mma" * 4, "recurrent": GATED_DELTA_NET},
        ),
        (
            "--hybrid-override-pattern M-M*-M-M-M*- --mamba-head-dim 32 --mamba-num-groups 2",
            "model",
            {
                "pattern": "M-M*-M-M-M*-",
                "recurrent": {
                    **{"rule": "scan", "key_heads": 2, "value_heads": 48, "key_dim": 128, "value_dim": 32},
                    "convolution": 4,
                },
            },
        ),
        (
            "--multi-latent-attention --experimental-attention-variant dsa --dsa-indexer-n-heads 64 "
            "--dsa-indexer-head-dim 128 --dsa-indexer-topk 2048",
            "model",
            {"indexer": {"heads": 64, "head_dim": 128, "keys": 2048}},
        ),
        ("--hybrid-layer-pattern M-M*-|M-M-M*-/*E", "model", {"pattern": "M-M*-M-M-M*-"}),
        (
            "--spec megatron.core.models.mamba.mamba_layer_specs mamba_stack_spec --hybrid-attention-ratio 0.17 "
            "--hybrid-mlp-ratio 0.5",
            "model",
            {"pattern": "-M-*M--M-*M-"},
        ),
        (
            "--multi-latent-attention --kv-lora-rank 512 --q-lora-rank 1536",
            "model",
            {"mla": {"q": 1536, "kv": 512, "nope": 128, "rope": 64, "v": 128}, "head_dim": 192},
        ),
    ],
)
def test_flags_of_megatron_mean_what_megatron_says(flags, part, expected):
    found = getattr(configurations.from_text(f"{BASE} {flags}", gpus=8), part)
    assert {key: found[key] for key in expected} == expected


def test_layers_that_a_script_takes_from_elsewhere_are_named():
    notes = configurations.from_text(f"{BASE} --spec my.models get_spec", gpus=8).notes
    assert "the layers of `--spec my.models` are not known: attention and MLP are planned" in notes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            BASE + " --tensor-model-parallel-size ${TP}",
            "is '${TP}', a number from 1 to 2147483647 was expected: assign",
        ),
        (BASE + " --pipeline-model-parallel-size 3", "8 GPUs are not a multiple of TP x PP x CP = 3"),
        (BASE.replace("--vocab-size 50257", ""), "`vocab-size` is missing"),
        (BASE + " --num-experts 4 --moe-layer-freq [0,1,1]*4", "not 12 regular layers"),
        (BASE + " --experimental-attention-variant kda", "is 'kda', one of gated_delta_net, dsa was expected"),
        (BASE + " --experimental-attention-variant gated_delta_net", "needs `--linear-attention-freq`"),
        (BASE + " --num-experts 8 --moe-latent-size 64", "experts on latents are not known"),
        (BASE + " --linear-attention-freq 4", "needs `--experimental-attention-variant gated_delta_net`"),
        (BASE + " --hybrid-override-pattern M*-", "the pattern has 3 layers, not 12"),
        (BASE + " --hybrid-override-pattern MMMMMMMMMMMD", "layers D, of M*-E were expected"),
        (BASE + " --hybrid-attention-ratio 2", "a number from 0 to 1 was expected"),
        (BASE + " --num-layers-per-virtual-pipeline-stage 5", "do not divide 12 layers"),
        ("if [ -f a ]\n" * 400 + "A=--num-layers", "it is longer than any script, variables included"),
        ("A=--num-layers$A\n" + "A=$A$A$A$A\n" * 40, "it is longer than any script, variables included"),
    ],
)
def test_arguments_that_contradict_are_refused(text, message):
    with pytest.raises(nvcoll.InvalidArgument) as refused:
        configurations.from_text(text, gpus=8)
    assert message in str(refused.value)


TORCHTITAN = """
[model]
name = "llama3"
flavor = "405B"
converters = ["float8"]
[training]
local_batch_size = 4
seq_len = 8192
[parallelism]
data_parallel_replicate_degree = 2
data_parallel_shard_degree = -1
tensor_parallel_degree = 8
enable_async_tensor_parallel = true
pipeline_parallel_degree = 4
pipeline_parallel_schedule = "Interleaved1F1B"
[activation_checkpoint]
mode = "selective"
selective_ac_option = "op"
[compile]
enable = true
"""


def test_a_job_of_torchtitan_says_model_layout_and_software():
    found = configurations.from_text(TORCHTITAN, gpus=256)
    assert (found.model, found.software) == ("llama3.1-405b", "torchtitan-compile")
    assert found.software_overrides == {"overlaps_tensor": True}
    assert found.layout == {
        **{"tp": 8, "sequence_parallel": True, "pp": 4, "vp": 2, "schedule": "interleaved"},
        **{"cp": 1, "ep": 1, "dp": 8, "zero": 3, "shard_ranks": 4, "micro_batch": 1},
        **{"global_batch": 32, "sequence": 8192, "dtype": "fp8"},
        **{"recompute": {"gemm": 0.5, "attention": 0.0, "elementwise": 1.0}},
    }


def test_a_job_of_torchtitan_needs_gpus_and_a_model_that_is_shipped():
    with pytest.raises(nvcoll.InvalidArgument, match="does not say the number of GPUs: pass `gpus`"):
        configurations.from_text(TORCHTITAN)
    with pytest.raises(nvcoll.InvalidArgument, match="make 192 ranks, but there are 200 GPUs"):
        configurations.from_text(TORCHTITAN, gpus=200)
    with pytest.raises(nvcoll.InvalidArgument, match=r"`model\.flavor` is '9B', one of 8B, 70B, 405B"):
        configurations.from_text(TORCHTITAN.replace("405B", "9B"), gpus=256)


def test_older_jobs_of_torchtitan_have_sizes_elsewhere():
    text = '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nbatch_size = 1\ntensor_parallel_degree = 2\n'
    found = configurations.from_text(text + '[activation_checkpoint]\nmode = "full"\n', gpus=8)
    assert (found.layout["tp"], found.layout["dp"], found.layout["global_batch"]) == (2, 4, 4)
    assert found.layout["recompute"] == "full"


def test_models_and_software_that_readers_name_are_shipped():
    named = [name for flavors in TABLES["torchtitan"]["models"].values() for name in flavors.values()]
    assert [name for name in named if name not in models()] == []
    profiles = ("megatron", "megatron-core", "megatron-deepspeed", "torchtitan", "torchtitan-compile", "deepspeed-zero")
    assert [name for name in profiles if name not in software()] == []
    fields = {field for row in TABLES["megatron"]["software"].values() for field in row}
    assert fields - set().union(*software().values(), {"overlaps_experts", "splits_sends"}) == set()


def test_deepspeed_says_batch_precision_and_sharding():
    values = {
        **{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4, "train_batch_size": "auto"},
        **{"zero_optimization": {"stage": 3, "overlap_comm": True, "offload_param": {"device": "cpu"}}},
        **{"bf16": {"enabled": True}, "fp16": {"enabled": "auto"}},
    }
    found = read(values, gpus=16)
    assert found.layout == {
        **{"zero": 3, "offload": "parameters", "tp": 1, "dtype": "bf16", "dp": 16},
        **{"micro_batch": 2, "global_batch": 128},
    }
    assert found.model is None
    assert found.notes == ["all GPUs are data-parallel: 16 ranks"]


@pytest.mark.parametrize(("text", "gpus"), [(MEGATRON, 512), (TORCHTITAN, 256), (BASE + " --bf16", 8)])
def test_the_planner_takes_what_a_file_says(text, gpus):
    words = configurations.from_text(text, gpus=gpus).words()
    assert nvcoll.training.plan(on=f"hgx-h100x{gpus // 8}+ib-ndr-8" if gpus > 8 else "hgx-h100", **words).gpus == gpus


def test_the_words_of_a_file_plan_the_same_step():
    found = configurations.from_text(MEGATRON)
    words = found.words()
    assert (words["tp"], words["pp"], words["vp"], words["dp"], words["zero"]) == (8, 4, 5, 16, 1)
    machine = nvcoll.training.Machine("hgx-h100x64+ib-ndr-8")
    assert machine.plan(**words).layout == found.layout | {"order": "tp-cp-dp-pp", "shard_ranks": None}
    assert read({"zero_optimization": {}, "train_batch_size": 8}).words() == {
        **{"tp": 1, "zero": 0, "global_batch": 8, "software": "deepspeed-zero"},
        **{"overrides": {"overlaps_data": True}},
    }


def test_a_file_is_recognised_by_its_content(tmp_path):
    path = tmp_path / "anything"
    path.write_text(json.dumps(DEEPSEEK_V3))
    assert configurations.read(path).model["layers"] == 61
    with pytest.raises(FileNotFoundError):
        configurations.read(tmp_path / "absent")
    path.write_bytes(b"\xff" * (configurations.LARGEST_FILE + 1))
    with pytest.raises(nvcoll.InvalidArgument, match="bytes, at most"):
        configurations.read(path)


TABLE = TABLES["huggingface"]
ROWS = (*TABLE["model"].values(), *TABLE["experts"].values())
WORDS = sorted({name for names in (*TABLE["names"].values(), *(row["names"] for row in ROWS)) for name in names})
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=3),
    max_leaves=5,
)


def refused_or_read(text):
    try:
        found = configurations.from_text(text, gpus=8)
    except nvcoll.InvalidArgument:
        return
    json.dumps([found.model, found.layout, found.notes])


@given(st.text(), st.sampled_from(["", "{", "[model]\nflavor=", "--num-layers ", "A=(\n", 'if [ "$A" == "']))
def test_random_text_is_refused_or_read(text, start):
    refused_or_read(start + text)


@given(st.data(), st.sampled_from([DEEPSEEK_V3, *(values for values, *_ in PUBLISHED)]))
def test_a_configuration_with_a_random_field_is_refused_or_read(data, values):
    inner = values.get("text_config", values)
    extra = [
        "layer_types",
        "rope_scaling",
        "text_config",
        "attn_config",
        "multi_query",
        "sliding_window",
        "q_lora_rank",
    ]
    name = data.draw(st.sampled_from(sorted({*inner, *extra})))
    refused_or_read(json.dumps({**values, name: data.draw(VALUES)}))


@given(VALUES, st.sampled_from(["zero_optimization", "train_batch_size", "bf16", "tensor_parallel"]))
def test_a_random_field_of_deepspeed_is_refused_or_read(value, name):
    refused_or_read(json.dumps({"train_micro_batch_size_per_gpu": 1, name: value}))


@given(st.sampled_from(MEGATRON.split()), st.text(max_size=9) | st.integers().map(str))
def test_a_script_with_a_random_word_is_refused_or_read(word, other):
    refused_or_read(MEGATRON.replace(word, other, 1))


@given(
    st.sampled_from(TORCHTITAN.split("\n")),
    st.integers() | st.sampled_from(['""', "[]", "{}", "true", "1.5", "0x" + "f" * 9000]),
)
def test_a_job_with_a_random_value_is_refused_or_read(line, value):
    refused_or_read(TORCHTITAN.replace(line, f"{line.partition('=')[0]}= {value}", 1))


def test_deep_nesting_is_refused():
    for start in ('{"model_type":' + "[" * 100_000, "a = " + "[" * 100_000):
        with pytest.raises(nvcoll.InvalidArgument, match="none of the formats"):
            configurations.from_text(start)
