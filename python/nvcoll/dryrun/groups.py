"""Names and shapes of the groups of ranks of a recording.

A step has groups with name, size, stride and runs (``docs/training-step.md``). The name says to which part of the time
an exposed collective belongs. Each framework names its groups in its own words::

    torch     mesh_tp, mesh_dp_shard_cp, default_pg        TENSOR_MODEL_PARALLEL_GROUP   Megatron-Core
    words     tp       shard             by its calls      tp

If the name of a group has none of these words, its calls in the step decide: all_gather and reduce_scatter are
``shard``, messages alone are ``pp``, small all_reduces of all ranks beside other groups, as of the gradients' norm, are
``world``, everything else is ``dp``. A group called ``dp`` with all_gather and reduce_scatter is ``shard``, too.

Ranks that are no runs of equal distances, as 0, 1, 5, are priced as if evenly apart, as 0, 2, 4: ``Shape.assumed``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from nvcoll._nvcoll import InvalidArgument
from nvcoll.dryrun.recording import Group, Recording
from nvcoll.dryrun.wire import Kind
from nvcoll.training.group_words import word_of

SHARDED = {"all_gather", "reduce_scatter"}
"""The collectives of sharded parameters."""

MESSAGES = {"send", "recv"}
"""The calls between stages of a pipeline."""

SMALL_BYTES = 1 << 20
"""Gradients of a model are at least as many bytes; norms and losses are fewer. Chosen."""


NAMELESS = r"\d+|[0-9a-f_]{16,}"
"""Names that torch gives to groups without a description: a number, or a digest of their ranks."""


@dataclass(frozen=True)
class Shape:
    """A group as a step has it.

    Attributes:
        name: its name.
        size: the number of its ranks.
        stride: the distance between two ranks that follow each other, in a run.
        runs: the number of runs of its ranks, as 2 of 0 to 7 and 128 to 135.
        apart: the distance between the first ranks of two runs; 0 for one run.
        assumed: the assumption about its ranks, in words; empty: none.
        kind: the parallelism for which it communicates, as ``tp``; ``other``: another.
    """

    name: str
    size: int
    stride: int
    runs: int = 1
    apart: int = 0
    assumed: str = field(default="", compare=False)
    kind: str = field(default="other", compare=False)

    @property
    def row(self) -> dict[str, int | str]:
        """The group as JSON has it."""
        runs = {"runs": self.runs, "apart": self.apart} if self.runs > 1 else {}
        return {"kind": self.kind, "size": self.size, "stride": self.stride, **runs}


def shape_of(group: Group, rank: int, world_size: int) -> Shape:
    """Returns the shape of the group of a rank.

    Raises:
        InvalidArgument: a rank is there twice, or no evenly spaced group of this size fits.
    """
    ranks = sorted(group.ranks)
    steps = [after - one for one, after in pairwise(ranks)]
    size, stride = len(ranks), next(iter(steps), 1)
    length = next((nth for nth, step in enumerate(steps, 1) if step != stride), size)
    runs, apart = size // length, 0 if length == size else ranks[length] - ranks[0]
    is_even = ranks == [ranks[0] + run * apart + nth * stride for run in range(runs) for nth in range(length)]
    if is_even and stride and apart % (length * stride) == 0:
        return Shape(group.name, size, stride, runs, apart)
    shown = f"[{', '.join(map(str, ranks[:12]))}{', ...' if size > 12 else ''}]"
    for even in range((ranks[-1] - ranks[0]) // (size - 1), 0, -1):
        first = rank - rank // even % size * even
        if 0 not in steps and first + (size - 1) * even < world_size:
            what = f"the group `{group.name}` of ranks at unequal distances, {shown}"
            return Shape(group.name, size, even, assumed=f"{what}, costs what {size} ranks {even} apart would")
    raise InvalidArgument(f"the group `{group.name}` has the ranks {shown}: nvcoll prices groups of distinct ranks")


def calls_of(recordings: Sequence[Recording]) -> dict[tuple[int, ...], dict[str, int]]:
    """Returns the calls of each group in the step by name, with the bytes of the largest.

    A send to the rank itself is part of an all_to_all.
    """
    found: dict[tuple[int, ...], dict[str, int]] = defaultdict(dict)
    for one in recordings:
        rows = one.records[one.records["kind"] == Kind.COLLECTIVE]
        for row in rows:
            if (group := one.groups.get(int(row["args"][2]))) is not None:
                call, peer = one.names[int(row["name"])], int(row["args"][3])
                to_self = call in MESSAGES and group.ranks[peer] == one.rank
                made, name = found[tuple(sorted(group.ranks))], "all_to_all" if to_self else call
                made[name] = max(made.get(name, 0), int(row["args"][5]))
    return found


def shapes_of(recordings: Sequence[Recording]) -> list[dict[int, Shape]]:
    """Returns for each recording the groups that communicate in its step, by number of communicator.

    Groups of the same shape and word are one. Further groups of a word are named by their description or, if torch made
    that up, by size and distance.

    Raises:
        InvalidArgument: as of `shape_of`.
    """
    calls = calls_of(recordings)
    names: dict[str, Shape] = {}
    found: list[dict[int, Shape]] = []
    is_split = any(1 < len(ranks) < recordings[0].world_size for ranks in calls)
    for one in recordings:
        shapes = {}
        used = one.records[one.records["kind"] == Kind.COLLECTIVE]["args"][:, 2]
        for number in sorted(set(used.tolist()) & one.groups.keys()):
            group = one.groups[number]
            made = calls[tuple(sorted(group.ranks))]
            shape = shape_of(group, one.rank, one.world_size)
            word = word_of(group.name) or _by_calls(made, is_split and len(group.ranks) == one.world_size)
            word = "shard" if word == "dp" and made.keys() >= SHARDED else word
            shapes[number] = replace(shape, name=_free(word, shape, names), kind="other" if word == "world" else word)
        found.append(shapes)
    return found


def _by_calls(made: Mapping[str, int], is_world: bool) -> str:
    """Returns the part of the layout that calls show; `is_world`: it has all ranks, and others have fewer."""
    if made.keys() >= SHARDED or made.keys() <= MESSAGES:
        return "shard" if made.keys() >= SHARDED else "pp"
    return "world" if is_world and made.keys() == {"all_reduce"} and made["all_reduce"] < SMALL_BYTES else "dp"


def _free(word: str, shape: Shape, names: dict[str, Shape]) -> str:
    """Returns the first name that no group of another shape has, and notes it."""
    apart = f"{word} of {shape.size}, {shape.stride} apart"
    described = apart if re.fullmatch(NAMELESS, shape.name) else shape.name
    key = replace(shape, name="")
    for name in (word, described, *(f"{word} {nth}" for nth in range(2, len(names) + 3))):
        if names.setdefault(name, key) == key:
            return name
    raise AssertionError("there are more names than groups")


def sizes_of(groups: Mapping[int, Group]) -> dict[str, int]:
    """Returns the number of ranks of each part of the layout, by its word; the largest group of a word counts."""
    found: dict[str, int] = {}
    for group in groups.values():
        if (word := word_of(group.name)) is not None:
            found[word] = max(found.get(word, 1), len(group.ranks))
    return found
