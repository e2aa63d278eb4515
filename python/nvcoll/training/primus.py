"""Reads an experiment of Primus, YAML: the name of a model, and arguments of Megatron-LM.

`examples/megatron/configs` of AMD-AGI/Primus has such files. Files that it names (`pre_trainer.yaml`) are not
read: the model is the shipped one with this name, and other arguments have the defaults of Megatron-LM.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from nvcoll.training import megatron
from nvcoll.training.fields import TABLES, Configuration, Fields, Gpus
from nvcoll.training.models import model_of

TABLE: Final = TABLES["primus"]
VARIABLE: Final = re.compile(r"\$\{\w+:([^{}]*)\}")


def is_read(values: object) -> bool:
    """Says whether this is an experiment of Primus."""
    modules = values.get("modules") if isinstance(values, dict) else None
    return isinstance(modules, dict) and any(isinstance(one, dict) and "framework" in one for one in modules.values())


def read(values: Mapping[str, object], where: str, gpus: Gpus) -> Configuration:
    """Returns what an experiment says; `gpus` as of `nvcoll.training.configurations.read`.

    Raises:
        InvalidArgument: its framework or model is not known, a field is missing or wrong.
    """
    modules = Fields(values, where).part("modules")
    module = next(part for name in modules.values if "framework" in (part := modules.part(name)).values)
    framework = module.typed(str, "framework", "")
    module.chosen("`framework`", framework, {"megatron": ""})
    name = module.typed(str, "model", "").removesuffix(".yaml").replace("_", "-")
    said = {one.replace("_", "-"): _text(value) for one, value in module.part("overrides").values.items()}
    said["fp8-format"] = said.pop("fp8", None)
    said = {"bf16": "", "use-distributed-optimizer": "", **said}  # the first two: defaults of its modules
    given = {one: text for one, text in said.items() if text is not None}
    model = model_of(name)
    model = {**model, "layers": module.part("overrides").number("num_layers", default=model["layers"])}
    given["num-layers"] = str(model["layers"])
    return megatron.of_model(model, given, where, gpus, TABLE["without_effect"])


def _text(value: object) -> str | None:
    """Returns a value as the flag of a command line has it; None if the flag is absent."""
    text = VARIABLE.sub(r"\1", str(value))
    return None if text in ("None", "False", "false", "null") else "" if text in ("True", "true") else text
