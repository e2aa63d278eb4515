"""Reads the JSON of DeepSpeed: batch, precision and sharding. The model comes from elsewhere.

All GPUs are data-parallel except GPUs that the file gives to tensor parallelism. `auto` counts as absent. Not read:
quantisation of ZeRO++.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nvcoll.training.fields import TABLES, Configuration, Fields, Gpus

WITHOUT_EFFECT: Final[str] = TABLES["deepspeed"]["without_effect"]
BATCHES: Final = ("train_micro_batch_size_per_gpu", "train_batch_size", "gradient_accumulation_steps")


def is_read(values: object) -> bool:
    """Says whether this is a configuration of DeepSpeed."""
    return isinstance(values, dict) and any(name in values for name in ("zero_optimization", *BATCHES[:2]))


def read(values: Mapping[str, object], where: str, gpus: Gpus) -> Configuration:
    """Returns what a configuration says; `gpus` as of `nvcoll.training.configurations.read`.

    Raises:
        InvalidArgument: a field is wrong.
    """
    fields = Fields({name: value for name, value in values.items() if value != "auto"}, where)
    zero = fields.part("zero_optimization")
    notes = list[str]()
    stage = str(zero.number("stage", default=0, least=0))
    parts = {"optimizer": "offload_optimizer", "parameters": "offload_param"}
    devices = {part: zero.part(name).typed(str, "device", "none") for part, name in parts.items()}
    offload = ",".join(part for part, device in devices.items() if device != "none")
    notes += ["what waits on NVMe counts as in RAM"] if "nvme" in devices.values() else []
    stages = {str(at): at for at in range(4)}
    layout: dict[str, object] = {"zero": fields.chosen("`zero_optimization.stage`", stage, stages)}
    layout |= {"offload": offload} if offload else {}
    tensor = layout["tp"] = max(1, fields.part("tensor_parallel").number("autotp_size", default=1, least=0))
    ranks = zero.number("mics_shard_size", "zero_hpz_partition_size", default=1)
    layout |= {"shard_ranks": ranks} if ranks > 1 and layout["zero"] else {}
    dtypes = [name for name in ("bf16", "fp16") if fields.part(name).first("enabled") is True]
    layout |= {"dtype": dtypes[0]} if dtypes else {}
    micro, total, steps = (fields.number(name) if fields.first(name) is not None else None for name in BATCHES)
    if (count := gpus.of()) is None:
        notes.append("the number of GPUs is not in the file")
    elif count % tensor:
        raise fields.error(f"{count} GPUs are not a multiple of TP {tensor}: pass another number of GPUs")
    else:
        layout |= {"dp": (data := count // tensor)}
        notes.append(f"all GPUs are data-parallel: {data} ranks")
        total = total or (micro and micro * data * (steps or 1))
        micro = micro or (total and total // (data * (steps or 1))) or None
    layout |= {name: size for name, size in (("micro_batch", micro), ("global_batch", total)) if size}
    overlaps = zero.typed(bool, "overlap_comm", True)
    notes += fields.not_read(WITHOUT_EFFECT) + zero.not_read(WITHOUT_EFFECT, "zero_optimization.")
    return Configuration(None, layout, "deepspeed-zero", {"overlaps_data": overlaps}, notes)
