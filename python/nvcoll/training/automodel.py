"""Reads a recipe of NeMo Automodel, YAML: model, batch, sequence, parallel sizes, adapters.

Names are from `examples/llm_finetune` and `examples/benchmark` of NVIDIA-NeMo/Automodel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nvcoll.training import finetuning
from nvcoll.training.fields import TABLES, Configuration, Fields, Gpus
from nvcoll.training.huggingface import USUAL_SEQUENCE
from nvcoll.training.models import models, shipped

TABLE: Final = TABLES["automodel"]


def is_read(values: object) -> bool:
    """Says whether this is a recipe of NeMo Automodel."""
    return isinstance(values, dict) and "step_scheduler" in values and "model" in values


def read(values: Mapping[str, object], where: str, gpus: Gpus) -> Configuration:
    """Returns what a recipe says; `gpus` as of `nvcoll.training.configurations.read`.

    Raises:
        InvalidArgument: a field is missing or wrong.
    """
    fields, notes = Fields(values, where), list[str]()
    model = fields.part("model")
    nested = model.part("config") if isinstance(model.values.get("config"), dict) else model
    names = [one.first("pretrained_model_name_or_path") for one in (model, nested)]
    named = next((one for one in (*names, model.first("config")) if isinstance(one, str)), None)
    steps, spread = fields.part("step_scheduler"), fields.part("distributed")
    absent = {name for name, value in spread.values.items() if value == "none"}
    spread = Fields({name: value for name, value in spread.values.items() if name not in absent}, where)
    sizes = spread.sizes(TABLE["layout"])
    micro = steps.number("local_batch_size", default=1)
    layout: dict[str, object] = {**sizes, "global_batch": steps.number("global_batch_size"), "micro_batch": micro}
    strategy = spread.typed(str, "strategy", "fsdp2")
    gathers_once = sizes["pp"] > 1 and spread.first("reshard_after_forward") is not True
    layout["zero"] = 0 if strategy == "ddp" else 2 if gathers_once else 3
    notes += ["stages of a pipeline gather parameters once in a step: ZeRO 2"] if gathers_once else []
    layout["sequence_parallel"] = spread.typed(bool, "sequence_parallel", False) and sizes["tp"] > 1
    layout["recompute"] = "full" if spread.first("activation_checkpointing") is True else "none"
    known = models()[name] if named and (name := shipped(named)) else {"sequence": USUAL_SEQUENCE, "layers": 0}
    if sizes["pp"] > 1:
        stages = Fields({**fields.part("autopipeline").values, **spread.part("pipeline").values}, where)
        layout |= _pipeline(stages, sizes["pp"], known["layers"], notes)
    compiled = fields.part("compile").first("enabled") is True
    layout["dtype"] = "fp8" if fields.part("fp8").first("enabled") is True else "bf16"
    data = fields.part("dataset")
    length = fields.part("packed_sequence").number("packed_sequence_size", default=0, least=0)
    length = length or data.number("seq_length", "seq_len", "sequence_length", default=0, least=0)
    usual = min(known["sequence"], USUAL_SEQUENCE)
    notes += [] if length else [f"the length of sequences is not in the file: {usual} tokens are taken"]
    layout["sequence"] = length or usual
    adapter, weights = fields.part("peft"), fields.part("quantization")
    four, eight = (weights.first(name) for name in ("load_in_4bit", "load_in_8bit"))
    layout |= finetuning.tuned(
        notes,
        rank=adapter.number("dim", default=8) if adapter.values else None,
        targets=adapter.first("target_modules"),
        is_dora=adapter.first("use_dora") is True,
        weights="nf4" if four else "int8" if eight else None,
        optimizer=str(fields.part("optimizer").first("_target_") or "").rpartition(".")[2],
    )
    notes += fields.not_read(TABLE["without_effect"]) + spread.not_read(TABLE["without_effect"], "distributed.")
    return Configuration(named, layout, "torchtitan-compile" if compiled else "automodel", notes=notes)


def _pipeline(fields: Fields, ranks: int, layers: int, notes: list[str]) -> dict[str, object]:
    name = fields.typed(str, "pp_schedule", "1f1b").lower()
    schedule = fields.chosen("`pp_schedule`", name, TABLE["schedules"])
    layout: dict[str, object] = {"micro_batch": fields.number("pp_microbatch_size", default=1)}
    each = fields.number("layers_per_stage", default=max(1, -(-layers // (2 * ranks))))
    chunks = -(-layers // (each * ranks)) if schedule == "interleaved" else 1
    if schedule == "interleaved" and chunks < 2:
        notes.append("the interleaved schedule counts as 1f1b: it has one chunk, or a model that is not shipped")
        schedule = "1f1b"
    return layout | {"schedule": schedule, "vp": max(1, chunks)}
