"""Reads a configuration of NeMo with Megatron-Core, YAML, as `examples/nlp/language_modeling/conf` has them.

`model` has arguments of Megatron-LM under names of its own (``[nemo.names]`` in `configurations.toml`), `trainer` the
nodes and the precision. Values that refer to other values, as ``${.encoder_seq_length}``, count as absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from nvcoll.training import megatron
from nvcoll.training.fields import TABLES, Configuration, Fields, Gpus

TABLE: Final = TABLES["nemo"]


def is_read(values: object) -> bool:
    """Says whether this is a configuration of NeMo with Megatron-Core."""
    model = values.get("model") if isinstance(values, dict) else None
    return isinstance(model, dict) and {"tensor_model_parallel_size", "micro_batch_size"} <= model.keys()


def read(values: Mapping[str, object], where: str, gpus: Gpus) -> Configuration:
    """Returns what a configuration says; `gpus` as of `nvcoll.training.configurations.read`.

    Raises:
        InvalidArgument: a field is missing or wrong.
    """
    file = Fields(values, where)
    model, trainer = file.part("model"), file.part("trainer")
    said: dict[str, object] = {TABLE["names"].get(name, name): value for name, value in model.values.items()}
    said |= {"nnodes": trainer.first("num_nodes"), "nproc-per-node": trainer.first("devices")}
    tokenizer = model.part("tokenizer")
    said |= {"tokenizer-type": tokenizer.first("type"), "tokenizer-model": tokenizer.first("model")}
    said["fp8-format"] = said.pop("fp8", None)
    said[f"{str(trainer.first('precision')).partition('-')[0]}"] = True
    said["swiglu"] = "glu" in str(model.first("activation"))
    said["untie-embeddings-and-output-weights"] = model.first("share_embeddings_and_output_weights") is False
    optimizer = str(model.part("optim").first("name") or "")
    said["use-distributed-optimizer"] = optimizer.startswith(("distributed", "mcore_distributed"))
    flags = {name.replace("_", "-"): megatron.text_of(value) for name, value in said.items()}
    given = {name: text for name, text in flags.items() if text is not None and "${" not in text}
    peft = model.part("peft").first("peft_scheme")
    found = megatron.of_flags(given, where, gpus, TABLE["without_effect"])
    notes = found.notes + ([f"`peft_scheme` {peft} is not priced: all weights train"] if peft else [])
    return replace(found, software="nemo", notes=notes)
