"""Tokens of a recorded step, for tokens per second.

Tokens are the integers that the largest embedding of a rank reads in the forward pass, times the number of ranks with
different data: all groups except tensor and pipeline parallelism. Without an embedding, ``--tokens`` sets the number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from nvcoll._nvcoll import group_word
from nvcoll.dryrun.parent.roles import pipeline_of
from nvcoll.dryrun.wire.rank_recording import Group, RankRecording
from nvcoll.text.formatting import counted


def tokens_of(recordings: Sequence[RankRecording]) -> tuple[float, str]:
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
    return 0.0, "no embedding reads tokens: pass --tokens"


def sizes_of(groups: Mapping[int, Group]) -> dict[str, int]:
    """Returns the number of ranks of each part of the layout, by its word; the largest group of a word counts."""
    found: dict[str, int] = {}
    for group in groups.values():
        if (word := group_word(group.name)) is not None:
            found[word] = max(found.get(word, 1), len(group.ranks))
    return found
