"""Tokens, FLOPs and precision of a recorded step, for tokens per second and MFU.

FLOPs of the model are those of the forward pass, and those of the backward pass, but at most twice as many: further
FLOPs are recomputation (activation checkpointing), which does not count. Operators of a backward pass are those that
torch's autograd engine issued. If it issued none, as with compiled autograd, everything counts.

Tokens are the integers that the largest embedding of a rank reads in the forward pass, times the number of ranks with
different data: all but those of tensor and pipeline parallelism. Without an embedding, ``--tokens`` sets the number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from nvcoll.dryrun import attention
from nvcoll.dryrun.groups import sizes_of
from nvcoll.dryrun.products import flops_of, grouped, precision_of
from nvcoll.dryrun.recording import Op, Recording
from nvcoll.dryrun.roles import pipeline_of
from nvcoll.dryrun.rows import rows_of
from nvcoll.dryrun.wire import Kind
from nvcoll.text.formatting import counted

BACKWARD = 2.0
"""FLOPs of a backward pass in those of the forward pass: gradients of inputs and of weights."""


@dataclass(frozen=True)
class Totals:
    """Totals of all ranks in a step.

    Attributes:
        tokens: tokens; 0: not known.
        found: how the tokens were found, in words.
        model_flops: FLOPs of the model.
        hardware_flops: FLOPs that were computed, recomputation included.
        dtype: the precision of most FLOPs.
        products: the number of matrix products of the recorded ranks.
    """

    tokens: float
    found: str
    model_flops: float
    hardware_flops: float
    dtype: str
    products: int

    @classmethod
    def of(cls, recordings: Sequence[Recording], stands_for: Sequence[int]) -> Totals:
        """Counts the work of recorded ranks, each times the number of ranks for which it stands."""
        model = hardware = 0.0
        products, dtypes = 0, Counter[str]()
        for one, count in zip(recordings, stands_for, strict=True):
            of_rank = _Flops(one)
            model += count * of_rank.model
            hardware += count * of_rank.all
            products += of_rank.products
            dtypes.update({dtype: count * flops for dtype, flops in of_rank.dtypes.items()})
        tokens, found = tokens_of(recordings)
        dtype = max(dtypes, key=lambda one: dtypes[one], default="bf16")
        return cls(tokens, found, model, hardware, dtype, products)


class _Flops:
    """The FLOPs of one rank."""

    def __init__(self, recording: Recording) -> None:
        self.products, self.dtypes = 0, Counter[str]()
        passes = {False: 0.0, True: 0.0}
        ops = recording.ops
        seen: set[int] = set()
        attended = attended_again = 0.0
        rows = list(rows_of(recording.records))
        of_products = {op for kind, *_, op, _args in rows if kind == Kind.GEMM}  # such convolutions count as these
        for kind, *_, op, args in rows:
            found = ops[op] if op < len(ops) else Op("")
            if kind == Kind.GEMM:
                flops = 2.0 * args[0] * args[1] * args[2] * max(1, args[3])
                self.products += 1
                self.dtypes[precision_of(args[5])] += int(flops)
                passes[found.is_backward] += flops
            elif kind == Kind.LAUNCH and op and op not in seen:
                seen.add(op)
                if attention.is_attention(found):
                    one = attention.forward_flops(found)
                    if attention.is_backward(found):
                        attended_again += 2.5 * one
                    elif found.is_backward:
                        attended_again += one
                    else:
                        attended += one
                elif (experts := grouped(found)) is not None:
                    self.products += 1
                    self.dtypes[experts["dtype"]] += int(flops_of(experts))
                    passes[found.is_backward] += flops_of(experts)
                elif "convolution" in found.name and found.flops and op not in of_products:
                    passes[found.is_backward or "backward" in found.name] += found.flops
        self.all = passes[False] + passes[True] + attended + attended_again
        self.model = passes[False] + min(passes[True], BACKWARD * passes[False])
        self.model += attended + min(attended_again, BACKWARD * attended)
        if not passes[False]:
            self.model = self.all


def tokens_of(recordings: Sequence[Recording]) -> tuple[float, str]:
    """Returns the tokens of a step of all ranks, and how they were found."""
    for one in recordings:
        read: Counter[tuple[int, ...]] = Counter()
        for op in one.ops:
            if "embedding" in op.name and "backward" not in op.name and not op.is_backward:
                tables = [shape for shape, dtype in op.inputs if "float" in dtype and len(shape) == 2]
                read[tables[0] if tables else ()] += max(
                    (math.prod(shape) for shape, dtype in op.inputs if dtype in ("int64", "int32")), default=0
                )
        if any(read.values()):
            stages = {rank for stages in map(pipeline_of, recordings) if stages for rank in stages.ranks}
            others = sizes_of(one.groups).get("tp", 1) * max(1, len(stages))
            readers = max(1, one.world_size // others)
            of_rank = max(read.values())
            return float(
                of_rank * readers
            ), f"{of_rank:,} that the embedding of a rank reads x {counted(readers, 'rank')}"
    return 0.0, "no embedding reads tokens: --tokens says them"
