"""Reads the arguments of Megatron-LM, from a shell script or a list of arguments.

A flag means what `megatron/training/arguments.py` of Megatron-LM says, defaults included. `shell` reads the script. Not
read: files that the script sources, the tokenizer, stages of unequal length.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from nvcoll.training import shell
from nvcoll.training.fields import TABLES, Configuration, Fields, Gpus
from nvcoll.training.finetuning import rank_of, tuned
from nvcoll.training.models import models, shipped
from nvcoll.training.options import PARTS_OF_LAYERS, RECOMPUTE

TABLE: Final = TABLES["megatron"]
NAMES: Final[Mapping[str, str]] = TABLE["names"]
NAMED: Final = r"\bmegatron (sft|pt|rlhf)\b|\brun_recipe\.py\b"
"""Commands that name a model, whose dimensions are not among the arguments."""
VARIABLE: Final = re.compile(r"\$\{\w+:([^{}]*)\}")
ABSENT: Final = ("None", "False", "false", "null")


def is_read(text: str) -> bool:
    """Says whether a text has arguments of Megatron-LM."""
    return re.search(rf"--(num-layers|tensor-model-parallel-size|micro-batch-size)\b|{NAMED}", text) is not None


def read(text: str, where: str, gpus: Gpus) -> Configuration:
    """Returns what arguments say; `gpus` as of `nvcoll.training.configurations.read`.

    Raises:
        InvalidArgument: an argument is missing or wrong, or a variable that it needs has no value.
    """
    if re.search(NAMED, text):
        said, notes = shell.words(text, where, NAMED)
        found = _of_named({name.rpartition(".")[2]: value for name, value in said.items()}, where, gpus)
    else:
        flags, notes = shell.flags(text, where)
        found = of_flags(flags, where, gpus, "")
    return replace(found, notes=notes + found.notes)


def _of_named(said: Mapping[str, object], where: str, gpus: Gpus) -> Configuration:
    """Returns what a command of Megatron-SWIFT, or of a recipe of Megatron-Bridge, says."""
    if recipe := said.get("recipe"):
        name = re.sub(r"_((sft|peft|pretrain|finetune)_)?config$", "", str(recipe))
        found = of_model(name, said, where, gpus, TABLE["recipes_without_effect"], "megatron-bridge")
        return replace(found, notes=[f"what {recipe} itself says is not read", *found.notes])
    if (name := str(said.get("model", said.get("load", "")))) == "":
        raise Fields({}, where).error("the command has no `--model`: add it")
    one_node = {"nnodes": 1} if "NPROC_PER_NODE" in said else {}
    defaults = {"bf16": True, "use-distributed-optimizer": True, **one_node}
    return of_model(name, {**defaults, **said}, where, gpus, TABLE["recipes_without_effect"])


def text_of(value: object) -> str | None:
    """Returns a value as the flag of a command line has it; None if the flag is absent."""
    if value is None or isinstance(value, dict | list):
        return None
    text = VARIABLE.sub(r"\1", str(value))
    return None if text in ABSENT else "" if text in ("True", "true") else text


def of_flags(flags: Mapping[str, str], where: str, gpus: Gpus, without_effect: str) -> Configuration:
    """Returns what arguments say by their names; `without_effect` as of `Fields.not_read`.

    Raises:
        InvalidArgument: an argument is missing or wrong.
    """
    notes = list[str]()
    if pattern := _pattern(Fields(flags, where)):
        flags = {"num-layers": str(len(pattern)), **flags}
    fields = Fields(flags, where)
    layout, model = _layout(fields, gpus, notes), _model(fields, fields.sizes(TABLE["layout"])["tp"], notes)
    return _configuration(fields, model, layout, notes, f"{without_effect}|{TABLE['without_effect']}")


def of_model(
    name: str, said: Mapping[str, object], where: str, gpus: Gpus, without_effect: str, software: str = ""
) -> Configuration:
    """Returns what arguments say of the step of a named model; underscores in their names count as hyphens.

    Args:
        name: the name of the model, with underscores for hyphens.
        said: arguments by name.
        where: the file, for messages.
        gpus: as of `nvcoll.training.configurations.read`.
        without_effect: as of `Fields.not_read`.
        software: the software, if it is not that of the arguments.

    Raises:
        InvalidArgument: an argument is missing or wrong.
    """
    notes = list[str]()
    model = shipped(name.replace("_", "-")) or name
    named = {NAMES.get(one, one).replace("_", "-"): text_of(value) for one, value in said.items()}
    layers = {"num-layers": str(models()[model]["layers"])} if model in models() else {}
    given = layers | {one: text for one, text in named.items() if text is not None and "${" not in text}
    fields = Fields(given, where)
    changed = {"layers": fields.number("num-layers")} if layers and layers["num-layers"] != given["num-layers"] else {}
    layout = _layout(fields, gpus, notes)
    kind = str(fields.first("tuner-type", "train-type", "peft") or "full")
    targets, rank = fields.typed(str, "target-modules", "all-linear").split(), fields.number("lora-rank", default=8)
    layout |= tuned(notes, rank=rank_of(kind, rank, notes), targets=targets, is_dora=kind == "dora")
    found = _configuration(
        fields,
        {**models()[model], **changed} if changed else model,
        layout,
        notes,
        f"{without_effect}|{TABLE['without_effect']}",
    )
    return replace(found, software=software or found.software)


def _configuration(
    fields: Fields, model: str | dict[str, object], layout: dict[str, object], notes: list[str], without_effect: str
) -> Configuration:
    flags = fields.values
    overrides: dict[str, object] = {"overlaps_tensor": False, "overlaps_data": False}
    for name in flags:
        overrides |= TABLE["software"].get(name, {})
    old = not {"DDP-impl", "activations-checkpoint-method"}.isdisjoint(flags)
    software = "megatron-deepspeed" if "deepspeed" in flags else "megatron" if old else "megatron-core"
    offload = [what for name, what in TABLE["offload"].items() if fields.first(name) is not None]
    layout |= tuned(notes, optimizer=fields.typed(str, "optimizer", ""), offload=offload)
    fields.asked.update({"num-layers"}, TABLE["software"], TABLE["dtype"], TABLE["switches"])
    return Configuration(model, layout, software, overrides, notes + fields.not_read(without_effect))


def _layout(fields: Fields, gpus: Gpus, notes: list[str]) -> dict[str, object]:
    flags, sizes = fields.values, fields.sizes(TABLE["layout"])
    layout: dict[str, object] = {**sizes}
    layout["sequence_parallel"] = "sequence-parallel" in flags and sizes["tp"] > 1
    layout["dtype"] = next((dtype for flag, dtype in TABLE["dtype"].items() if flag in flags), "tf32")
    notes += ["no precision is given: fp32 is taken as tf32"] if layout["dtype"] == "tf32" else []
    vp = layout["vp"] = _chunks(fields, sizes["pp"])
    layout["schedule"] = "interleaved" if vp > 1 else "1f1b"
    layout |= {"zero": _zero(fields), "recompute": _recompute(fields, sizes["pp"], notes)}
    layout |= {"mtp": mtp} if (mtp := fields.number("mtp-num-layers", default=0, least=0)) else {}
    layout |= {"order": "tp-cp-pp-dp"} if "use-tp-pp-dp-mapping" in flags else {}
    layout |= {"global_batch": fields.number("global-batch-size")} if "global-batch-size" in flags else {}
    asked = gpus.asked or "nnodes" not in flags
    said = None if asked else fields.number("nnodes") * fields.number("nproc-per-node", default=1)
    count = gpus.of(said)
    if count is None:
        notes.append("the number of GPUs is not in the file")
        return layout
    each = sizes["tp"] * sizes["pp"] * sizes["cp"]
    if count % each:
        raise fields.error(f"{count} GPUs are not a multiple of TP x PP x CP = {each}: pass another number of GPUs")
    if (copies := fields.number("num-distributed-optimizer-instances", default=1)) > 1:
        layout["shard_ranks"] = max(1, count // each * sizes["cp"] // copies)
    return {"global_batch": sizes["micro_batch"] * (count // each), **layout, "dp": count // each}


def _chunks(fields: Fields, stages: int) -> int:
    if "num-layers-per-virtual-pipeline-stage" not in fields.values:
        return fields.number("num-virtual-stages-per-pipeline-rank", default=1)
    layers, part = fields.number("num-layers"), fields.number("num-layers-per-virtual-pipeline-stage") * stages
    layers += sum(f"account-for-{end}-in-pipeline-split" in fields.values for end in ("embedding", "loss"))
    if layers % part:
        raise fields.error(f"{part} layers of all stages do not divide {layers} layers: correct the virtual stages")
    return layers // part


def _zero(fields: Fields) -> int:
    flags = fields.values
    if "use-megatron-fsdp" in flags or "use-custom-fsdp" in flags:
        name = "data-parallel-sharding-strategy"
        return int(fields.chosen(f"`--{name}`", fields.typed(str, name, "no_shard"), TABLE["zero"]))
    stage = 3 if "use-torch-fsdp2" in flags else 1 if "use-distributed-optimizer" in flags else 0
    return min(3, fields.number("zero-stage", default=stage, least=0))


def _recompute(fields: Fields, stages: int, notes: list[str]) -> str | Mapping[str, float]:
    flags = fields.values
    default = "selective" if "recompute-activations" in flags else "none"
    default = "full" if {"checkpoint-activations", "activations-checkpoint-method"} & flags.keys() else default
    kind = fields.typed(str, "recompute-granularity", default)
    fields.chosen("`--recompute-granularity`", kind, RECOMPUTE)
    modules = fields.typed(str, "recompute-modules", "core_attn").split()
    if kind == "selective" and modules != ["core_attn"]:
        notes.append("of `--recompute-modules` core_attn alone is read")
        return "selective" if "core_attn" in modules else "none"
    if kind == "full" and fields.first("recompute-method", "activations-checkpoint-method") == "block":
        count = fields.number("recompute-num-layers", "activations-checkpoint-num-layers", default=1, least=0)
        return dict.fromkeys(PARTS_OF_LAYERS, min(1.0, count * stages / fields.number("num-layers")))
    return kind


def _model(fields: Fields, tensor: int, notes: list[str]) -> dict[str, object]:
    flags, sizes = fields.values, fields.sizes(TABLE["model"])
    layers, hidden, heads = sizes["layers"], sizes["hidden"], sizes["heads"]
    model: dict[str, object] = {**sizes}
    gated = not {"swiglu", "quick-geglu", "geglu"}.isdisjoint(flags)
    ffn = fields.number("ffn-hidden-size", default=max(64, 8 * hidden // 3 // 64 * 64) if gated else 4 * hidden)
    kv_heads = fields.number("num-query-groups", "num-key-value-heads", default=heads)
    rotary = not {"use-rotary-position-embeddings", "enable-gpt-oss"}.isdisjoint(flags)
    positions = "rope" if rotary else fields.typed(str, "position-embedding-type", "learned_absolute")
    model |= {"name": f"megatron-{layers}x{hidden}", "kv_heads": kv_heads, "ffn": ffn, "gated": gated}
    model["head_dim"] = fields.number("kv-channels", default=max(1, hidden // heads))
    model |= {"tied": "untie-embeddings-and-output-weights" not in flags, "vocab": _vocabulary(fields, tensor, notes)}
    model["positions"] = fields.chosen("`--position-embedding-type`", positions, TABLE["positions"])
    model |= {"output_gate": True} if "attention-output-gate" in flags else {}
    model |= _mixers(fields, layers, hidden, notes)
    if "multi-latent-attention" in flags:
        model["mla"] = mla = fields.sizes(TABLE["latent_attention"])
        model["head_dim"] = mla["nope"] + mla["rope"]
    if "num-experts" in flags:
        model["experts"] = _experts(fields, layers, ffn, notes)
    if "window-size" in flags:
        tokens = Fields({"window-size": fields.typed(str, "window-size", "").partition(",")[0]}, fields.where)
        every = fields.number("window-attn-skip-freq", default=1)
        model["window"] = {"tokens": tokens.number("window-size", least=0) + 1, "every": every}
    return model


def _vocabulary(fields: Fields, tensor: int, notes: list[str]) -> int:
    if "padded-vocab-size" in fields.values:
        return fields.number("padded-vocab-size")
    kind = fields.typed(str, "tokenizer-type", "GPT2BPETokenizer" if "merge-file" in fields.values else "")
    tokenizer = fields.typed(str, "tokenizer-model", "")
    model = next((known for name in (tokenizer, kind) if name and (known := shipped(name))), None)
    known = models()[model]["vocab"] if model else TABLE["vocabularies"].get(kind)
    if known and "vocab-size" not in fields.values:
        notes.append(f"the vocabulary has {known} tokens, as {model or kind} has")
    multiple = fields.number("make-vocab-size-divisible-by", default=128) * tensor
    return -(-fields.number("vocab-size", default=known) // multiple) * multiple


def _experts(fields: Fields, layers: int, ffn: int, notes: list[str]) -> dict[str, int]:
    if "moe-latent-size" in fields.values:
        raise fields.error("`--moe-latent-size`: experts on latents are not known: pass another model")
    width = fields.number("moe-ffn-hidden-size", default=ffn)
    shared = fields.number("moe-shared-expert-intermediate-size", default=0, least=0)
    notes += [f"the shared expert is rounded to widths of {width}"] if shared % width else []
    dense, every = _layers_with_experts(fields, layers)
    made = {"ffn": width, "shared": -(-shared // width), "dense_layers": dense, "every": every}
    return made | fields.sizes(TABLE["experts"])


def _pattern(fields: Fields) -> str:
    """Returns the letters of layers that the flags list, without those of stages and of multi-token prediction."""
    listed = fields.typed(str, "hybrid-layer-pattern", fields.typed(str, "hybrid-override-pattern", ""))
    return listed.partition("/")[0].replace("|", "")


def _mixers(fields: Fields, layers: int, hidden: int, notes: list[str]) -> dict[str, object]:
    """Returns the kinds of layers, and the dimensions of layers with a state; nothing if all layers attend."""
    spec = fields.typed(str, "spec", "")
    variant = fields.typed(str, "experimental-attention-variant", "")
    if variant:
        fields.chosen("`--experimental-attention-variant`", variant, {"gated_delta_net": "", "dsa": ""})
        if variant == "dsa":
            return {"indexer": fields.sizes(TABLE["indexer"])}
        if "linear-attention-freq" not in fields.values:
            raise fields.error("`--experimental-attention-variant` needs `--linear-attention-freq`: add it")
        pattern = "".join("am"[one] for one in _linear_layers(fields, layers))
        return {"pattern": pattern} | ({"recurrent": _state(fields, "delta")} if "m" in pattern else {})
    if "linear-attention-freq" in fields.values:
        raise fields.error("`--linear-attention-freq` needs `--experimental-attention-variant gated_delta_net`: add it")
    is_hybrid = {"hybrid-attention-ratio", "is-hybrid-model"} & fields.values.keys() or "mamba" in spec
    if not _pattern(fields) and not is_hybrid:
        notes += [f"the layers of `--spec {spec}` are not known: attention and MLP are planned"] if spec else []
        return {}
    pattern = _pattern(fields) or _spread(fields, layers, notes)
    if len(pattern) != layers:
        raise fields.error(f"the pattern has {len(pattern)} layers, not {layers}: correct it")
    if other := set(pattern) - set("M*-E"):
        raise fields.error(f"the pattern has layers {''.join(sorted(other))}, of M*-E were expected: pass the model")
    if "M" not in pattern:
        return {"pattern": pattern}
    state = _state(fields, "scan")
    heads = fields.number("mamba-num-heads", default=2 * hidden // int(state["value_dim"]))
    return {"pattern": pattern, "recurrent": {**state, "value_heads": heads}}


def _state(fields: Fields, rule: str) -> dict[str, Any]:
    return {"rule": rule, **fields.sizes(TABLE[rule])}


def _linear_layers(fields: Fields, layers: int) -> list[bool]:
    """Returns for each layer whether it has linear attention: all but every so manieth, or as listed."""
    if found := _listed(fields, "linear-attention-freq", layers):
        return found
    every = fields.number("linear-attention-freq")
    return [(layer + 1) % every > 0 for layer in range(layers)]


def _spread(fields: Fields, layers: int, notes: list[str]) -> str:
    """Returns a pattern with attention and MLPs at even distances, as many as ratios of older Megatron-LM say."""
    letters = ["M"] * layers
    for flag, letter in (("hybrid-attention-ratio", "*"), ("hybrid-mlp-ratio", "-")):
        free = [at for at, one in enumerate(letters) if one == "M"]
        count = min(len(free), round(layers * fields.part_of_one(flag)))
        for nth in range(count):
            letters[free[(2 * nth + 1) * len(free) // (2 * count)]] = letter
    notes.append(f"layers are spread evenly, as ratios say: {letters.count('*')} of {layers} attend")
    return "".join(letters)


def _layers_with_experts(fields: Fields, layers: int) -> tuple[int, int]:
    """Returns the first dense layers and the period of layers with experts, from a period or `[0]*3+[1]*58`."""
    made = _listed(fields, "moe-layer-freq", layers)
    if not made:
        return 0, fields.number("moe-layer-freq", default=1)
    found = [at for at, one in enumerate(made) if one] or [0]
    every = min(found[0] + 1, found[1] - found[0] if len(found) > 1 else 1)
    if found != [*range(found[0], layers, every)]:
        raise fields.error(f"`--moe-layer-freq` has not {layers} regular layers: pass the model")
    return found[0] + 1 - every, every


def _listed(fields: Fields, name: str, layers: int) -> list[bool]:
    """Returns what `[0]*3+[1]*58` or `([1]*3+[0])*12` says of each layer; nothing for a number."""
    text = re.sub(r"\s", "", fields.typed(str, name, "")[:1000])
    if "[" not in text:
        return []
    whole = re.fullmatch(r"\((.*)\)(?:\*(\d{1,4}))?", text)
    parts = re.findall(r"\[([01](?:,[01])*)\](?:\*(\d{1,4}))?(?:\+|$)", whole[1] if whole else text)
    made = [one == "1" for row, times in parts for one in row.split(",") * min(layers, int(times or 1))]
    made *= min(layers, int(whole[2] or 1)) if whole else 1
    if len(made) != layers:
        raise fields.error(f"`--{name}` is {text[:60]!r}, not {layers} regular layers: pass the model")
    return made
