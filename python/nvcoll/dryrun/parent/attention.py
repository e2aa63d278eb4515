"""Fused attention in a recording: recognises its operators, and finds their shapes.

Queries, keys and values are the first tensors of the operator, after the gradient of the output in a backward pass::

    aten::_scaled_dot_product_*     (batch, heads, tokens, head)
    flash_attn, aten::_flash_*,     (batch, tokens, heads, head), or (tokens, heads, head) of packed sequences
    aten::_efficient_*
    flex_attention of Inductor      either order; the larger dimension counts as tokens

Operators say whether they are causal, and which keys queries see of packed sequences, caches and windows. Masks of
others are data: these count as causal if queries and keys have the same length.
"""

from __future__ import annotations

import math

from nvcoll._nvcoll import Issue, RankBuilder
from nvcoll.dryrun.parent.products import width
from nvcoll.dryrun.wire.rank_recording import Op

HEADS_FIRST = ("scaled_dot_product", "cudnn_attention")
"""Parts of names of operators whose heads come before their tokens."""

FLEX = "flex_attention"
"""A part of the names of Inductor's kernels of attention, and of kernels directly before and after them."""

BESIDE_FLEX = ("triton_poi", "triton_red", "triton_per")
"""Beginnings of the names of Inductor's other kernels: element-wise ones and reductions."""

SAY = ("aten::", "flash_attn", "torch_attn")
"""Beginnings of the names of operators that say whether they are causal."""

NAMES = ("attention", "attn")
"""Parts of the names of operators of fused attention."""


def is_attention(op: Op) -> bool:
    """Says whether an operator is fused attention, whose tensors are queries, keys and values."""
    name = op.name.lower()
    is_named = any(word in name for word in NAMES) and "math" not in name
    if not (is_named or op.pairs) or len(op.inputs) < 3:
        return False
    if name.startswith(BESIDE_FLEX):
        return False
    return _tensors(op) is not None


def _tensors(op: Op) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None:
    """Returns the shapes of queries, keys and values, each of four dimensions with heads first."""
    shapes = [shape for shape, _ in op.inputs]
    if is_backward(op) and len(shapes) >= 4 and len(shapes[0]) == len(shapes[3]) and "flex" not in op.name:
        shapes = shapes[1:]
    found = [_heads_first(shape, op.name) for shape in shapes[:3]]
    if any(shape is None for shape in found):
        return None
    queries, keys, values = found
    assert queries is not None and keys is not None and values is not None
    same = queries[3] == keys[3] and keys[2] == values[2] and (keys[0] == queries[0] or op.pairs > 0)
    return (queries, keys, values) if same and queries[1] % max(1, keys[1]) == 0 else None


def _heads_first(shape: tuple[int, ...], name: str) -> tuple[int, int, int, int] | None:
    if len(shape) == 3:  # packed sequences
        return 1, shape[1], shape[0], shape[2]
    if len(shape) != 4:
        return None
    batch, one, two, head = shape
    if FLEX in name:
        return batch, min(one, two), max(one, two), head
    return (batch, one, two, head) if any(part in name for part in HEADS_FIRST) else (batch, two, one, head)


def is_backward(op: Op) -> bool:
    """Says whether an operator of attention is of the backward pass."""
    return "backward" in op.name or "bwd" in op.name


def issue(rank: RankBuilder, placed: Issue, op: Op) -> int:
    """Issues the attention of an operator, and returns its handle."""
    tensors = _tensors(op)
    assert tensors is not None, "is_attention was asked before"
    (sequences, heads, queries, qk_dim), (_, _, keys, _), (*_, v_dim) = tensors
    return rank.attention(
        placed,
        queries,
        op.pairs / queries if op.pairs else keys,
        sequences=sequences,
        heads=heads,
        qk_dim=qk_dim,
        v_dim=v_dim,
        kernel="cudnn" if "cudnn" in op.name else "fa1" if "efficient" in op.name else "fa2",
        again=is_backward(op),
        causal=op.is_causal if op.name.startswith(SAY) or op.pairs else queries == keys,
        nbytes=op.bytes,
    )


def bytes_beside(op: Op) -> float:
    """Returns the bytes of a further kernel of a forward pass, which joins the results of parts of the keys."""
    return 2.0 * math.prod(op.inputs[0][0]) * width(op.inputs[0][1])
