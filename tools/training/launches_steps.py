"""Steps of small models in frameworks, which `launches.py` records: ``launches_steps.py FUNCTION LAYERS MICRO WORD...``

A word is an option of the function. Widths are small: launches do not depend on them. What is not installed as it is on
a machine with a GPU has a stand-in that launches the same number of kernels: Transformer Engine (`te`).
"""

import os
import runpy
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.nn import functional as F

from nvcoll.dryrun.inside import host

SEQUENCE, VOCABULARY, WIDTH, STEPS, BF16 = 512, 4096, 512, 1000, torch.bfloat16
LAYERS, MICRO, WORDS = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
TP, TESTS = 1 + ("tp2" in WORDS), Path(__file__).parents[2] / "tests/dryrun/frameworks"
host.LEAST, host.MOST, host.LIMIT_S = 4, 150, 6.0  # the processor is measured for longer than in other dry runs


def hf():
    """A loop over a Llama of transformers: ddp, fsdp1 or fsdp2, compile, recompute, bf16, lora of three products."""
    from transformers import LlamaConfig, LlamaForCausalLM, masking_utils

    masking_utils.find_packed_sequence_indices = lambda positions: None  # it reads integers: 10 launches, and a wait
    sizes = dict(hidden_size=WIDTH, intermediate_size=1024, num_attention_heads=8, num_key_value_heads=4)
    model = LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=LAYERS, vocab_size=VOCABULARY))
    model.to("cuda", BF16 if {"bf16", "lora"} & {*WORDS} else torch.float32)
    dist.init_process_group("nccl")
    if "recompute" in WORDS:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    blocks = model.train().model.layers
    if "lora" in WORDS:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(target_modules=["q_proj", "v_proj", "o_proj"]))
    for each in blocks if "compile" in WORDS else ():
        each.compile()
    if "ddp" in WORDS:
        model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    if "fsdp1" in WORDS:
        how = dict(mixed_precision=MixedPrecision(BF16, torch.float32), use_orig_params=True)
        model = FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({type(blocks[0])}), **how)
    for each in (*blocks, model) if "fsdp2" in WORDS else ():
        fully_shard(each, mp_policy=MixedPrecisionPolicy(BF16, torch.float32))
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], fused=True)
    clip = getattr(model, "clip_grad_norm_", lambda norm: torch.nn.utils.clip_grad_norm_(model.parameters(), norm))
    for _ in range(STEPS):
        batch = torch.randint(0, VOCABULARY, (1, SEQUENCE), device="cuda")
        for micro_batch in range(MICRO):
            with model.no_sync() if "ddp" in WORDS and micro_batch < MICRO - 1 else nullcontext():
                with torch.autocast("cuda", BF16, enabled="ddp" in WORDS and "bf16" not in WORDS):
                    loss = model(input_ids=batch, labels=batch, use_cache=False).loss
                (loss / MICRO).backward()
        clip(1.0)
        optimizer.step()
        optimizer.zero_grad()


def titan():
    """The trainer of torchtitan on layers of Llama 3 8B: all activations kept, or selective; compile."""
    sys.path.insert(0, str(TESTS))
    from assets import write_torchtitan_assets
    from published_torchtitan import compiled, of_2024

    write_torchtitan_assets(folder := Path(tempfile.mkdtemp()))
    config = compiled() if "compile" in WORDS else of_2024()
    del config.model_spec.model.layers[LAYERS:]
    config.training.global_batch_size = MICRO * config.training.local_batch_size * int(os.environ["WORLD_SIZE"])
    config.activation_checkpoint = config.activation_checkpoint if "selective" in WORDS else None
    config.hf_assets_path, config.dump_folder = f"{folder}/tokenizer", f"{folder}/outputs"
    config.dataloader.dataset, config.dataloader.dataset_path = "c4_test", f"{folder}/texts"
    config.build().train()


class Attention(torch.nn.Module):
    """One kernel for attention, as Transformer Engine has."""

    def __init__(self, **_):
        super().__init__()

    def forward(self, *heads_and_more, **_):
        heads = [each.permute(1, 2, 0, 3) for each in heads_and_more[:3]]
        return F.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True).permute(2, 0, 1, 3).flatten(2)


def megatron():
    """Megatron-Core's GPT of the tests, with biases, or llama; te; tp2; recompute; local experts, on 8 ranks."""
    from megatron.core import transformer
    from megatron.core.models import backends, gpt
    from megatron.core.models.common.embeddings import rope_utils

    if "te" in WORDS:
        backends.LocalSpecProvider.core_attention = lambda _: Attention
        rope_utils.fused_apply_rotary_pos_emb = lambda rows, *_, **__: rows * 2.0
    more, of_model = dict(add_bias_linear=True, bias_dropout_fusion=True), {}
    if "llama" in WORDS:
        more = dict(normalization="RMSNorm", gated_linear_unit=True, activation_func=F.silu, num_query_groups=4)
        more |= dict(bias_activation_fusion=True, bias_dropout_fusion=True, apply_rope_fusion="te" in WORDS)
        of_model = dict(position_embedding_type="rope")
    if "recompute" in WORDS:
        more |= dict(recompute_granularity="full", recompute_method="uniform", recompute_num_layers=1)
    plain_config, plain_model = transformer.TransformerConfig, gpt.GPTModel
    transformer.TransformerConfig = lambda **given: plain_config(**given | more)
    gpt.GPTModel = lambda *args, **given: plain_model(*args, **given | of_model)
    sys.argv[1:] = ["--tensor-model-parallel-size", f"{TP}", "--layers", f"{LAYERS}", "--micro-batches", f"{MICRO}"]
    for experts in (8 * int(word) for word in WORDS if word.isdecimal()):
        sys.argv += ["--expert-model-parallel-size", "8", "--num-experts", f"{experts}"]
    runpy.run_path(str(TESTS / "scripts/megatron_gpt.py"))


torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
globals()[sys.argv[1]]()
