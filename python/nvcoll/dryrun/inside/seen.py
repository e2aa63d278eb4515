"""The keys that the queries of one call of attention see: of packed sequences, of caches in pages, in a window.

Queries of a sequence are its last tokens. A causal query sees keys up to its own, and at most a window of them::

    seen(q, k) = F(k) - F(k - q)     F(x) = x^2 / 2 in the window w, then w x - w^2 / 2
    read(q, k) = min(k, w + q)       of all tokens of keys and values, whose pages belong to many sequences

Lengths are arguments with the names below, in torch, flash_attn and the libraries of servers. Kernels of Triton have
the same names, with `_ptr`. Lengths that were not computed are assumed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch

from nvcoll.dryrun.inside.data import Data
from nvcoll.dryrun.inside.rules import ALL, bytes_of

QUERIES = ("query", "q")
KEYS, VALUES = (("key", "k", "kcache", "k_cache", "key_cache"), ("value", "v", "vcache", "v_cache", "value_cache"))
"""Names of keys and values; a cache comes after the tokens that the call adds to it."""
ENDS = ("cu_seq", "cum_seq")
"""Beginnings of names of the ends of packed sequences: of queries, then of keys."""
LENGTHS = ("seqused_k", "seqlens_k", "seqlen_k", "cache_seqlens", "seq_lens")
"""Names of the number of keys of each sequence."""
TABLES = frozenset({"block_table", "block_tables", "page_table"})
"""Names of the pages of each sequence."""
SIDES = (("window_size_left", "window_left"), ("window_size_right", "window_right"))
"""Names of the keys before and after its own that a query sees; -1: all."""
CAUSAL = ("is_causal", "causal", "custom_mask_type")
UNKNOWN = "attention has sequences as long as their tensors or pages: their lengths are not known"


class Seen(NamedTuple):
    """What a call of attention sees."""

    tensors: tuple[torch.Tensor, ...] = ()
    """Queries, keys and values; empty: not known, the first tensors."""
    pairs: int = 0
    """As `pairs` of a row."""
    is_causal: bool = False
    read: Mapping[int, int] = ALL
    """The bytes that are read of keys and values, by the identity of the tensor."""


WHOLE = Seen()
"""All queries of the first tensors see all keys."""


def seen_of(named: Mapping[str, object], data: Data) -> Seen:
    """Returns what a call sees, by its arguments."""
    left, right = _window(named)
    is_causal = right == 0 or any(bool(named.get(name)) for name in CAUSAL)
    queries, keys, values = (_last(named, names) for names in (QUERIES, KEYS, VALUES))
    if queries is None or keys is None or values is None:
        return Seen(is_causal=is_causal)
    lengths = _lengths(named, data, queries, keys)
    if lengths is None and left is None:
        return Seen(is_causal=is_causal)
    both = lengths or [(queries.shape[1], keys.shape[1])] * len(queries)
    window = math.inf if left is None else left + 1
    if is_causal:
        pairs = sum(2 * (_area(k, window) - _area(k - q, window)) for q, k in both)
    else:
        pairs = sum(q * min(k, window + (right or 0)) for q, k in both)
    part = min(1.0, sum(min(k, window + q) for q, k in both) / math.prod(keys.shape[:-2]))
    read = {id(each): int(part * bytes_of(each)) for each in (keys, values)}
    of_one = int(pairs) // (len(queries) if queries.dim() == 4 else 1)
    return Seen((queries, keys, values), max(1, of_one), is_causal, read)


def _lengths(
    named: Mapping[str, object], data: Data, queries: torch.Tensor, keys: torch.Tensor
) -> list[tuple[float, float]] | None:
    """Returns the queries and the keys of each sequence; None: tensors say them."""
    ends = [each for name, each in named.items() if name.startswith(ENDS) and isinstance(each, torch.Tensor)]
    used, table = _last(named, LENGTHS), _last(named, TABLES)
    if not ends and used is None:
        return None
    count = len(ends[0]) - 1 if ends else len(queries)
    of_queries, of_keys = ([math.prod(each.shape[:-2]) / count] * count for each in (queries, keys))
    if any(data.is_unknown(each) for each in (*ends, used) if each is not None):
        data.assume(UNKNOWN)
        return [*zip(of_queries, of_keys if table is None else [table.shape[1] * keys.shape[1]] * count, strict=True)]
    if ends:
        of_queries, of_keys = (data.mirror(each).diff().tolist() for each in (ends[0], ends[-1]))
    if used is not None:
        new = named.get("k")
        more = new.shape[1] if isinstance(new, torch.Tensor) and new is not keys else 0
        of_keys = (data.mirror(used) + more).tolist()
    return [*zip(of_queries, of_keys, strict=False)]


def _last(named: Mapping[str, object], names: Iterable[str]) -> torch.Tensor | None:
    found = [each for name in names if isinstance(each := named.get(name), torch.Tensor)]
    return found[-1] if found else None


def _window(named: Mapping[str, object]) -> tuple[int | None, int | None]:
    """Returns how many keys before and after its own a query sees; None: all."""
    window = named.get("window_size")
    if isinstance(window, int):  # of torch's memory-efficient attention: with the key of the query
        return (window - 1 if window > 0 else None), None
    apart = [next((named[name] for name in names if name in named), None) for names in SIDES]
    sides = window if isinstance(window, list | tuple) and len(window) == 2 else apart
    left, right = (each if isinstance(each, int) and each >= 0 else None for each in sides)
    return left, right


def _area(keys: float, window: float) -> float:
    """Returns the pairs of each query up to a key and the keys that it sees, were there a query for each key."""
    inside = min(max(0.0, keys), window)
    return inside * inside / 2 + (window * (keys - window) if keys > window else 0.0)
