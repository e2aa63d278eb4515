"""``NVCOLL_REPORT=hgx-h100 torchrun train.py``: what the collectives of a script for torch would cost elsewhere.

::

    every rank     counts its calls; the step of the first optimizer marks the steps of training
    at the end     ranks tell rank 0 their counts by torch's store; rank 0 prints the table to standard error

The end is ``destroy_process_group``, or the end of the process. ``nvcoll run -n 4 --on hgx-h100`` collects the same
counts in its own way (`nvcoll.ranks.rank_counts`), and needs no variable.
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from datetime import timedelta

import torch
import torch.distributed as dist

from nvcoll.cost.counts import packed, unpacked
from nvcoll.cost.price import Pricer
from nvcoll.cost.report import machines_of, report_of
from nvcoll.ranks import membership

VARIABLE = "NVCOLL_REPORT"
"""The machines, separated by commas."""

PATIENCE = timedelta(seconds=10)
"""How long rank 0 waits at the end for the counts of the other ranks. Chosen: they end together, or one has failed."""


class Reporting:
    """The report of one job, from its join to its end.

    Args:
        store: torch's store of all ranks.
        rank, world_size: this process.
        hosts: the number of hosts. On several, calls are made of other calls inside hosts, so there is no report.

    Raises:
        InvalidArgument: a machine is not known, or too small.
    """

    def __init__(self, store: dist.Store, rank: int, world_size: int, hosts: int = 1) -> None:
        self._store, self._rank, self._world_size = store, rank, world_size
        names = os.environ.get(VARIABLE, "")
        self._machines = machines_of(names, world_size) if names.strip() else []
        if self._machines and hosts > 1:
            if rank == 0:
                print(f"nvcoll: no {VARIABLE}: it is of ranks on one host, and these are on {hosts}", file=sys.stderr)
            self._machines = []
        self._process = os.getpid()
        mark_steps()
        if self._machines:
            atexit.register(self.end)

    def end(self) -> None:
        """Tells the counts of this rank, and prints the table on rank 0. The second time it does nothing."""
        machines, self._machines = self._machines, []
        counts = membership.counts()
        if not machines or counts is None or self._process != os.getpid():
            return
        if self._rank:
            self._store.set(_key(self._rank), packed([counts.counts()]))
            return
        received = {0: counts.counts()}
        for rank in range(1, self._world_size):
            try:
                self._store.wait([_key(rank)], PATIENCE)
                received[rank] = unpacked(self._store.get(_key(rank)))
            except Exception:  # the rank has died, or the store has
                continue
        silent = [rank for rank in range(self._world_size) if rank not in received]
        report = report_of([*received.values()], [Pricer(one) for one in machines], silent, "this job")
        print(f"\n{report}", file=sys.stderr)


def _key(rank: int) -> str:
    return f"nvcoll/report/{rank}"


_marking: weakref.ref[torch.optim.Optimizer] | None = None
_handle: object = None


def mark_steps() -> None:
    """Registers a hook: each `step()` of the first optimizer that steps ends a training step."""
    global _handle
    if _handle is None:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        _handle = register_optimizer_step_post_hook(_mark)


def _mark(optimizer: torch.optim.Optimizer, _arguments: object, _keywords: object) -> None:
    global _marking
    if _marking is None or _marking() is None:
        _marking = weakref.ref(optimizer)
    if _marking() is optimizer:
        membership.step()
