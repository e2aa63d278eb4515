"""``nvcoll dump``: what every rank of running jobs does, from outside, without stopping anybody.

The second of two looks is shown, and beside it who has not moved since the first. A call that hangs is known by its
waits: each rank that sleeps in a call says for whom, and a cycle of waits comes first.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from nvcoll._nvcoll import InvalidArgument
from nvcoll.cli import formats
from nvcoll.ranks.recorders import PAUSE_S, RankProcess, RunningJob, jobs
from nvcoll.text.tables import print_lines

Look = dict[str, Any]


def _chosen(target: str | None) -> tuple[list[RunningJob], list[str]]:
    """Returns the jobs that a name or a process stands for, and what could not be read."""
    running, refused = jobs()
    if target is None:
        return running, refused
    chosen = [job for job in running if job.name == target]
    chosen = chosen or [job for job in running if target in (str(rank.pid) for rank in job.ranks)]
    if not chosen:
        of_target = [text for text in refused if f"/proc/{target}/" in text]
        there = ", ".join(job.name for job in running) or "none"
        raise InvalidArgument(
            of_target[0] if of_target else f"found no job or rank {target} of this user: the running jobs are {there}"
        )
    return chosen, refused


def _looks(job: RunningJob) -> list[list[Look]]:
    return [[words.look() for words in rank.words] for rank in job.ranks]


def _state(before: Look, now: Look) -> str:
    """Says what a rank does in one communicator."""
    if now["has_left"]:
        return f"has left it after {now['call']} calls"
    moves = before["progress"] != now["progress"]
    if now["is_in_call"]:
        how = "gets on" if moves else f"has not moved for {PAUSE_S:g} s"
        return f"is in call {now['call']} and {how}"
    return "makes calls" if moves else f"is between calls, after {now['call']}"


def _rank_lines(rank: RankProcess, before: list[Look], now: list[Look], calls: int) -> Iterator[str]:
    yield ""
    yield f"rank {rank.rank}, process {rank.pid}{', which is stopped' if rank.is_stopped else ''}"
    for words, for_s, has_timed_out in now[0]["waits"]:
        if not has_timed_out:
            yield f"  {words}, for {for_s:.1f} s"
    for words, first, second in zip(rank.words, before, now, strict=True):
        yield f"  {words.communicator}: {_state(first, second)}"
        for number, call in second["recent"][:calls]:
            yield f"  {number:6}  {call}"


def _missing(job: RunningJob) -> list[int]:
    """Returns the ranks that were not found."""
    here = {rank.rank for rank in job.ranks}
    return [rank for rank in range(job.world_size) if rank not in here]


def _job(job: RunningJob, before: list[list[Look]], now: list[list[Look]], calls: int) -> dict[str, Any]:
    """Returns a job for JSON."""
    keys = ("for", "seconds", "has_timed_out")
    ranks = [
        {
            "rank": rank.rank,
            "process": rank.pid,
            "is_stopped": rank.is_stopped,
            "waits": [dict(zip(keys, wait, strict=True)) for wait in second[0]["waits"]],
            "communicators": [
                {
                    "communicator": words.communicator,
                    "state": _state(was, is_),
                    "calls": is_["call"],
                    "recent": [{"number": number, "call": call} for number, call in is_["recent"][:calls]],
                }
                for words, was, is_ in zip(rank.words, first, second, strict=True)
            ],
        }
        for rank, first, second in zip(job.ranks, before, now, strict=True)
    ]
    return {
        "job": job.name,
        "world_size": job.world_size,
        "missing": _missing(job),
        "cycle": job.cycle,
        "ranks": ranks,
    }


def _lines(job: RunningJob, before: list[list[Look]], now: list[list[Look]], calls: int) -> Iterator[str]:
    missing = _missing(job)
    yield f"job {job.name}: {job.world_size} ranks"
    if missing:
        yield f"not found, since they have ended or run as another user: {', '.join(map(str, missing))}"
    if cycle := job.cycle:
        yield f"they wait for each other: {cycle}"
    for rank, first, second in zip(job.ranks, before, now, strict=True):
        yield from _rank_lines(rank, first, second, calls)


def dump(
    target: Annotated[
        str | None, typer.Argument(metavar="[JOB|PID]", help="A job by name, or by the process of one of its ranks.")
    ] = None,
    calls: Annotated[int, typer.Option("--calls", min=0, max=15, help="Calls shown of each communicator.")] = 4,
    as_json: formats.AsJson = False,
    schema: formats.Schema = False,
) -> None:
    """Prints what the ranks of running jobs do: last calls, and which rank waits for which. It stops no process.

    It reads ranks that are processes of this user, of the same version of nvcoll.

    Example: nvcoll dump 4711
    """
    chosen, refused = _chosen(target)
    if not chosen and not refused:
        raise InvalidArgument("no job of processes of this user is running")
    before = [_looks(job) for job in chosen]
    time.sleep(PAUSE_S)
    if as_json:
        found = [_job(job, first, _looks(job), calls) for job, first in zip(chosen, before, strict=True)]
        return formats.print_json("dump", {"jobs": found, "refused": refused})
    for nth, (job, first) in enumerate(zip(chosen, before, strict=True)):
        print_lines([""] * (nth > 0) + [*_lines(job, first, _looks(job), calls)])
    print_lines([f"not read: {text}" for text in refused])
