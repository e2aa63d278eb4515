"""Names of other tools (nccl-tests, MPI, torch.distributed), and the names of nvcoll for the same things."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from nvcoll._nvcoll import collective_spelled

OPTIONS = {
    "-g": "ranks are threads of this process: pass -n RANKS",
    "--ngpus": "ranks are threads of this process: pass -n RANKS",
    "-t": "ranks are threads of this process: pass -n RANKS",
    "--nthreads": "ranks are threads of this process: pass -n RANKS",
    "--iters": "pass --rounds (-n is the number of ranks)",
    "-J": "pass --json",
    "--nccl": "pass --nccl-version VERSION",
    "--algo": "pass -a; with predict --algorithm",
    "--world-size": "pass -n",
    "--nproc-per-node": "pass -n RANKS",
    "--nproc_per_node": "pass -n RANKS",
}
"""For options of other tools, most of nccl-tests, the replacement."""


def collective_name(name: str | None) -> str | None:
    """Returns nvcoll's name of a collective in the spelling of another tool, as ``alltoall`` or ``AllReduce``."""
    return name and (collective_spelled(name) or name)


def nearest(name: str, known: Sequence[str]) -> str | None:
    """Returns the collective that the user probably means."""
    if (same := collective_spelled(name)) in known:
        return same
    spelled = {one: one for one in known} | {"alltoallv": "all_to_all", "bcast": "broadcast"}
    found = difflib.get_close_matches(name.lower(), spelled, n=1, cutoff=0.75)
    return spelled[found[0]] if found and spelled[found[0]] in known else None


def of_collective(name: str, known: Sequence[str]) -> str:
    """Returns the message for a collective that does not exist."""
    meant = nearest(name, known)
    hint = f"did you mean {meant}? " if meant else ""
    return f"no collective is called `{name}`: {hint}choose from {', '.join(known)}"
