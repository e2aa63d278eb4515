"""Failures of ranks: which of several is reported, and the words for the end of a process."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from nvcoll._nvcoll import Aborted
from nvcoll.text.formatting import counted


def first_failure(failures: Sequence[tuple[int, BaseException]]) -> BaseException:
    """Returns the first exception of a rank that is not a consequence of another rank's, with notes about the others.

    What several ranks raised alike is that of the lowest rank, and others are noted by rank, whoever came first.

    Args:
        failures: ranks and their exceptions, the first that came first. The message of an exception about the end of a
            rank, which no rank raised, begins with that rank.
    """
    causes = [(rank, error) for rank, error in failures if not isinstance(error, Aborted)] or list(failures)
    first = text_of(causes[0][1])
    causes.sort(key=lambda cause: (text_of(cause[1]) != first, cause[0]))
    alike, error = [rank for rank, other in causes if text_of(other) == first], causes[0][1]
    if not _names(alike[0], error):
        others = f" and {counted(len(alike) - 1, 'other')}" if len(alike) > 1 else ""
        error.add_note(f"raised by rank {alike[0]}{others}")
    for rank, other in causes[len(alike) :]:
        error.add_note(str(other) if _names(rank, other) else f"rank {rank} raised {text_of(other)}")
    return error


def ending(status: int) -> str:
    """Returns the words for the end of a process.

    Args:
        status: the exit status; a negative one is that of the signal that killed it.
    """
    if status >= 0:
        return f"ended with status {status}"
    try:
        name = f" ({signal.Signals(-status).name})"
    except ValueError:  # a real-time signal
        name = ""
    return f"was killed by signal {-status}{name}"


def text_of(error: BaseException) -> str:
    """Returns the class and the message of an exception."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # what the program raised may not know how to print itself
        return type(error).__name__


def _names(rank: int, error: BaseException) -> bool:
    """Says whether an exception is about the end of a rank."""
    return text_of(error).startswith(f"Error: rank {rank} ")
