"""``nvcoll.testing``: makes ranks die, stop or fail at a step that a test names, and finds what they leave open.

>>> from nvcoll.testing import Fault, run_ranks
>>> run = run_ranks(program, 3, fault=Fault.kill(rank=1, call=3, step=2))
>>> run[1].status, type(run[0].error)

``docs/testing.md`` shows a test that uses it.
"""

from nvcoll.testing.faults import Fault
from nvcoll.testing.outcomes import Outcome, Run
from nvcoll.testing.ranks import Ranks, run_ranks
from nvcoll.testing.residue import Residue, no_residue, residue

__all__ = ["Fault", "Outcome", "Ranks", "Residue", "Run", "no_residue", "residue", "run_ranks"]
