"""Events that Python announces (PEP 578) in a rank and in its forks: one audit hook, which calls functions by event.

An audit hook cannot be removed, and is called for each event of Python, so there is one, and it is a look-up. It uses
the standard library alone: a process that multiprocessing spawns has it before it imports torch.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

Handler = Callable[..., Any]
"""Is called with the arguments of the event; what it raises is raised where the event happens."""

_handlers: defaultdict[str, list[Handler]] = defaultdict(list)
_silent: set[int] = set()


def on(event: str, handler: Handler) -> None:
    """Has a function called at each event of a name."""
    if not _handlers:
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


def _announced(event: str, args: tuple[Any, ...]) -> None:
    if event in _handlers and get_ident() not in _silent:
        for handler in _handlers[event]:
            handler(*args)
