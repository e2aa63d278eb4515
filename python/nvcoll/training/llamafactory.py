"""Reads a configuration of LLaMA-Factory, YAML of both of its formats: model, batch, sequence, sharding.

Names and defaults are from `src/llamafactory/hparams` and `src/llamafactory/v1/config`. Rows of data are as long as
`cutoff_len`. What `accelerate launch` gets is in another file: pass its options, as ``--zero 3``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nvcoll.training import finetuning
from nvcoll.training.fields import TABLES, Configuration, Fields, Gpus

TABLE: Final = TABLES["llamafactory"]
MODEL: Final = ("model_name_or_path", "model")
MICRO_BATCH: Final = ("per_device_train_batch_size", "micro_batch_size")


def is_read(values: object) -> bool:
    """Says whether this is a configuration of LLaMA-Factory."""
    if not isinstance(values, dict):
        return False
    return "model_name_or_path" in values or {"model", "train_dataset", "micro_batch_size"} <= values.keys()


def read(values: Mapping[str, object], where: str, gpus: Gpus) -> Configuration:
    """Returns what a configuration says; `gpus` as of `nvcoll.training.configurations.read`.

    Raises:
        InvalidArgument: a field is missing or wrong, or the JSON of DeepSpeed is not there.
    """
    fields, notes = Fields(values, where), list[str]()
    model = str(fields.first(*MODEL))
    spread, adapter = fields.part("dist_config"), fields.part("peft_config")
    kind = spread.typed(str, "name", "")
    layout: dict[str, object] = {"cp": fields.number("cp_size", "sequence_parallel_size", default=1), "zero": 0}
    layout["ep"] = spread.number("ep_size", default=1)
    software = "fsdp2"
    if name := fields.typed(str, "deepspeed", "") or spread.typed(str, "config_file", ""):
        found = finetuning.deepspeed_file(name, where, gpus)
        layout, software = {**layout, **finetuning.sharding(found)}, "deepspeed-zero"
        notes += found.notes
    elif kind.startswith("fsdp") or fields.first("fsdp"):
        layout["zero"] = 3
    data = finetuning.ranks(fields, gpus, fields.number("cp_size", "sequence_parallel_size", default=1))
    micro, total = fields.number(*MICRO_BATCH, default=8), fields.first("global_batch_size")
    layout |= finetuning.batch(micro, fields.number("gradient_accumulation_steps", default=1), data)
    layout |= {"global_batch": fields.number("global_batch_size")} if total else {}
    layout["sequence"] = fields.number("cutoff_len", default=2048)
    again = not fields.typed(bool, "disable_gradient_checkpointing", False)
    layout["recompute"] = "full" if again else "none"
    halves = next((one for one in ("bf16", "fp16") if fields.first(one)), "bf16" if "model" in values else "tf32")
    layout["dtype"] = "fp8" if fields.first("fp8") else halves
    how = fields.typed(str, "finetuning_type", adapter.typed(str, "name", "full" if "model" in values else "lora"))
    rank = (fields.number("lora_rank", default=0, least=0) or adapter.number("r", default=8)) if how == "lora" else None
    bits = fields.number("quantization_bit", default=0, least=0)
    four = "nf4-dq" if fields.typed(bool, "double_quantization", True) else "nf4"
    named_weights = fields.part("quant_config").first("name")
    notes += [f"weights in {named_weights} are not priced: they count as bf16"] if named_weights else []
    named = [name for name in TABLE["optimizers"] if fields.first(f"use_{name}")]
    optimizer = [*named, str(fields.first("optim") or fields.part("optim_config").first("name") or "")][0]
    offload = str(layout.get("offload", "")).split(",") if "offload" in layout else []
    layout |= finetuning.tuned(
        notes,
        rank=rank,
        targets=fields.first("lora_target") or adapter.first("target_modules"),
        is_dora=fields.first("use_dora") is True,
        weights={4: four, 8: "int8"}.get(bits),
        optimizer=optimizer,
        offload=offload,
    )
    layout |= {"pure_bf16": True} if fields.first("pure_bf16") and not rank else {}
    layout |= finetuning.fused_loss(notes) if fields.first("enable_liger_kernel") else {}
    notes += ["frozen weights are not priced: all weights train"] if how == "freeze" else []
    notes += [f"weights in {bits} bits are not priced: they count as bf16"] if bits not in (0, 4, 8) else []
    notes += [] if how in ("lora", "freeze", "full") else [f"`{how}` is not priced: all weights train"]
    stage = fields.typed(str, "stage", "sft")
    notes += [] if stage in ("pt", "sft") else [f"the stage {stage} is not priced: it counts as supervised training"]
    notes += fields.not_read(TABLE["without_effect"])
    return Configuration(model, layout, software, notes=notes)
