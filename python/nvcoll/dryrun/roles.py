"""Which ranks of a script must run, and for how many each stands.

Most ranks do the same: FSDP, DDP, tensor, context and expert parallelism give each rank the same calls with the same
sizes (experts are balanced, as no router has data). The stages of a pipeline differ, and wait for each other on the
host: they exchange shapes. So::

    attempt 1    rank 0 alone
                 its groups name a pipeline, or it sends to ranks that send to it, or it waited for words of ranks
    attempt 2    one rank of each stage, those of rank 0's group, side by side
    attempt 3    ranks for which these waited, too

Attempt 1 of a pipeline ends early, at the first word of another stage, unless rank 0 needs none. A ring of context
parallelism sends to one neighbour and receives from the other, so it is no pipeline: in a pipeline messages go both
ways between two stages.

Rank 0 stands for all ranks where it does more than others (logs, checkpoints): its time is that of the slowest. Ranks
that are given (``--ranks 0,256``) run as they are, and stand for equal parts of the job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from nvcoll.dryrun.groups import word_of
from nvcoll.dryrun.recording import Group, Kind, Recording, Run

ATTEMPTS = 8
"""How often ranks are added before a dry run gives up. Chosen."""


def pipeline_of(recording: Recording) -> Group | None:
    """Returns the group whose ranks are the stages of a pipeline; None: the script has none."""
    named = [group for group in recording.groups.values() if word_of(group.name) == "pp" and len(group.ranks) > 1]
    if named:
        return max(named, key=lambda group: len(group.ranks))
    sends: dict[int, set[int]] = defaultdict(set)
    receives: dict[int, set[int]] = defaultdict(set)
    for row in recording.records[recording.records["kind"] == Kind.COLLECTIVE]:
        call, communicator, peer = recording.names[int(row["name"])], int(row["args"][2]), int(row["args"][3])
        if call in ("send", "recv"):
            (sends if call == "send" else receives)[communicator].add(peer)
    for communicator, peers in sends.items():
        group = recording.groups.get(communicator)
        if group is None or word_of(group.name) is not None:
            continue
        me = group.ranks.index(recording.rank) if recording.rank in group.ranks else -1
        if peers == receives[communicator] and len(peers) <= 2 and me not in peers:
            return group
    return None


def wanted(ranks: Sequence[int], recordings: Sequence[Recording | None], runs: Sequence[Run]) -> tuple[int, ...]:
    """Returns the ranks that must run, given what some ranks recorded; the same ranks: they are enough."""
    found = {*ranks, *(other for run in runs for other in run.wanted)}
    for recording in recordings:
        if recording is not None and (stages := pipeline_of(recording)) is not None:
            found |= set(stages.ranks)
    return tuple(sorted(found))


def stand_for(ranks: Sequence[int], world_size: int) -> list[int]:
    """Returns for how many ranks of the job each of those that ran stands."""
    each, more = divmod(world_size, len(ranks))
    return [each + (nth < more) for nth in range(len(ranks))]


def names_of(ranks: Sequence[int], recordings: Sequence[Recording]) -> list[str]:
    """Returns what the ranks are, as ``stage 1``."""
    if len(ranks) == 1:
        return ["all ranks" if ranks[0] == 0 else f"rank {ranks[0]}"]
    stages = next(filter(None, map(pipeline_of, recordings)), None)
    if stages is not None and set(ranks) == set(stages.ranks):
        order = {rank: nth for nth, rank in enumerate(stages.ranks)}
        return [f"stage {order[rank]}" for rank in ranks]
    return [f"rank {rank}" for rank in ranks]
