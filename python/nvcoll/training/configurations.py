"""Reads a configuration of a framework, in any of the formats of one table.

A format is recognised by the content of the file, never by its name.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from nvcoll.errors import InvalidArgument
from nvcoll.training import deepspeed, huggingface, megatron, torchtitan
from nvcoll.training.fields import Configuration

LARGEST_FILE = 1 << 18
"""The bytes of the largest file that is read. Chosen: configurations have some KiB."""


@dataclass(frozen=True)
class Format:
    """A format of configurations: how its text is parsed, recognised and read."""

    title: str
    parse: Callable[[str], Any]
    is_read: Callable[[Any], bool]
    read: Callable[[Any, str, int | None], Configuration]


def _json(text: str) -> Mapping[str, Any]:
    values = json.loads(text)
    return values if isinstance(values, dict) else {}


FORMATS = (
    Format("config.json of transformers", _json, huggingface.is_read, huggingface.read),
    Format("JSON of DeepSpeed", _json, deepspeed.is_read, deepspeed.read),
    Format("TOML of torchtitan", tomllib.loads, torchtitan.is_read, torchtitan.read),
    Format("arguments of Megatron-LM, also in a shell script", str, megatron.is_read, megatron.read),
)
"""All formats; the first that recognises a file reads it."""


def read(path: str | PathLike[str], *, gpus: int | None = None) -> Configuration:
    """Returns what a file says of a training step.

    Args:
        path: the file.
        gpus: the number of GPUs of the job, if the file does not say it.

    Raises:
        InvalidArgument: the file cannot be read, no format recognises it, or a field is missing or wrong.
    """
    where = str(path)
    if gpus is not None and (not isinstance(gpus, int) or not 1 <= gpus <= 1 << 20):
        raise InvalidArgument(f"`gpus` is {gpus!r:.40}, a number from 1 to 2^20 was expected: correct it")
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{where} cannot be read ({error}): pass the path of a configuration") from error
    if len(data) > LARGEST_FILE:
        raise InvalidArgument(
            f"{where} has {len(data)} bytes, at most {LARGEST_FILE} were expected: pass a configuration"
        )
    return from_text(data.decode(errors="replace"), where, gpus=gpus)


def from_text(text: str, where: str = "text", *, gpus: int | None = None) -> Configuration:
    """Returns what a text says of a training step; arguments and errors as of `read`, where names the text."""
    for each in FORMATS:
        try:
            values = each.parse(text)
        except (ValueError, RecursionError):
            continue
        if each.is_read(values):
            return each.read(values, where, gpus)
    formats = "; ".join(each.title for each in FORMATS)
    raise InvalidArgument(f"{where} has none of the formats that are read: {formats}")
