"""The part of ``nvcoll.spawn`` that runs in the process of a rank."""

from __future__ import annotations

import pickle
import traceback
from typing import TYPE_CHECKING

from nvcoll._nvcoll import InvalidArgument
from nvcoll.ranks import membership
from nvcoll.ranks.failures import text_of

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

PICKLED = "return numbers, strings, arrays, or lists of them"
"""What to do about a result that cannot be pickled."""


def main(pipe: Connection) -> None:
    """Runs a rank: its function and arguments come by the pipe, and what it tells goes there."""
    from nvcoll.ranks.processes import prepare

    prepare(pipe)
    program = pipe.recv()
    pipe.send(("began",))
    try:
        fn, args = pickle.loads(program)
        comm = membership.init()
        pipe.send(("joined",))
        report = returned(fn(comm, *args))
    except SystemExit:
        raise  # the end of the process says it
    except BaseException as error:
        report = raised(error)
        membership.fail()
    pipe.send(report)


def returned(result: object) -> tuple[str, *tuple[object, ...]]:
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


def raised(error: BaseException) -> tuple[str, *tuple[object, ...]]:
    """Returns the report of an exception: itself, if it can be pickled, as text, and its traceback."""
    error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next  # without `main`
    trace = "".join(traceback.format_exception(error))
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)
    except Exception:
        return "raised", None, text_of(error), trace
    return "raised", pickled, text_of(error), trace
