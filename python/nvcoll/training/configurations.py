"""Reads a configuration of a framework, in any of the formats of one table.

A format is recognised by the content of the file, never by its name.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from nvcoll.errors import InvalidArgument
from nvcoll.training import (
    accelerate,
    automodel,
    deepspeed,
    huggingface,
    megatron,
    nanochat,
    nemo,
    primus,
    recipes,
    torchtitan,
    torchtitan_python,
)
from nvcoll.training.fields import Configuration, Fields, Gpus

LARGEST_FILE: Final = 1 << 18
"""The bytes of the largest file that is read. Chosen: configurations have some KiB."""


@lru_cache(maxsize=1)
def _yaml(text: str) -> object:
    """Parses YAML.

    Raises:
        ValueError: it is none with fields, or PyYAML is not installed.
    """
    try:
        yaml = import_module("yaml")
    except ImportError:
        raise ValueError from None
    try:
        values = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError:
        raise ValueError from None
    if not isinstance(values, dict):
        raise ValueError
    return values


FORMATS: Final[tuple[tuple[str, Callable[[str], Any], ModuleType | recipes.Recipe], ...]] = (
    ("config.json of transformers", json.loads, huggingface),
    ("JSON of DeepSpeed", json.loads, deepspeed),
    ("TOML of torchtitan", tomllib.loads, torchtitan),
    *((one.table["title"], _yaml, one) for one in recipes.RECIPES if "needs" in one.table),
    ("YAML of accelerate", _yaml, accelerate),
    ("YAML of NeMo Automodel", _yaml, automodel),
    ("YAML of Primus", _yaml, primus),
    ("YAML of NeMo with Megatron-Core", _yaml, nemo),
    ("arguments of Megatron-LM, also in a shell script", str, megatron),
    ("a command of nanochat", str, nanochat),
    *((one.table["title"], str, one) for one in recipes.RECIPES if "command" in one.table),
)
"""All formats: title, parser, module. The first whose `is_read` recognises a file reads it."""


def read(path: str | PathLike[str], *, gpus: int | None = None, machine_gpus: int | None = None) -> Configuration:
    """Returns what a file says of a training step.

    Args:
        path: the file, a script with its arguments as ``run.sh 8B 1``, a folder with a ``config.json``, or a function
            of torchtitan, ``config_registry.py:llama3_8b``, which is read and not called.
        gpus: the number of GPUs of the job, whatever the file says.
        machine_gpus: the number that counts if neither `gpus` nor the file says one.

    Raises:
        InvalidArgument: no format recognises the file, or a field is missing or wrong.
        OSError: the file cannot be read.
    """
    where = str(path)
    if torchtitan_python.is_function(where):
        values, notes = torchtitan_python.values(where)
        job = torchtitan.read(values, where, _counts(where, gpus, machine_gpus))
        return replace(job, notes=[*notes, *job.notes])
    where, arguments = script(where)
    data = (Path(where) / "config.json" if Path(where).is_dir() else Path(where)).read_bytes()
    if len(data) > LARGEST_FILE:
        raise InvalidArgument(
            f"{where} has {len(data)} bytes, at most {LARGEST_FILE} were expected: pass a configuration"
        )
    text = data.decode(errors="replace")
    return from_text(f"set -- {arguments}\n{text}" if arguments else text, where, gpus=gpus, machine_gpus=machine_gpus)


def script(name: str) -> tuple[str, str]:
    """Returns the file and the arguments of ``run.sh 8B 1 64``; a name of a file, or of none, is returned as it is."""
    file, _, arguments = name.partition(" ")
    is_script = file.endswith(".sh") and Path(file).is_file() and not Path(name).exists()
    return (file, arguments.replace("\n", " ")) if is_script else (name, "")


def from_text(
    text: str, where: str = "text", *, gpus: int | None = None, machine_gpus: int | None = None
) -> Configuration:
    """Returns what a text says of a training step; arguments and errors as of `read`, where names the text."""
    counts = _counts(where, gpus, machine_gpus)
    if "Trainer.Config" in text and "torchtitan" in text:
        raise InvalidArgument(f"{where} has jobs of torchtitan in Python: pass a function of it, as {where}:llama3_8b")
    for _, parse, reader in FORMATS:
        try:
            values = parse(text)
        except (ValueError, RecursionError):
            continue
        if reader.is_read(values):
            found: Configuration = reader.read(values, where, counts)
            return found
    formats = "; ".join(dict.fromkeys(title for title, *_ in FORMATS))
    formats += "" if find_spec("yaml") else "; install PyYAML for YAML"
    what = "has none of the formats that are read" if text.strip() else "is empty: pass one of these formats"
    raise InvalidArgument(f"{where} {what}: {formats}")


def _counts(where: str, gpus: int | None, machine_gpus: int | None) -> Gpus:
    return Gpus(None if gpus is None else Fields({"gpus": gpus}, where).number("gpus"), machine_gpus)
