"""What configurations of fine-tuning share: DDP, FSDP and DeepSpeed below transformers, and adapters.

Each reader passes what its own file says, in the words of this module. An optimizer is AdamW unless its name is not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from nvcoll.training import deepspeed
from nvcoll.training.fields import TABLES, Configuration, Fields, Gpus

SHARDING: Final = {"FULL_SHARD": 3, "SHARD_GRAD_OP": 2, "NO_SHARD": 0, "HYBRID_SHARD": 3, "HYBRID_SHARD_ZERO2": 2}
"""The ZeRO stages of strategies of FSDP, by their names in torch."""
OPTIMIZERS: Final[Mapping[str, str]] = TABLES["finetuning"]["optimizers"]
MODULES: Final = ("q", "k", "v", "o", "gate", "up", "down", "q_a", "q_b", "kv_a", "kv_b")
FUSED_CHUNKS: Final = 16
"""The chunks of a loss that is one kernel with the head. Chosen: the logits of a chunk are small beside a layer."""
ADAPTERS: Final = ("lora", "qlora", "dora", "true")
WHOLE: Final = ("full", "all", "none", "false", "")
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
    layout |= {"offload": "parameters,optimizer"} if plain.first("offload_params") is True else {}
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


def rank_of(kind: str, rank: int, notes: list[str]) -> int | None:
    """Returns the rank of the adapters that a kind of fine-tuning has, None if it has none."""
    notes += [] if kind in ADAPTERS + WHOLE else [f"the adapter {kind[:60]} is not priced: all weights train"]
    return rank if kind in ADAPTERS else None


def tuned(
    notes: list[str],
    *,
    rank: int | None = None,
    targets: object = None,
    is_dora: bool = False,
    weights: str | None = None,
    optimizer: str = "",
    offload: Sequence[str] = (),
) -> dict[str, object]:
    """Returns what is trained, and where its state is kept, in the words of `PlanOptions`.

    Args:
        notes: gets what has no word.
        rank: the rank of adapters.
        targets: the modules that have adapters, as PEFT takes them.
        is_dora: whether adapters have magnitudes.
        weights: the format of frozen weights.
        optimizer: the name of the optimizer in its framework.
        offload: what waits in RAM.
    """
    layout: dict[str, object] = {"offload": ",".join(dict.fromkeys(offload))} if offload else {}
    name = OPTIMIZERS.get(optimizer.lower(), "")
    layout |= {"optimizer": name} if name not in ("", "adamw") else {}
    notes += [] if name or not optimizer else [f"the optimizer {optimizer} is not priced: it counts as AdamW"]
    if rank is None:
        notes += [f"weights in {weights} without adapters are not priced: they count as bf16"] if weights else []
        return layout
    layout |= {"lora": rank} | ({"dora": True} if is_dora else {}) | ({"quantize": weights} if weights else {})
    listed = targets if isinstance(targets, list) else str(targets or "all").split(",")
    words = [str(one).strip().rpartition(".")[2].partition("_proj")[0] for one in listed]
    if not {"all", "*", "all-linear"} & {*words}:
        layout["lora_targets"] = ",".join(word for word in words if word in MODULES) or "all"
        others = [f"`{word}`" for word in words if word not in MODULES]
        notes += [f"adapters of {', '.join(others)} are not priced"] if others else []
    return layout


def sharding(found: Configuration) -> dict[str, object]:
    """Returns what a configuration of DeepSpeed says of sharding and offload."""
    return {word: found.layout[word] for word in ("zero", "offload") if word in found.layout}


def fused_loss(notes: list[str]) -> dict[str, object]:
    """Returns a loss that never has all logits."""
    notes.append(f"the fused loss counts as one in {FUSED_CHUNKS} chunks")
    return {"loss_chunks": FUSED_CHUNKS}


def batch(micro: int, steps: int, ranks: int | None) -> dict[str, object]:
    """Returns the batch of a step from sequences and passes of each data-parallel rank."""
    return {"micro_batch": micro, **({"global_batch": micro * steps * ranks} if ranks else {})}


def ranks(fields: Fields, gpus: Gpus, each: int) -> int | None:
    """Returns the data-parallel ranks, where each copy of the model takes some GPUs.

    Raises:
        InvalidArgument: the GPUs are no multiple of them.
    """
    count = gpus.of()
    if count is not None and count % each:
        raise fields.error(f"{count} GPUs are not a multiple of TP x PP x CP = {each}: pass another number of GPUs")
    return None if count is None else count // each
