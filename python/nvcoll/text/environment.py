"""The environment variables of nvcoll: one row each, as in ``nvcoll info`` and docs/reference/environment.md.

NCCL's own variables, which predictions read, are another table: `nvcoll.nccl_settings`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple


class Variable(NamedTuple):
    """One environment variable.

    Attributes:
        name: the name of the variable.
        value: its values, in words.
        meaning: what it changes.
        is_secret: whether its value is not to be printed.
    """

    name: str
    value: str
    meaning: str
    is_secret: bool = False


VARIABLES = (
    Variable("NVCOLL_RANK", "a number", "the rank of this process, if no launcher gives it"),
    Variable("NVCOLL_WORLD_SIZE", "a number", "the number of ranks of the job"),
    Variable("NVCOLL_JOB", "a name", "the name of the job; jobs of one machine need different names"),
    Variable("NVCOLL_TOKEN", "64 hexadecimal digits", "a secret that all ranks of a job share", is_secret=True),
    Variable("NVCOLL_BETWEEN", "mpi or gloo", "the library that carries messages between hosts"),
    Variable("NVCOLL_ORDER", "rank or nested", "the order of additions between hosts in torch scripts"),
    Variable("NVCOLL_PRETEND_HOSTS", "a number", "for tests: treat every N ranks of this machine as a host"),
    Variable("NVCOLL_TUNING", "a file", "the table of estimates for auto, from nvcoll bench --tune"),
    Variable("NVCOLL_TORCH", "replace", "torch groups that ask for gloo use nvcoll"),
    Variable("NVCOLL_STRICT", "nccl", "the torch backend refuses what NCCL refuses"),
    Variable("NVCOLL_REPORT", "machines", "a torch script ends with the predicted cost of its collectives"),
    Variable("NVCOLL_VGPU_TRACE", "1", "a dry run names the calls of CUDA that the virtual GPU does not answer"),
)
"""The variables that users set."""

INTERNAL = ("NVCOLL_COUNTS", "NVCOLL_VGPU", "NVCOLL_VGPU_CLOCK", "NVCOLL_PYTEST_WORKER", "NVCOLL_PYTEST_FOLDER")
"""The variables that nvcoll sets for its own processes."""


def set_variables() -> Iterator[str]:
    """Yields each variable that is set, as ``NAME=value``; a secret without its value."""
    for variable in VARIABLES:
        if value := os.environ.get(variable.name):
            yield f"{variable.name}={'...' if variable.is_secret else value}"
