"""Long waits at the beginning and the end of a job are said on stderr, before their deadline."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

VOICE_S = 30.0
"""How long a wait is silent. Chosen: jobs start and end within seconds, unless the machine is busy."""


@contextlib.contextmanager
def said_if_long(what: str, after_s: float | None = None) -> Iterator[None]:
    """Says on stderr what this process waits for, once, if the block lasts.

    Args:
        what: "rank 1 waits for the other ranks to join".
        after_s: seconds of silence. Default: :data:`VOICE_S`.
    """
    silence_s = VOICE_S if after_s is None else after_s

    def say() -> None:
        print(f"nvcoll: {what}, for {silence_s:g} s now", file=sys.stderr, flush=True)

    timer = threading.Timer(silence_s, say)
    timer.daemon = True
    # At the end of the interpreter there are no new threads.
    with contextlib.suppress(RuntimeError):
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
