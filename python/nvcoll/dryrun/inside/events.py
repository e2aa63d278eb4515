"""Events that Python announces (PEP 578) in a rank and in its forks: one audit hook, which calls functions by event.

An audit hook cannot be removed, and is called for each event of Python, so there is one, and it is a look-up. It needs
no torch: a process that multiprocessing spawns has it before it imports anything.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident

from nvcoll.errors import DryRunError

File = str | bytes | os.PathLike[str] | os.PathLike[bytes]
"""A file or folder as scripts name it."""

Handler = Callable[..., object]
"""Is called with the arguments of the event. A DryRunError is raised where the event happens; other errors come from
arguments that the script gave, as a path of another type, and the script gets its own."""

_handlers: defaultdict[str, list[Handler]] = defaultdict(list)
_silent: set[int] = set()


def on(event: str, handler: Handler) -> None:
    """Has a function called at each event of a name."""
    if not _handlers:
        vars(_announced)["__cantrace__"] = True  # a handler may run a script that starts
        sys.addaudithook(_announced)
    _handlers[event].append(handler)


@contextmanager
def silence() -> Iterator[None]:
    """Has no function called for what this thread does inside of `with`: handlers read files, too."""
    me = get_ident()
    was = me in _silent
    _silent.add(me)
    try:
        yield
    finally:
        if not was:
            _silent.discard(me)


def _announced(event: str, args: tuple[object, ...]) -> None:
    if event in _handlers and get_ident() not in _silent:
        for handler in _handlers[event]:
            try:
                handler(*args)
            except DryRunError:
                raise
            except Exception:
                continue
