"""Ends a process with its parent: a rank must not outlive the program that started it, however that one ends.

Linux sends the rank a signal when its parent ends, if the rank has asked for it. The parent may have ended before, so
the rank then looks whether it still has that parent.

As a program, ``python bound.py PARENT PROGRAM ARGUMENTS...`` asks and becomes the other program, which keeps what was
asked for. It imports nothing but the standard library, because its start is a part of the start of every rank.

Source: prctl(2), PR_SET_PDEATHSIG.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""Cited: linux/prctl.h."""


def end_with_parent(parent: int) -> None:
    """Has this process killed as soon as its parent ends.

    Args:
        parent: the process number of the parent. If it has ended already, this process ends now.

    Raises:
        OSError: the system refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    zeros = [ctypes.c_ulong(0)] * 3
    if libc.prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), *zeros) != 0:
        raise OSError(ctypes.get_errno(), "a rank cannot be bound to its launcher")
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    end_with_parent(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])
