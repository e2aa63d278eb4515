"""What configurations of fine-tuning share: DDP, FSDP and DeepSpeed below transformers, and adapters.

Each reader passes what its own file says, in the words of this module. An optimizer is AdamW unless its name is not.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from nvcoll.training import deepspeed
from nvcoll.training.fields import Configuration, Fields, Gpus

SHARDING: Final = {"FULL_SHARD": 3, "SHARD_GRAD_OP": 2, "NO_SHARD": 0, "HYBRID_SHARD": 3, "HYBRID_SHARD_ZERO2": 2}
"""The ZeRO stages of strategies of FSDP, by their names in torch."""
ADAM: Final = ("", "adam", "adamw", "adamw_torch", "adamw_torch_fused", "adamw_hf", "paged_adamw_32bit")
"""Names of Adam with states in fp32."""
HYBRID: Final = ("HYBRID_SHARD", "HYBRID_SHARD_ZERO2")
WITHOUT_EFFECT: Final = (
    "(fsdp_)?(auto_wrap_policy|backward_prefetch|forward_prefetch|cpu_ram_efficient_loading|state_dict_type|version|"
    "final_state_dict_type|sync_module_states|use_orig_params|limit_all_gathers|transformer_layer_cls_to_wrap|xla.*)"
)


def fsdp(fields: Fields, notes: list[str]) -> dict[str, object]:
    """Returns the sharding that ``fsdp_config`` says, with or without `fsdp_` before its names."""
    plain = Fields({name.removeprefix("fsdp_"): value for name, value in fields.values.items()}, fields.where)
    strategy = str(plain.first("sharding_strategy") or "FULL_SHARD").rpartition(".")[2].upper()
    names = {str(at): name for at, name in enumerate(SHARDING, start=1)}  # older files have the numbers of torch
    strategy = names.get(strategy, strategy)
    stage = plain.chosen("`fsdp_sharding_strategy`", strategy, SHARDING)
    gathers_once = plain.first("reshard_after_forward") is False
    notes += ["hybrid sharding: one node of 8 GPUs shares a copy"] if strategy in HYBRID else []
    layout: dict[str, object] = {"zero": min(stage, 2) if gathers_once else stage}
    layout |= {"shard_ranks": 8} if strategy in HYBRID else {}
    layout |= {"recompute": "full"} if plain.first("activation_checkpointing") is True else {}
    notes += not_priced(offload=["parameters"] if plain.first("offload_params") is True else [])
    notes += plain.not_read(WITHOUT_EFFECT, "fsdp_config.")
    return layout


def deepspeed_file(name: str, where: str, gpus: Gpus) -> Configuration:
    """Reads the JSON of DeepSpeed that a configuration names, from the working directory or a folder above the file.

    Raises:
        InvalidArgument: it is not there, or cannot be read.
    """
    fields = Fields({}, where)
    places = [Path(), *Path(where).absolute().parents]
    found = next((place / name for place in places if (place / name).is_file()), None)
    if found is None:
        raise fields.error(f"it names {name} of DeepSpeed, which is not there: put it there, or leave the field out")
    try:
        values = json.loads(found.read_text(errors="replace"))
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise fields.error(f"{name} is no JSON of DeepSpeed: correct it")
    return deepspeed.read(values, str(found), gpus)


def not_priced(
    lora: int | None = None, bits: str = "", optimizer: str = "", offload: Sequence[str] = (), frozen: bool = False
) -> list[str]:
    """Returns notes on what a step of fine-tuning has and nvcoll does not price.

    Args:
        lora: the rank of adapters.
        bits: the precision in which weights are stored.
        optimizer: the name of the optimizer.
        offload: what is kept in the memory of the host.
        frozen: whether only a part of the weights trains.
    """
    notes = [f"LoRA of rank {lora} is not priced: all weights train"] if lora else []
    notes += ["frozen weights are not priced: all weights train"] if frozen else []
    notes += [f"weights in {bits} are not priced: they count as bf16"] if bits else []
    notes += [] if optimizer.lower() in ADAM else [f"the optimizer {optimizer} is not priced: it counts as AdamW"]
    notes += [f"{one} in the memory of the host are not priced: they count on the GPU" for one in offload]
    return notes


def batch(micro: int, steps: int, ranks: int | None) -> dict[str, object]:
    """Returns the batch of a step from sequences and passes of each data-parallel rank."""
    return {"micro_batch": micro} | ({"global_batch": micro * steps * ranks} if ranks else {})


def ranks(fields: Fields, gpus: Gpus, each: int) -> int | None:
    """Returns the data-parallel ranks, where each copy of the model takes some GPUs.

    Raises:
        InvalidArgument: the GPUs are no multiple of them.
    """
    count = gpus.of()
    if count is not None and count % each:
        raise fields.error(f"{count} GPUs are not a multiple of TP x PP x CP = {each}: pass another number of GPUs")
    return None if count is None else count // each
