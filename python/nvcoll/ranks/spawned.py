"""The part of ``nvcoll.spawn`` that runs in the process of a rank."""

from __future__ import annotations

import os
import pickle
import traceback
from typing import TYPE_CHECKING, Any

from nvcoll._nvcoll import InvalidArgument
from nvcoll.ranks import bound, membership
from nvcoll.ranks.failures import text_of

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

PICKLED = "return numbers, strings, arrays, or lists of them"
"""What to do about a result that cannot be pickled."""


def main(pipe: Connection, program: bytes, place: dict[str, str], parent: int) -> None:
    """Runs a rank.

    Args:
        pipe: what it tells goes there.
        program: function and arguments, pickled.
        place: the environment variables that say which rank it is.
        parent: the process number of its parent, with which it ends.
    """
    os.setsid()
    bound.end_with_parent(parent)
    os.environ.update(place)
    pipe.send_bytes(pickle.dumps(("began",)))
    try:
        fn, args = pickle.loads(program)
        comm = membership.init()
        pipe.send_bytes(pickle.dumps(("joined",)))
        report = returned(fn(comm, *args))
    except SystemExit:
        raise  # the end of the process says it
    except BaseException as error:
        report = raised(error)
        membership.fail()
    pipe.send_bytes(pickle.dumps(report))


def returned(result: Any) -> tuple[str, *tuple[Any, ...]]:
    """Returns the report of a result.

    Raises:
        InvalidArgument: it cannot be pickled.
    """
    try:
        return "returned", pickle.dumps(result)
    except Exception as error:
        raise InvalidArgument(
            f"`fn` returned a {type(result).__name__}, which cannot be pickled ({text_of(error)}): {PICKLED}"
        ) from None


def raised(error: BaseException) -> tuple[str, *tuple[Any, ...]]:
    """Returns the report of an exception: itself, if it can be pickled, as text, and its traceback."""
    error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next  # without `main`
    trace = "".join(traceback.format_exception(error))
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)
    except Exception:
        return "raised", None, text_of(error), trace
    return "raised", pickled, text_of(error), trace
