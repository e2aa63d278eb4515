"""Finds the ranks of a script that must run, and the number of ranks for which each stands.

Most ranks do the same: FSDP, DDP, tensor, context and expert parallelism give each rank the same calls with the same
sizes (experts are balanced, as no router has data). The stages of a pipeline differ, and wait for each other on the
host: they exchange shapes. So::

    attempt 1    rank 0 alone
                 its groups name a pipeline, or it sends to ranks that send to it, or it waited for objects of ranks
    attempt 2    one rank of each stage, from rank 0's group, at the same time
    attempt 3    ranks for which these waited, too

Attempt 1 of a pipeline ends when rank 0 makes the group of its stages, or needs an object of another stage. A ring of
context parallelism sends to one neighbour and receives from the other, so it is no pipeline: in a pipeline, two stages
exchange messages in both directions.

Rank 0 stands for all ranks, also where it does more than others (logs, checkpoints): no rank takes longer.
Ranks of ``--only-ranks 0,256`` run without further ranks, and stand for equal parts of the job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from nvcoll._nvcoll import group_word
from nvcoll.dryrun.wire.rank_recording import Group, RankRecording, Run
from nvcoll.dryrun.wire.virtual_gpu import Kind

ATTEMPTS = 8
"""The most attempts with more ranks before a dry run fails. Chosen."""


def pipeline_of(recording: RankRecording) -> Group | None:
    """Returns the group whose ranks are the stages of a pipeline; None: the script has none."""
    found = [group for group in recording.groups.values() if group_word(group.name) == "pp" and len(group.ranks) > 1]
    if found:
        return max(found, key=_size)
    sends: dict[int, set[int]] = defaultdict(set)
    receives: dict[int, set[int]] = defaultdict(set)
    for row in recording.records[recording.records["kind"] == Kind.COLLECTIVE]:
        call, communicator, peer = recording.names[int(row["name"])], int(row["args"][2]), int(row["args"][3])
        if call in ("send", "recv"):
            (sends if call == "send" else receives)[communicator].add(peer)
    for communicator, peers in sends.items():
        group = recording.groups.get(communicator)
        if group is None or group_word(group.name) is not None:
            continue
        me = group.ranks.index(recording.rank) if recording.rank in group.ranks else -1
        if peers == receives[communicator] and len(peers) <= 2 and me not in peers:
            found.append(group)  # pairs of stages, too, which have a communicator for messages without a batch
    return max(found, key=_size, default=None)


def _size(group: Group) -> int:
    return len(group.ranks)


def wanted(ranks: Sequence[int], recordings: Sequence[RankRecording | None], runs: Sequence[Run]) -> tuple[int, ...]:
    """Returns the ranks that must run, from the recordings of some ranks; the same ranks if they are enough."""
    found = {*ranks, *(other for run in runs for other in run.wanted)}
    for recording in recordings:
        if recording is not None and (stages := pipeline_of(recording)) is not None:
            found |= set(stages.ranks)
    return tuple(sorted(found))


def stand_for(ranks: Sequence[int], world_size: int) -> list[int]:
    """Returns the number of ranks for which each rank that ran stands."""
    each, more = divmod(world_size, len(ranks))
    return [each + (nth < more) for nth in range(len(ranks))]


def names_of(ranks: Sequence[int], recordings: Sequence[RankRecording]) -> list[str]:
    """Returns the names of the ranks, as ``stage 1``."""
    if len(ranks) == 1:
        return ["all ranks" if ranks[0] == 0 else f"rank {ranks[0]}"]
    stages = next(filter(None, map(pipeline_of, recordings)), None)
    if stages is not None and set(ranks) == set(stages.ranks):
        order = {rank: nth for nth, rank in enumerate(stages.ranks)}
        return [f"stage {order[rank]}" for rank in ranks]
    return [f"rank {rank}" for rank in ranks]
