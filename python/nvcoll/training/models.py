"""Models and software of training steps: by name, from a TOML file, or as a mapping.

The fields are in ``rust/nvcoll-step/src/model.rs`` and ``software.rs``; a file has them at its top level::

    name = "mine"
    layers = 32
    hidden = 4096
    heads = 32
    kv_heads = 8
    head_dim = 128
    ffn = 14336
    gated = true
    vocab = 128256
    tied = false
    sequence = 8192
"""

from __future__ import annotations

import json
import tomllib
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from nvcoll._nvcoll import InvalidArgument, training_models, training_software
from nvcoll.training import hub
from nvcoll.training.options import Fields, PlanOptions


@cache
def models() -> dict[str, Fields]:
    """Returns the models that are shipped, by name."""
    return {row["name"]: row for row in json.loads(training_models())}


@cache
def software() -> dict[str, Fields]:
    """Returns the software that is shipped, by name."""
    return {row["name"]: row for row in json.loads(training_software())}


def model_of(model: str | Fields) -> Fields:
    """Returns the fields of a model.

    Args:
        model: the name of a model that is shipped, perhaps as a hub of weights writes it; a TOML file, or the fields
            themselves.

    Raises:
        InvalidArgument: there is no such model, or the file is no TOML.
        OSError: the file cannot be read.
    """
    if not isinstance(model, str):
        return model
    if known := shipped(model):
        return models()[known]
    if model.endswith(".toml"):
        return {"name": Path(model).stem} | _from_toml(model)
    if Path(model).suffix in (".json", ".sh") or model.startswith(("/", ".", "~")):
        Path(model).open().close()
        raise InvalidArgument(f"{model} is no TOML of a model: pass nvcoll.training.configurations.read(FILE).model")
    near = get_close_matches("-".join(hub.words(model)), models(), n=5, cutoff=0.5)
    hint = f"did you mean {', '.join(near)}? " if near else ""
    raise InvalidArgument(
        f"no model is called `{model}`: {hint}pass its config.json, a TOML file, "
        f"or one of {len(models())} names: `nvcoll plan --list`"
    )


def shipped(name: str) -> str | None:
    """Returns the shipped model that a name means, as `nvcoll.training.hub` reads names; None if there is none."""
    return name.lower() if name.lower() in models() else hub.shipped(name, models())


def is_model(name: str) -> bool:
    """Says whether `model_of` reads it: the name of a model that is shipped, or a TOML file with the fields of one."""
    return shipped(name) is not None or (name.endswith(".toml") and {"layers", "hidden"} <= _from_toml(name).keys())


def software_of(name: str | Fields, overrides: Fields | None = None) -> Fields:
    """Returns the fields of a software profile, with some replaced.

    Args:
        name: the name of software that is shipped, a TOML file, or the fields themselves.
        overrides: fields that replace fields of the profile.

    Raises:
        InvalidArgument: there is no such software, or no such field.
    """
    if not isinstance(name, str):
        return name
    if name.endswith(".toml"):
        fields: Fields = _from_toml(name)
        if "like" in fields:
            return software_of(fields["like"], {key: value for key, value in fields.items() if key != "like"})
        return fields
    if name not in software():
        raise InvalidArgument(f"no software is called `{name}`: choose from {', '.join(software())}")
    known = software()[name]
    if options := sorted((overrides or {}).keys() & PlanOptions.__annotations__.keys() - known.keys()):
        option = f"--{options[0].replace('_', '-')}"
        raise InvalidArgument(f"`{options[0]}` is no field of software, but an option: pass {option}")
    return {**known, **(overrides or {})}


def _from_toml(file: str) -> dict[str, Any]:
    try:
        found = tomllib.loads(Path(file).read_text())
    except RecursionError:
        raise InvalidArgument(
            f"{file}: its values are nested too deeply: pass fields with numbers, texts and lists"
        ) from None
    except ValueError as error:  # of TOML, of UTF-8, and of integers with thousands of digits
        raise InvalidArgument(f"{file}: {str(error).partition('; use sys.')[0]}") from None
    if not found:
        raise InvalidArgument(f"{file} is empty: pass the fields of a model")
    return found
