"""`generate` of transformers in a dry run: each forward pass is an iteration.

`generate` prepares the inputs of each pass: its prompt, or a part of it; then a token of each sequence. The keys and
values before them are in a cache that grows as it is used, so there is no room to report.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from nvcoll.dryrun.inside import private
from nvcoll.dryrun.inside.imports import AfterImport
from nvcoll.dryrun.inside.serving import Iterations
from nvcoll.dryrun.wire.served import KvCache, Served


def install(iterations: Iterations) -> None:
    """Prepares transformers for when it is imported."""

    def preparing(prepare: Callable[..., Any]) -> Callable[..., Any]:
        def prepared(this: Any, *args: object, **kwargs: object) -> Any:
            inputs = prepare(this, *args, **kwargs)
            iterations.begins(_served(this, inputs))
            return inputs

        return prepared

    def ending(generate: Callable[..., object]) -> Callable[..., object]:
        def generating(this: Any, *args: object, **kwargs: object) -> object:
            found = generate(this, *args, **kwargs)
            iterations.begins(None)
            return found

        return generating

    def change(module: Any) -> None:
        private.wrap(module.GenerationMixin, "prepare_inputs_for_generation", preparing)
        private.wrap(module.GenerationMixin, "generate", ending)

    sys.meta_path.insert(0, AfterImport("transformers.generation.utils", change))


def _served(model: Any, inputs: dict[str, Any]) -> Served:
    names = ("input_ids", "decoder_input_ids", "inputs_embeds")
    sequences, new = next(inputs[name] for name in names if inputs.get(name) is not None).shape[:2]
    cache = inputs.get("past_key_values")
    seen = int(cache.get_seq_length()) if cache is not None else 0
    size, rank = getattr(model, "tp_size", None) or 1, int(os.environ["RANK"])
    ranks = tuple(range(rank - rank % size, rank - rank % size + size))
    longest = getattr(model.config, "max_position_embeddings", 0)
    return Served(
        f"transformers {version('transformers')}",
        (new,) * sequences,
        (seen,) * sequences,
        KvCache(0, 0, longest),
        ranks,
    )
