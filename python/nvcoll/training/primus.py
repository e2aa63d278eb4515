"""Reads an experiment of Primus, YAML: the name of a model, and arguments of Megatron-LM, or fields of torchtitan.

`examples/*/configs` of AMD-AGI/Primus has such files. Files that it names (`pre_trainer.yaml`) are not
read: the model is the shipped one with this name, and other arguments have the defaults of the framework.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nvcoll.training import megatron, torchtitan
from nvcoll.training.fields import TABLES, Configuration, Fields, Gpus
from nvcoll.training.models import shipped

TABLE: Final = TABLES["primus"]


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
    software = module.chosen("`framework`", framework, TABLE["frameworks"])
    name = module.typed(str, "model", "").removesuffix(".yaml")
    said = module.part("overrides").values
    if framework == "torchtitan":
        model = shipped(name.replace("_", "-")) or name
        return torchtitan.of_job(model, Fields(said, where), gpus)
    said = {"bf16": True, "use_distributed_optimizer": True, **said}  # defaults of its modules
    return megatron.of_model(name, said, where, gpus, TABLE["without_effect"], software)
