"""Reads `config.json` of models for transformers.

An architecture is one row of `configurations.toml`. An architecture without a row is refused, because fields of equal
names mean different things. Not read: vision and audio towers, multi-token prediction, biases, quantisation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final

from nvcoll.training.fields import TABLES, Configuration, Fields, Gpus, shown

TABLE: Final = TABLES["huggingface"]
NAMES: Final[Mapping[str, list[str]]] = TABLE["names"]
ARCHITECTURES: Final = {kind: row for row in TABLE["architectures"] for kind in row["types"]}
WINDOWED: Final = {"full_attention": False, "sliding_attention": True, "chunked_attention": True}


USUAL_SEQUENCE: Final = 8192
"""The tokens of a sequence where a file has only the longest length. Chosen: most models that are shipped have it."""


def is_read(values: object) -> bool:
    """Says whether this is a configuration of a model."""
    return isinstance(values, dict) and ("model_type" in values or "architectures" in values)


def read(values: Mapping[str, object], where: str, _gpus: Gpus) -> Configuration:
    """Returns the model of a configuration.

    Raises:
        InvalidArgument: the architecture is not known, a field is missing or wrong.
    """
    outer = Fields(values, where)
    inner = outer.part("text_config").values or outer.part("llm_config").values
    merged = {**values, **inner, **outer.part("attn_config").values, **outer.part("ffn_config").values}
    kind = Fields(merged, where).typed(str, "model_type", "")
    others = [reason for name, reason in TABLE["refused"].items() if merged.get(name)]
    if reason := next(iter(others), TABLE["unknown"].get(kind)):
        raise outer.error(f"`model_type` is {shown(kind)}: it has {reason}, which nvcoll does not know: choose another")
    if kind not in ARCHITECTURES:
        raise outer.error(_unknown(kind, merged))
    row = ARCHITECTURES[kind]
    said = {name: merged[name] for name in TABLE["not_read"] if merged.get(name)}
    notes = [TABLE["not_read"][name].replace("{}", shown(value)) for name, value in said.items()]
    filled = {"tie_word_embeddings": row["tied"], **row.get("defaults", {})}
    filled = {name: value for name, value in filled.items() if merged.get(name) is None}
    notes += [f"`{name}` is {value}, the default of {kind}" for name, value in filled.items()]
    return Configuration(model=_model(Fields({**merged, **filled}, where), kind, row, notes), notes=notes)


def _unknown(kind: str, values: Mapping[str, object]) -> str:
    """Returns why an architecture is refused: fields of other layers, and the nearest architectures."""
    others = [name for name in values if re.search("mamba|ssm|linear_attn|delta|lightning|rwkv|sparse|hyena", name)]
    what = f" and has `{'`, `'.join(others[:3])}` of layers that may be others" if others else ""
    near = ", ".join(get_close_matches(kind, ARCHITECTURES, 3, 0.5)) or ", ".join([*ARCHITECTURES][:4])
    return (
        f"`model_type` is {shown(kind)}, which is not known{what}: if the model has the fields and layers "
        f"of {near}, write this name; else pass a TOML with its dimensions"
    )


def _model(fields: Fields, kind: str, row: Mapping[str, Any], notes: list[str]) -> dict[str, object]:
    sizes = fields.sizes(TABLE["model"])
    layers, hidden, heads, longest = (sizes[name] for name in ("layers", "hidden", "heads", "sequence"))
    many = fields.typed(bool, "new_decoder_architecture", False) or not fields.typed(bool, "multi_query", False)
    named = fields.typed(str, "_name_or_path", "").rstrip("/").rpartition("/")[2].lower()
    model: dict[str, object] = {**sizes, "name": named or f"{kind}-{layers}x{hidden}", "gated": row["gated"]}
    model["kv_heads"] = fields.number(*NAMES["kv_heads"], default=heads) if many else 1
    model["head_dim"] = fields.number("head_dim", default=max(1, hidden // heads))
    wider = fields.first("ffn_per_hidden", "expansion_ratio")
    width = None if wider is None else hidden * fields.number("ffn_per_hidden", "expansion_ratio")
    model["ffn"] = fields.number(*row.get("ffn", []), *NAMES["ffn"], default=width)
    model["tied"] = fields.typed(bool, "tie_word_embeddings", False)
    model["positions"] = "alibi" if fields.typed(bool, "alibi", False) else row.get("positions", "rotary")
    scaling = fields.part("rope_scaling").values or fields.part("rope_parameters").values
    usual = min(longest, USUAL_SEQUENCE)
    model["sequence"] = Fields({**fields.values, **scaling}, fields.where).number(*NAMES["pretraining"], default=usual)
    why = "" if model["sequence"] != usual or usual == longest else ", a usual length of training"
    notes.append(f"the sequence is taken as {model['sequence']} tokens{why}; the longest is {longest}")
    if fields.typed(bool, "attn_output_gate", row.get("output_gate", False)):
        model["output_gate"] = True
    if fields.first("kv_lora_rank") is not None:
        model["mla"] = mla = fields.sizes(TABLE["latent_attention"])
        model["head_dim"] = mla["nope"] + mla["rope"]
        model |= {"indexer": fields.sizes(TABLE["indexer"])} if fields.first("index_topk") else {}
    if fields.first(*TABLE["experts"]["count"]["names"]):
        model["experts"] = _experts(fields, notes)
    model |= _mixers(fields, row, layers) if "letters" in row else {}
    if fields.first(*NAMES["window"]) and fields.typed(bool, "use_sliding_window", True):
        every = _window_every(fields, layers, notes)
        model |= {"window": {"tokens": fields.number(*NAMES["window"]), "every": every}} if every else {}
    return model


def _mixers(fields: Fields, row: Mapping[str, Any], layers: int) -> dict[str, object]:
    """Returns the kinds of layers, and the dimensions of layers with a state."""
    kinds = fields.typed(list, "layer_types", fields.typed(list, "layers_block_type", []))
    pattern = "".join(fields.chosen("a kind of layer", kind, row["letters"]) for kind in kinds)
    pattern = fields.typed(str, "hybrid_override_pattern", pattern)
    if pattern and len(pattern) != layers:
        raise fields.error(f"it lists {len(pattern)} kinds of layers for {layers} layers: correct it")
    pattern = pattern or "m" * (fields.number("full_attention_interval", default=1) - 1) + "a"
    has_state = "m" in pattern.lower()
    return {"pattern": pattern} | ({"recurrent": _state(fields, row["rule"])} if has_state else {})


def _state(fields: Fields, rule: str) -> dict[str, object]:
    return {"rule": rule, **fields.sizes(TABLE[rule])}


def _experts(fields: Fields, notes: list[str]) -> dict[str, int]:
    made: dict[str, int] = fields.sizes(TABLE["experts"])
    width, shared = made["ffn"], fields.number(*NAMES["shared"], default=0, least=0)
    notes += [f"the shared expert of width {shared} is rounded to widths of {width}"] if shared % width else []
    return made | ({"shared": -(-shared // width)} if shared else {})


def _window_every(fields: Fields, layers: int, notes: list[str]) -> int:
    """Returns the period with which layers see the whole sequence: 1 if no layer does, 0 if all do."""
    kinds = fields.typed(list, "layer_types", [])
    full = [at for at, kind in enumerate(kinds) if not fields.chosen("a `layer_types`", kind, WINDOWED)]
    if kinds and len(full) in (0, len(kinds)):
        return int(not full)
    every = full[0] + 1 if full and full[0] else fields.number(*NAMES["window_every"], default=2 if full else 1)
    if full and full != [*range(every - 1, len(kinds), every)]:
        notes.append(f"layers with a window are irregular: all but every {every}th count as such")
    first = fields.number("max_window_layers", default=0, least=0) if "use_sliding_window" in fields.values else 0
    notes += [f"the first {first} layers see the whole sequence, but count as the others"] if 0 < first < layers else []
    return 0 if not kinds and first >= layers else every
