"""Operators of model servers that nvcoll knows by name: their own collectives, and attention over cached keys."""

from __future__ import annotations

import math

from nvcoll.dryrun.parent.products import width
from nvcoll.dryrun.wire.rank_recording import Op

OWN = {"vllm::all_reduce": "all_reduce"}
"""Operators by which servers communicate over the memory of their peers, where they launch kernels of their own."""


def collective(op: Op) -> str:
    """Returns the collective that an operator of a server is; "" if it is none."""
    return OWN.get(op.name, "")


def bytes_of(op: Op) -> int:
    """Returns the bytes of such a collective, as nccl-tests counts them."""
    shape, dtype = op.inputs[0]
    return math.prod(shape) * width(dtype)
