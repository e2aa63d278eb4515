"""``await work``: waits for a call in flight without blocking the event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator

from nvcoll._nvcoll import Work


def outcome(work: Work) -> Generator[object, None, object]:
    """Yields to the running loop until the call is over, and returns the result of the call.

    If the task is cancelled meanwhile, it stops waiting, and the call stays in flight.
    """
    if not work.done():
        loop = asyncio.get_running_loop()
        over: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not over.done():
                over.set_result(None)

        def ring() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and no task waits there
                loop.call_soon_threadsafe(wake)

        work._when_done(ring)
        yield from over
    return work.wait()
