"""Runs features on sets of fresh Python processes, with a watchdog that ends a set and shows what each rank printed.

::

    while features are left:
        start a process for each rank; each runs all that are left, one after the other
        wait until all have ended; or some seconds after the first failure; or the limit of a feature
        a feature that all ranks passed has passed; the one at which the set ended has failed
        left = the features after it

A limit is for one feature: it begins again when a rank writes an outcome.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nvcoll.ranks.processes import Supervisor

LIMIT_S = 120
"""The time after which a feature hangs. Chosen: ten times what the longest takes on a busy machine."""

LOOK_S = 0.1
"""How often it looks whether a rank has written an outcome. Chosen."""

SHOWN = 3000
"""How many characters of a rank's output a failure shows. Chosen: a long traceback."""

LISTENING = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "TORCHELASTIC_RESTART_COUNT": "0"}


@dataclass(frozen=True)
class Outcome:
    """How a feature ended.

    Attributes:
        failure: what went wrong and what each rank printed; None if the feature passed on all ranks.
        seconds: how long the slowest rank took.
    """

    failure: str | None
    seconds: float = 0.0


def launch(
    names: Sequence[str], world_size: int, backend: str, folder: Path, makes_group: bool = False
) -> dict[str, Outcome]:
    """Runs features, one after the other.

    Args:
        names: of the features, each with its file: ``ddp.plain``.
        world_size: the number of processes.
        backend: the name of torch's backend.
        folder: an empty folder for what the processes write.
        makes_group: whether the features make the default process group.

    Returns:
        How each feature ended, by name.
    """
    outcomes: dict[str, Outcome] = {}
    left = list(names)
    while left:
        own = folder / str(len(left))
        own.mkdir(parents=True)
        done, why = _run(left, world_size, backend, own, makes_group)
        outcomes |= done
        left = left[len(done) :]
        if left:
            outcomes[left.pop(0)] = Outcome(why + _shown(own, world_size))
        elif why:  # all features passed, and the processes did not end as they should
            outcomes[names[-1]] = Outcome(why + _shown(own, world_size))
    return outcomes


def _run(names, world_size, backend, folder, makes_group):
    """Returns the outcomes of the features that passed, and why the processes did not end well, or an empty string."""
    with Supervisor() as ranks:
        for rank in range(world_size):
            place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world_size, "LOCAL_WORLD_SIZE": world_size}
            told = {name: str(value) for name, value in place.items()} | {"NVCOLL_TORCH_BACKEND": backend}
            path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(Path(__file__).parent.parent)]))
            command = [sys.executable, "-P", "-m", "frameworks.rank", str(int(makes_group)), str(folder), *names]
            with open(folder / f"output-{rank}", "w") as output:
                environment = os.environ | LISTENING | told | {"PYTHONPATH": path}
                ranks.start(rank, command, stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=folder)
        why = _wait(ranks, folder)
    told = [_outcomes(folder, rank) for rank in range(world_size)]
    passed = {}
    for name in names:
        seconds = [one[name]["seconds"] for one in told if one.get(name, {}).get("outcome") == "passed"]
        if len(seconds) < world_size:
            return passed, why or f"{name} did not pass on all ranks\n"
        passed[name] = Outcome(None, max(seconds))
    return passed, why


def _wait(ranks, folder):
    """Waits for the processes. Returns why they did not end well, or an empty string."""
    why, size = "", -1
    while ranks.running():
        written = sum(path.stat().st_size for path in folder.glob("outcomes-*"))
        if written != size and not why:
            size, ranks.deadline = written, time.monotonic() + LIMIT_S
        ended = ranks.wait(min(ranks.deadline, time.monotonic() + LOOK_S))
        if not why and any(process.status for process, _ in ended):
            why = "; ".join(f"rank {one.rank} {one.how()}" for one in ranks.processes if one.status) + "\n"
            ranks.begin_grace()
        if time.monotonic() > ranks.deadline:
            return why or f"a rank hangs: nothing was told for {LIMIT_S} s\n"
    return why


def _outcomes(folder, rank):
    path = folder / f"outcomes-{rank}.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return {told["name"]: told for told in map(json.loads, lines)}


def _shown(folder, world_size):
    """Returns for each rank the last feature it began and the end of what it printed; once, if ranks failed alike."""
    shown, alike = [], {}
    for rank in range(world_size):
        last = list(_outcomes(folder, rank).values())[-1:]
        where = f"{last[0]['name'] or 'the end'}: {last[0]['outcome']}" if last else "before the first feature"
        output = (folder / f"output-{rank}").read_text(errors="replace")[-SHOWN:]
        failure = last[0].get("detail") if last else None
        if failure in alike:
            output = f"as rank {alike[failure]}"
        elif failure:
            alike[failure] = rank
        shown.append(f"---- rank {rank}, {where}\n{output}")
    return "\n".join(shown)
