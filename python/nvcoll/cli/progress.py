"""The line that says what a command does while it takes long."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

PATIENCE_S = 2.0
"""Seconds before the line appears. Chosen: a pause that a user notices."""


@contextmanager
def line() -> Iterator[Callable[[str], None]]:
    """Yields a function that takes what is done now, which a line on the terminal shows after a while.

    The line is on standard error, and only if that is a terminal; it is gone when the block ends.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    begin, over, now = time.monotonic(), Event(), [""]

    def show() -> None:
        if over.wait(PATIENCE_S):
            return
        while not over.wait(0.5):
            sys.stderr.write(f"\r\033[K{now[0]}, {time.monotonic() - begin:.0f} s")
            sys.stderr.flush()
        sys.stderr.write("\r\033[K")

    thread = Thread(target=show, name="nvcoll-progress", daemon=True)
    thread.start()
    try:
        yield lambda words: now.__setitem__(0, words)
    finally:
        over.set()
        thread.join()
