"""``NVCOLL_TORCH=replace``: a program that asks for gloo gets nvcoll."""

import os

VARIABLE = "NVCOLL_TORCH"
"""The environment variable whose value `REPLACE` replaces gloo by nvcoll."""

REPLACE = "replace"


def replaces_gloo() -> bool:
    """Says whether nvcoll replaces gloo."""
    return os.environ.get(VARIABLE) == REPLACE
