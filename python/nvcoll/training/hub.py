"""Names of models as hubs of weights write them: ``Qwen/Qwen2.5-72B-Instruct-AWQ`` is qwen2.5-72b with weights in int4.

Words that change no dimension are left out: ``[hub]`` in `configurations.toml` has them. Nothing is fetched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from nvcoll.training.fields import TABLES, Fields

TABLE: Final = TABLES["hub"]
VARIANT: Final = re.compile(rf"({'|'.join(TABLE['variants'])}|\d{{4}})")
VERSION: Final = re.compile(r"v\d+(\.\d+)?")


def words(name: str) -> list[str]:
    """Returns the words of a name behind its organisation, in small letters."""
    return re.split(r"[-_ ]", name.lower().rstrip("/").rpartition("/")[2])


def shipped(name: str, known: Iterable[str]) -> str | None:
    """Returns the known model whose dimensions a name means; None if there is none."""
    said = [word for word in words(name) if word not in TABLE["weights"]]
    meant = {"".join(words(one)): one for one in known} | {"".join(words(a)): b for a, b in TABLE["same_as"].items()}
    plain = [word for word in said if not VARIANT.fullmatch(word)]
    unversioned = [word for word in plain if not VERSION.fullmatch(word)]
    return next((meant[key] for key in map("".join, (said, plain, unversioned)) if key in meant), None)


def weights(model: str, known: Iterable[str]) -> str | None:
    """Returns the format in which the weights of a model are stored, by its name or its ``config.json``."""
    file = Path(model) / "config.json" if Path(model).is_dir() else Path(model)
    said = words(model)
    if file.suffix == ".json" and file.is_file():
        quantized = Fields(json.loads(file.read_text()), model).part("quantization_config")
        said = [quantized.typed(str, name, "").lower() for name in ("quant_method", "quant_algo")]
        groups = quantized.part("config_groups")
        stored = [groups.part(name).part("weights").values for name in groups.values]
        said += [f"{one.get('type')}{one.get('num_bits')}" for one in stored]
    native: str | None = TABLE["native"].get(shipped(model, known))
    return next((TABLE["weights"][word] for word in said if word in TABLE["weights"]), native)
