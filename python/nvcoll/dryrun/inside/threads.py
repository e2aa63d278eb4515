"""Threads of the script: their operators are computed and recorded as in the main thread.

torch's modes are of a thread, so each thread that Python starts enters `Watch` before it runs: threads of `threading`,
and so of `concurrent.futures` and loaders, and of `_thread`. Threads of autograd have the mode of the thread that
called `backward`. Threads that an extension starts have none.

A thread cannot end the script by an exception, so an error of the dry run in a thread ends it here.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

from nvcoll.dryrun.inside import private
from nvcoll.errors import DryRunError


def install(watch: Callable[[], AbstractContextManager[object]], refuse: Callable[[BaseException], object]) -> None:
    """Makes all threads that start from now on enter a mode.

    Args:
        watch: makes the mode of a thread.
        refuse: is called with an error of the dry run that has reached the end of a thread.
    """

    def around(run: Callable[..., object]) -> Callable[..., object]:
        def watched(*args: object, **kwargs: object) -> object:
            with watch():
                return run(*args, **kwargs)

        return watched

    def starting(start: Callable[..., int]) -> Callable[..., int]:
        return lambda function, *args, **kwargs: start(around(function), *args, **kwargs)

    def hooked(args: threading.ExceptHookArgs) -> None:
        if isinstance(args.exc_value, DryRunError):
            refuse(args.exc_value)
        plain(args)

    plain = threading.excepthook
    private.wrap(threading.Thread, "_bootstrap_inner", around)
    for name in ("start_new_thread", "start_new"):
        private.wrap(_thread, name, starting)
    private.replace(threading, "excepthook", hooked)
