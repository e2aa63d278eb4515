"""Names and shapes of the groups of ranks of a recording.

The price of a step knows groups by name, size and stride (``docs/training-step.md``): the name says to which part of
the time an exposed collective belongs. Frameworks name their groups each in their own words::

    torch     mesh_tp, mesh_dp_shard_cp, default_pg        TENSOR_MODEL_PARALLEL_GROUP   Megatron-Core
    words     tp       shard             by its calls      tp

A group whose name has no word is known by its calls in the step: gathers of parameters beside reduce_scatters of
gradients are ``shard``, messages alone are ``pp``, everything else is ``dp``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from nvcoll._nvcoll import InvalidArgument
from nvcoll.dryrun.recording import Group, Kind, Recording

WORDS = {
    "tp": ("tp", "tensor"),
    "cp": ("cp", "context"),
    "ep": ("ep", "expert"),
    "pp": ("pp", "pipe", "pipeline"),
    "shard": ("shard", "fsdp"),
    "copies": ("replicate", "replica", "copies"),
    "dp": ("dp", "data", "ddp"),
}
"""Names of the parts of a layout, with the words by which frameworks call them."""

SHARDED = {"all_gather", "reduce_scatter"}
"""The collectives of sharded parameters."""

MESSAGES = {"send", "recv"}
"""What stages of a pipeline call."""


@dataclass(frozen=True)
class Shape:
    """A group as a step has it: its name, the number of its ranks, and the distance between them."""

    name: str
    size: int
    stride: int


def stride_of(group: Group) -> int:
    """Returns the distance between two ranks of a group that follow each other; 1 for a single rank.

    Raises:
        InvalidArgument: the distances differ, or a rank is there twice.
    """
    ranks = sorted(group.ranks)
    strides = {after - one for one, after in pairwise(ranks)}
    if len(strides) > 1 or 0 in strides:
        shown = f"[{', '.join(map(str, ranks[:12]))}{', ...' if len(ranks) > 12 else ''}]"
        what = f"the group `{group.name}` has the ranks {shown}, whose distances differ"
        raise InvalidArgument(f"{what}: nvcoll prices groups of equal distances, as [0, 8, 16]")
    return next(iter(strides), 1)


def word_of(description: str) -> str | None:
    """Returns the part of the layout of which a description of a group speaks; None: of none, or of several."""
    said = set(re.split(r"[^a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", description).lower()))
    found = [word for word, names in WORDS.items() if said & set(names)]
    if found == ["shard", "dp"] or found == ["copies", "dp"]:  # dp_shard, dp_replicate
        return found[0]
    if found == ["cp", "dp"]:  # gradients are reduced over cp, too
        return "dp"
    if found == ["cp", "shard", "dp"] or found == ["cp", "shard"]:  # parameters are sharded over cp, too
        return "shard"
    return found[0] if len(found) == 1 else None


def calls_of(recordings: Sequence[Recording]) -> dict[tuple[int, ...], set[str]]:
    """Returns the names of the calls that each group makes in the step; who sends to itself makes an all_to_all."""
    found: dict[tuple[int, ...], set[str]] = defaultdict(set)
    for one in recordings:
        rows = one.records[one.records["kind"] == Kind.COLLECTIVE]
        for row in rows:
            if (group := one.groups.get(int(row["args"][2]))) is not None:
                call, peer = one.names[int(row["name"])], int(row["args"][3])
                to_self = call in MESSAGES and group.ranks[peer] == one.rank
                found[tuple(sorted(group.ranks))].add("all_to_all" if to_self else call)
    return found


def shapes_of(recordings: Sequence[Recording]) -> list[dict[int, Shape]]:
    """Returns for each recording the groups that communicate in its step, by number of communicator.

    Groups of the same shape and word are one; others that share a word have their description as their name.

    Raises:
        InvalidArgument: a group is no arithmetic progression.
    """
    calls = calls_of(recordings)
    names: dict[str, tuple[int, int]] = {}
    found: list[dict[int, Shape]] = []
    for one in recordings:
        shapes = {}
        used = one.records[one.records["kind"] == Kind.COLLECTIVE]["args"][:, 2]
        for number in sorted(set(used.tolist()) & one.groups.keys()):
            group = one.groups[number]
            made = calls[tuple(sorted(group.ranks))]
            size, stride = len(group.ranks), stride_of(group)
            word = word_of(group.name) or _by_calls(made)
            shapes[number] = Shape(_free(word, group.name, (size, stride), names), size, stride)
        found.append(shapes)
    return found


def _by_calls(made: set[str]) -> str:
    return "shard" if made >= SHARDED else "pp" if made <= MESSAGES else "dp"


def _free(word: str, description: str, shape: tuple[int, int], names: dict[str, tuple[int, int]]) -> str:
    """Returns the first name that no group of another shape has, and notes it."""
    for name in (word, description, *(f"{word} {nth}" for nth in range(2, len(names) + 3))):
        if names.setdefault(name, shape) == shape:
            return name
    raise AssertionError("there are more names than groups")


def sizes_of(groups: Mapping[int, Group]) -> dict[str, int]:
    """Returns the number of ranks of each part of the layout, by its word; the largest group of a word counts."""
    found: dict[str, int] = {}
    for group in groups.values():
        if (word := word_of(group.name)) is not None:
            found[word] = max(found.get(word, 1), len(group.ranks))
    return found
