"""The line that says what a command does while it takes long: drawn anew, or lines among other output."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

REFRESH_S = 0.1
"""The least time between two drawings of the line. Chosen."""


@contextmanager
def line() -> Iterator[Callable[[str], None]]:
    """Yields a function that shows what is done now, and since how many seconds.

    The line is on standard error, and only if that is a terminal; it is gone when the block ends. It is drawn by the
    thread that reports, so that no other thread disturbs what is timed.
    """
    begin, drawn = time.monotonic(), 0.0

    def tell(words: str) -> None:
        nonlocal drawn
        if (now := time.monotonic()) >= drawn + REFRESH_S:
            sys.stderr.write(f"\r\033[K{words}, {now - begin:.0f} s")
            sys.stderr.flush()
            drawn = now

    if not sys.stderr.isatty():
        yield lambda _: None
        return
    try:
        yield tell
    finally:
        sys.stderr.write("\r\033[K")
        sys.stderr.flush()


def lines(silence_s: float) -> Callable[[str], None]:
    """Returns a function that says what is done now on a line of standard error, if it has said nothing for a time.

    For commands whose output mixes with that of a script, and whose log shall show that they go on.
    """
    begin = said = time.monotonic()

    def tell(words: str) -> None:
        nonlocal said
        if (now := time.monotonic()) >= said + silence_s:
            print(f"nvcoll: {words}, {now - begin:.0f} s", file=sys.stderr, flush=True)
            said = now

    return tell
