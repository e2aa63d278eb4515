"""Reads a configuration of axolotl, YAML: model, batch, sequence, parallel sizes, FSDP or DeepSpeed.

Names and defaults are from `src/axolotl/utils/schemas`. Rows of data are as long as `sequence_len`, packed or padded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nvcoll.training import finetuning
from nvcoll.training.fields import TABLES, Configuration, Fields, Gpus

TABLE: Final = TABLES["axolotl"]


def is_read(values: object) -> bool:
    """Says whether this is a configuration of axolotl."""
    return isinstance(values, dict) and "base_model" in values and "micro_batch_size" in values


def read(values: Mapping[str, object], where: str, gpus: Gpus) -> Configuration:
    """Returns what a configuration says; `gpus` as of `nvcoll.training.configurations.read`.

    Raises:
        InvalidArgument: a field is missing or wrong, or the JSON of DeepSpeed is not there.
    """
    fields, notes = Fields(values, where), list[str]()
    model = fields.typed(str, "base_model", "")
    sizes = fields.sizes(TABLE["layout"])
    layout: dict[str, object] = {**sizes, "zero": 0}
    software = "fsdp2"
    if name := fields.typed(str, "deepspeed", ""):
        found = finetuning.deepspeed_file(name, where, gpus)
        layout, software = {**layout, **finetuning.sharding(found)}, "deepspeed-zero"
        notes += found.notes
    elif fields.first("fsdp", "fsdp_config", "dp_shard_size"):
        layout |= finetuning.fsdp(fields.part("fsdp_config"), notes)
    shards = fields.number("dp_shard_size", default=1)
    layout |= {"shard_ranks": shards} if fields.number("dp_replicate_size", default=1) > 1 and shards > 1 else {}
    micro = fields.number("micro_batch_size")
    total = fields.number("batch_size", default=micro)
    steps = fields.number("gradient_accumulation_steps", default=max(1, total // micro))
    layout |= finetuning.batch(micro, steps, finetuning.ranks(fields, gpus, sizes["tp"] * sizes["cp"]))
    layout["recompute"] = "full" if fields.first("gradient_checkpointing") else layout.get("recompute", "none")
    layout["dtype"] = next((one for one in ("fp8", "bf16", "fp16") if fields.first(one)), "tf32")
    adapter = fields.typed(str, "adapter", "")
    rank = fields.number("lora_r", default=8) if adapter in ("lora", "qlora") else None
    is_plain = layout["zero"] == 0 and software == "fsdp2"
    if layout["dtype"] == "bf16" and is_plain and not adapter and not fields.first("unfrozen_parameters"):
        layout["pure_bf16"] = True
        notes.append("without FSDP and DeepSpeed parameters are trained in bf16")
    offload = str(layout.get("offload", "")).split(",") if "offload" in layout else []
    layout |= finetuning.tuned(
        notes,
        rank=rank,
        targets="all" if fields.first("lora_target_linear") else fields.first("lora_target_modules"),
        is_dora=fields.first("peft_use_dora") is True,
        weights="nf4-dq" if fields.first("load_in_4bit") else "int8" if fields.first("load_in_8bit") else None,
        optimizer=fields.typed(str, "optimizer", ""),
        offload=[*offload, *(["activations"] if fields.first("activation_offloading") else [])],
    )
    notes += ["frozen weights are not priced: all weights train"] if fields.first("unfrozen_parameters") else []
    notes += [] if rank or not adapter else [f"the adapter {adapter} is not priced: all weights train"]
    is_fused = "cut_cross_entropy" in str(fields.first("plugins")) or fields.first("liger_fused_linear_cross_entropy")
    layout |= finetuning.fused_loss(notes) if is_fused or fields.first("cut_cross_entropy") else {}
    notes += fields.not_read(TABLE["without_effect"])
    return Configuration(model, layout, software, notes=notes)
