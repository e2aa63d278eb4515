"""Reads the command of nanochat's `scripts/base_train.py`: its model follows from the depth.

Layers with values of tokens (value embeddings) and scalars of the residual stream are not read.
"""

from __future__ import annotations

import math
import re
from typing import Final

from nvcoll.training import finetuning, shell
from nvcoll.training.fields import Configuration, Fields, Gpus

COMMAND: Final = r"\bscripts[./]base_train\b"
VOCABULARY: Final = 32768
"""The tokens of its tokenizer: `scripts/tok_train.py`."""
WITHOUT_EFFECT: Final = (
    "run|device-type|fp8-recipe|num-iterations|target-.*|.*-lr|weight-decay|war.*|final.*|resume.*|eval.*|core.*|"
    "sample.*|save.*|model-tag|standalone|nproc-per-node"
)


def is_read(text: str) -> bool:
    """Says whether a text has the command."""
    return re.search(COMMAND, text) is not None


def read(text: str, where: str, gpus: Gpus) -> Configuration:
    """Returns what a script says; `gpus` as of `nvcoll.training.configurations.read`.

    Raises:
        InvalidArgument: an argument is wrong.
    """
    said, notes = shell.words(text, where, COMMAND)
    fields = Fields(said, where)
    depth, head = fields.number("depth", default=20), fields.number("head-dim", default=128)
    heads = -(-depth * fields.number("aspect-ratio", default=64) // head)
    sequence = fields.number("max-seq-len", default=2048)
    model = _model(depth, heads, head, sequence)
    pattern = fields.typed(str, "window-pattern", "SSSL").upper()
    if "S" in pattern:
        model["window"] = {"tokens": -(-sequence // 512) * 128, "every": len(pattern) if "L" in pattern else 1}
        notes += (
            [f"the windows `{pattern}` count as one long layer of {len(pattern)}"] if pattern[:-1].count("L") else []
        )
    notes.append("value embeddings are not read")
    micro = fields.number("device-batch-size", default=32)
    count = gpus.of(fields.number("nproc-per-node", default=1) if "nproc-per-node" in said else None)
    tokens = (
        0 if str(fields.first("total-batch-size")) == "-1" else fields.number("total-batch-size", default=0, least=0)
    )
    if not tokens:  # half a million tokens at depth 12, and more as the power 0.383 of the products' parameters
        other = depth * 64 * (12 * depth * depth * 64 + VOCABULARY) / (12 * 64 * (12 * 12 * 12 * 64 + VOCABULARY))
        tokens = 2 ** round(19 + 0.383 * math.log2(other))
        notes.append(f"a step has {tokens} tokens, as its scaling law says")
    layout: dict[str, object] = {"zero": 2, "sequence": sequence, "optimizer": "muon"}
    layout |= {"global_batch": max(1, tokens // sequence)} | finetuning.batch(micro, 1, None)
    layout |= {"dp": count} if count else {}
    layout["dtype"] = "fp8" if fields.first("fp8") is True else "bf16"
    return Configuration(model, layout, "nanochat", notes=notes + fields.not_read(WITHOUT_EFFECT))


def _model(depth: int, heads: int, head: int, sequence: int) -> dict[str, object]:
    sizes = {"layers": depth, "hidden": heads * head, "heads": heads, "kv_heads": heads, "head_dim": head}
    more = {"ffn": 4 * heads * head, "gated": False, "vocab": VOCABULARY, "tied": False, "sequence": sequence}
    return {"name": f"nanochat-d{depth}", **sizes, **more}
