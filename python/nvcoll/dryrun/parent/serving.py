"""Operators of model servers that nvcoll knows by name: their own collectives, and attention over cached keys.

Attention gets the new tokens, and finds those before them in the cache of its layer::

    unified_attention        (tokens, heads, head), (tokens, heads of keys, head), the same of values
    sgl_kernel::fwd          (tokens, heads, head), (pages, tokens of a page, heads of keys, head), the same of values
    unified_mla_attention    (tokens, heads, head), (tokens, latent), (tokens, 1, rotary): the last two are cached, and
                             are keys and values of all heads in a decode iteration; prefill computes those of each head
"""

from __future__ import annotations

import math
from typing import Literal

from nvcoll._nvcoll import Issue, RankBuilder
from nvcoll.dryrun.parent import attention
from nvcoll.dryrun.parent.products import width
from nvcoll.dryrun.wire.rank_recording import Op
from nvcoll.dryrun.wire.served import Served

OWN = {"vllm::all_reduce": "all_reduce", "sglang::outplace_all_reduce": "all_reduce"}
"""Operators by which servers communicate over the memory of their peers, where they launch kernels of their own."""


CACHED = ("sgl_kernel::fwd", "_fwd_grouped_kernel_stage1", "_fwd_kernel_stage1", "_fwd_kernel")
"""Attention of SGLang: of FlashAttention, and in Triton. It gets the cache of its layer."""


def collective(op: Op) -> str:
    """Returns the collective that an operator of a server is; "" if it is none."""
    return OWN.get(op.name, "")


def rule_of(server: str) -> Literal["vllm", "sglang"] | None:
    """Returns the server whose rule chooses the kernels of an all_reduce; None: NCCL runs them."""
    return "vllm" if server.startswith("vLLM") else "sglang" if server.startswith("SGLang") else None


def bytes_of(op: Op) -> int:
    """Returns the bytes of such a collective, as nccl-tests counts them."""
    shape, dtype = op.inputs[0]
    return int(math.prod(shape) * width(dtype))


def attends(op: Op) -> bool:
    """Says whether an operator is attention over the cache of a server."""
    if len(op.inputs) < 3:
        return False
    (queries, _), (keys, _) = op.inputs[:2]
    return _gets_new(op) or (op.name in CACHED and len(queries) == 3 and queries[-1] == keys[-1])


def _gets_new(op: Op) -> bool:
    """Says whether attention gets the keys of the new tokens; others get the cache."""
    return op.name.startswith("vllm::") and "attention" in op.name


def _cached(op: Op) -> tuple[int, float]:
    """Returns the elements that the cache has of a token, and the bytes that attention moves beside the cache."""
    _, keys, values = (shape for shape, _ in op.inputs[:3])
    if _gets_new(op):
        return math.prod(keys[1:]) + math.prod(values[1:]), op.bytes
    is_latent = keys[-2] == 1 and values[-1] < keys[-1]  # its values are a part of its keys
    return math.prod(keys[-2:]) + math.prod(values[-2:]) * (not is_latent), attention.bytes_beside(op)


def attend(rank: RankBuilder, placed: Issue, op: Op, served: Served, layer: int = 0) -> int:
    """Issues such attention of a layer, with the keys that each sequence has, and returns its handle."""
    window = served.windows[layer % len(served.windows)] if served.windows else 0
    (queries, _), (keys, _), (values, _) = op.inputs[:3]
    (heads, qk_dim), v_dim = queries[-2:], values[-1]
    of_token, beside = _cached(op)
    if not _gets_new(op) and keys[-2] == 1 and v_dim > qk_dim:  # the cache has rotary and latent keys apart
        qk_dim = of_token
    read = served.read(window) + (0 if _gets_new(op) else sum(served.new))
    if "mla" in op.name:
        qk_dim, v_dim = (of_token, keys[-1]) if served.kind == "decode" else (qk_dim, qk_dim - values[-1])
    return rank.attention(
        placed,
        sum(served.new) / len(served.new),
        served.pairs(window) / sum(served.new),
        sequences=len(served.new),
        heads=heads,
        qk_dim=qk_dim,
        v_dim=v_dim,
        kernel="fa2",
        causal=False,
        nbytes=beside + read * of_token * served.cache.element_bytes,
    )
