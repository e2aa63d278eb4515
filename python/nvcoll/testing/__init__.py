"""``nvcoll.testing``: makes ranks die, stop or fail at a step that a test names, and finds resources they leave open.

>>> from nvcoll.testing import Fault, run_ranks
>>> run = run_ranks(program, 3, fault=Fault.kill(rank=1, call=3, step=2))
>>> run[1].status, type(run[0].error)

`dryrun` runs a training script on virtual GPUs, for tests of its memory and overlap.

``docs/run/testing.md`` and ``docs/train/dryrun.md`` show such tests.
"""

from nvcoll.dryrun.parent.failures import CannotDryRun, DryRunLimit, OutOfGpuMemory, ScriptFailed
from nvcoll.testing.dry_runs import DryRun, dryrun
from nvcoll.testing.faults import Fault
from nvcoll.testing.outcomes import Outcome, Run
from nvcoll.testing.ranks import Ranks, run_ranks
from nvcoll.testing.residue import Residue, no_residue, residue

__all__ = [
    "CannotDryRun",
    "DryRun",
    "DryRunLimit",
    "Fault",
    "OutOfGpuMemory",
    "Outcome",
    "Ranks",
    "Residue",
    "Run",
    "ScriptFailed",
    "dryrun",
    "no_residue",
    "residue",
    "run_ranks",
]
