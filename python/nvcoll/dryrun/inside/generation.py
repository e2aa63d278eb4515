"""Lengths of what `generate` of transformers makes: its tokens have no values, so none of them ends a response.

::

    EosTokenCriteria looks at the last token of each row -> here: an end if the row has its length, no end before
    MaxLengthCriteria                                    -> as ever: a response is no longer than the script allows

Lengths of the rows of a batch lie evenly between two numbers, shortest first; without numbers no row ends by itself.
The token is written where it lies, so masks that a trainer makes of ends have these lengths, too.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from nvcoll.dryrun.inside import private
from nvcoll.dryrun.inside.data import Data
from nvcoll.dryrun.inside.imports import OnFirstUse

TRIGGER = "transformers.generation.utils"
"""The module that uses the criterion."""


def install(data: Data, between: Sequence[int]) -> None:
    """Prepares transformers when it is used.

    Args:
        data: the values of the GPU.
        between: the least and the largest number of tokens of a response; empty: as long as the script allows.
    """
    sys.meta_path.insert(0, OnFirstUse(TRIGGER, lambda: _install(data, between)))


def _install(data: Data, between: Sequence[int]) -> None:
    stopping_criteria = importlib.import_module("transformers.generation.stopping_criteria")

    def around(ends: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def ending(this: Any, tokens: torch.Tensor, *args: object, **kwargs: object) -> torch.Tensor:
            if tokens.is_cuda:
                if not hasattr(this, "nvcoll_prompt"):  # there is a criterion for each call of `generate`
                    this.nvcoll_prompt = tokens.shape[1] - 1
                    data.assume(_words(between))
                last, (end, *_) = data.mirror(tokens)[:, -1], this.eos_token_id.flatten().tolist()
                lengths = _lengths(len(last), between)
                made = tokens.shape[1] - this.nvcoll_prompt
                last[(lengths > made) & (last == end)] = end + 1 if end == 0 else end - 1
                last[lengths == made] = end
            return ends(this, tokens, *args, **kwargs)

        return ending

    private.wrap(stopping_criteria.EosTokenCriteria, "__call__", around)


def _lengths(rows: int, between: Sequence[int]) -> torch.Tensor:
    low, high = between or (sys.maxsize, sys.maxsize)
    return torch.tensor([low + (high - low) * (2 * row + 1) // (2 * rows) for row in range(rows)])


def _words(between: Sequence[int]) -> str:
    if not between:
        return "responses of `generate` are as long as the script allows: --response-tokens sets their lengths"
    return f"responses of `generate` have {' to '.join(map(str, dict.fromkeys(between)))} tokens (--response-tokens)"
