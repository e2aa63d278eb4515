"""Reads a configuration of accelerate, YAML: the GPUs, sharding and precision.

The model and the batch come from elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nvcoll.training import finetuning
from nvcoll.training.fields import TABLES, Configuration, Fields, Gpus

TABLE: Final = TABLES["accelerate"]


def is_read(values: object) -> bool:
    """Says whether this is a configuration of accelerate."""
    return isinstance(values, dict) and "distributed_type" in values


def read(values: Mapping[str, object], where: str, gpus: Gpus) -> Configuration:
    """Returns what a configuration says; `gpus` as of `nvcoll.training.configurations.read`.

    Raises:
        InvalidArgument: a field is wrong, or the JSON of DeepSpeed is not there.
    """
    fields, notes = Fields(values, where), list[str]()
    kind = fields.chosen("`distributed_type`", str(fields.first("distributed_type")), TABLE["software"])
    parts = fields.part("parallelism_config")
    plain = Fields({name.removeprefix("parallelism_config_"): one for name, one in parts.values.items()}, where)
    sizes = plain.sizes(TABLE["layout"])
    layout: dict[str, object] = {**sizes, "zero": 0}
    copies, shards = (plain.number(f"dp_{name}_size", default=1) for name in ("replicate", "shard"))
    layout |= {"shard_ranks": shards} if copies > 1 and shards > 1 else {}
    if kind == "deepspeed-zero":
        layout |= _deepspeed(fields.part("deepspeed_config"), where, gpus, notes)
    elif str(fields.first("distributed_type")) == "FSDP":
        layout |= finetuning.fsdp(fields.part("fsdp_config"), notes)
    precision = fields.typed(str, "mixed_precision", "no")
    layout["dtype"] = fields.chosen("`mixed_precision`", precision, TABLE["dtype"])
    notes += ["no precision is given: fp32 is taken as tf32"] if precision == "no" else []
    alone = 1 if fields.first("distributed_type") in ("NO", "no", False) else None
    said = fields.number("num_processes") if fields.first("num_processes") else alone
    each = sizes["tp"] * sizes["cp"]
    data = finetuning.ranks(fields, Gpus(gpus.of(said)), each)
    layout |= {"dp": data} if data and gpus.of(said) != gpus.machine else {}
    notes += fields.not_read(TABLE["without_effect"]) + plain.not_read("", "parallelism_config.")
    return Configuration(None, layout, kind, notes=notes)


def _deepspeed(fields: Fields, where: str, gpus: Gpus, notes: list[str]) -> dict[str, object]:
    if name := fields.typed(str, "deepspeed_config_file", ""):
        found = finetuning.deepspeed_file(name, where, gpus)
        notes += found.notes
        return finetuning.sharding(found)
    devices = {"optimizer": "offload_optimizer_device", "parameters": "offload_param_device"}
    parts = [part for part, name in devices.items() if fields.first(name) not in (None, "none")]
    layout = finetuning.tuned(notes, offload=parts)
    notes += fields.not_read(TABLE["without_effect"], "deepspeed_config.")
    return layout | {"zero": fields.number("zero_stage", default=2, least=0)}
