"""What a server is asked for, once: keywords of `serve` and `layouts`, options of ``nvcoll serve``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any, Final, Literal, TypedDict, cast

from nvcoll._nvcoll import InvalidArgument, serving_software
from nvcoll.training import configurations, hub
from nvcoll.training.models import model_of, models

Precision = Literal["bf16", "fp8", "nvfp4", "mxfp4", "int4"]
Cache = Literal["bf16", "fp8"]

LENGTH: Final = 1024
"""Tokens of a prompt, and of an answer, by default: those of most public benchmarks."""

CONCURRENCY: Final = 16
"""Requests under way at once by default. Chosen."""

SERVER: Final = "vllm"
"""The server by default."""

CACHE_BYTES: Final[Mapping[str, int]] = {"bf16": 2, "fp8": 1}
"""Bytes of an element of the cache, by its format."""

SIZES: Final = {"tp": "tensor", "pp": "stages", "ep": "expert", "dp_attention": "attention_copies", "copies": "copies"}
"""The sizes of a layout: the words of people, and the fields of ``ServingLayout`` in Rust."""


class ServeOptions(TypedDict, total=False):
    """What to serve, besides model and machine; what is absent has its default.

    ``input``, ``output``: tokens of a prompt and of an answer, mean. ``concurrency``: requests under way at once;
    ``rate``: requests a second instead. ``precision``: the format of weights; ``cache``: that of keys and values.
    ``tp``, ``pp``, ``ep``: ranks that divide layers, stages, parts of the experts. ``dp_attention``: groups that each
    attend to requests of their own. ``copies``: servers. ``server``: its name; ``overrides``: some of its fields.
    ``speculate``: tokens that are drafted in an iteration; ``accept``: the part of them that is accepted, of those
    whose predecessors were; ``draft``: ``head`` (one more layer: EAGLE, multi-token prediction), ``ngram``, or a model.
    ``record``: a file with iterations of the installed server (`nvcoll.serving.recorded`), instead of planned ones.
    """

    input: float
    output: float
    concurrency: float | None
    rate: float | None
    precision: Precision
    cache: Cache
    tp: int | None
    pp: int | None
    ep: int | None
    dp_attention: int | None
    copies: int | None
    server: str
    overrides: Mapping[str, Any]
    speculate: int | None
    accept: float | None
    draft: str | Mapping[str, Any] | None
    record: str | PathLike[str] | None


@cache
def servers() -> dict[str, Mapping[str, Any]]:
    """Returns the servers that are known, by name."""
    return {row["name"]: row for row in json.loads(serving_software())}


def server_of(name: str) -> Mapping[str, Any]:
    """Returns a server by its name, or by that of its software, as tensorrt-llm.

    Raises:
        InvalidArgument: there is none.
    """
    titles = {row["title"].partition(",")[0].lower(): row for row in servers().values()}
    if (row := servers().get(name) or titles.get(name.lower())) is None:
        raise InvalidArgument(f"no server is called `{name}`: choose from {', '.join(servers())}")
    return row


def asked(model: str | Mapping[str, Any], how: ServeOptions) -> dict[str, Any]:
    """Returns what Rust is asked, without the layout.

    Raises:
        InvalidArgument: a name or an option is unknown.
    """
    if unknown := sorted(how.keys() - ServeOptions.__annotations__.keys()):
        known = ", ".join(ServeOptions.__annotations__)
        raise InvalidArgument(f"no option of a server is called `{unknown[0]}`: choose from {known}")
    rate = how.get("rate")
    load = {"rate": rate} if rate is not None else {"concurrency": how.get("concurrency") or CONCURRENCY}
    load |= {"input": how.get("input", LENGTH), "output": how.get("output", LENGTH)}
    precision = how.get("precision") or (isinstance(model, str) and hub.weights(model, models())) or "bf16"
    if isinstance(model, str):
        file = Path(model) if model.endswith(".json") else Path(model, "config.json")
        if file.is_file():
            model = cast(Mapping[str, Any], configurations.read(file).words()["model"])
    return {
        "model": model_of(model),
        "software": {**server_of(how.get("server", SERVER)), **how.get("overrides", {})},
        "precision": precision,
        "cache_bytes": CACHE_BYTES[how.get("cache", "bf16")],
        "load": load,
        **_speculation(how),
    }


def _speculation(how: ServeOptions) -> dict[str, Any]:
    """Returns how tokens are drafted, if any are.

    Raises:
        InvalidArgument: no tokens are drafted, or their acceptance is not known.
    """
    tokens, accept, draft = how.get("speculate"), how.get("accept"), how.get("draft")
    if tokens is None and accept is None and draft is None:
        return {}
    if tokens is None or accept is None:
        raise InvalidArgument(
            "speculative decoding needs `speculate`, the tokens that are drafted, and `accept`, the part of them that "
            "is accepted: servers log it, 0.6 to 0.9 is usual"
        )
    drafts = draft or "head"
    return {"speculation": {
        "tokens": tokens,
        "acceptance": accept,
        "draft": drafts if drafts in ("head", "ngram") else {"model": model_of(drafts)},
    }}  # fmt: skip
