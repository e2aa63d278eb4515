"""Tokens of a recorded step, for tokens per second.

Tokens are the integers that the largest embedding of a rank reads in forward passes with gradients, times the number of
ranks with different data: all groups except tensor and pipeline parallelism. Tables of one shape that read the same
integers count as one. One integer for each image of a convolution is no token: a class, or a time of diffusion. Without
an embedding, ``--tokens`` sets the number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from nvcoll._nvcoll import group_word
from nvcoll.dryrun.parent.roles import pipeline_of
from nvcoll.dryrun.wire.rank_recording import EMBEDDING, Group, Op, RankRecording
from nvcoll.text.formatting import counted

Shape = tuple[int, ...]


def tokens_of(recordings: Sequence[RankRecording]) -> tuple[float, str]:
    """Returns the tokens of a step of all ranks, and how they were found."""
    for one in recordings:
        read = _read(one.ops)
        stages = {rank for stages in map(pipeline_of, recordings) if stages for rank in stages.ranks}
        if one.served is not None:
            replicas = max(1, one.world_size // (len(one.served.ranks) * max(1, len(stages))))
            return float(sum(one.served.new) * replicas), f"of {one.served.words}"
        if any(read.values()):
            others = sizes_of(one.groups).get("tp", 1) * max(1, len(stages))
            readers = max(1, one.world_size // others)
            of_rank = max(read.values())
            return float(
                of_rank * readers
            ), f"{of_rank:,} that the embedding of a rank reads x {counted(readers, 'rank')}"
    return 0.0, "no embedding reads tokens: pass --tokens"


def _read(ops: Sequence[Op]) -> Counter[Shape]:
    """Returns the integers that tables of each shape read in the forward pass: in passes with gradients, if some do."""
    of_table = Counter[tuple[Shape, int, int]]()
    images = {op.inputs[0][0][0] for op in ops if "convolution" in op.name and op.inputs and op.inputs[0][0]}
    found = [op for op in ops if EMBEDDING in op.name and "backward" not in op.name and not op.is_backward]
    for op in [op for op in found if op.trains] or found:
        inputs = [*zip(op.inputs, op.numbers or [0] * len(op.inputs), strict=True)]
        tables: list[tuple[Shape, int]] = [
            (shape, nth) for (shape, dtype), nth in inputs if "float" in dtype and len(shape) == 2
        ]
        integers = [(math.prod(shape), nth) for (shape, dtype), nth in inputs if dtype in ("int64", "int32")]
        integers = [(count, nth) for count, nth in integers if count not in images]
        (shape, table), (count, tokens) = (tables or [((), 0)])[0], max(integers, default=(0, 0))
        of_table[shape, tokens, table] += count
    of_tokens: dict[tuple[Shape, int], int] = {}
    for (shape, tokens, _), count in of_table.items():
        of_tokens[shape, tokens] = max(of_tokens.get((shape, tokens), 0), count)
    read = Counter[Shape]()
    for (shape, _), count in of_tokens.items():
        read[shape] += count
    return read


def sizes_of(groups: Mapping[int, Group]) -> dict[str, int]:
    """Returns the number of ranks of each part of the layout, by its word; the largest group of a word counts."""
    found: dict[str, int] = {}
    for group in groups.values():
        if (word := group_word(group.name)) is not None:
            found[word] = max(found.get(word, 1), len(group.ranks))
    return found
