"""The calls that processes have counted, on their way to ``nvcoll run``, which started them.

::

    nvcoll run                                  rank
    makes a file without a name    ──▶  inherits it, and a variable says which descriptor it is
    reads the lines                ◀──  a line when it ends: the rank and its calls

A rank counts the calls of the communicators whose first rank it is, so no call comes twice. A script that is no rank
counts the calls of its nodes too. A process that is killed, also by SIGTERM, tells nothing. A line is one write to the
end of the file, so lines of several ranks do not mix.
"""

from __future__ import annotations

import atexit
import os
from contextlib import suppress
from typing import Self

from nvcoll._nvcoll import CallCounts
from nvcoll.cost.counts import Counts, MarkedCounts, packed, unpacked

VARIABLE = "NVCOLL_COUNTS"
"""The variable of the file: its descriptor, device and inode, and the rank. A program that a rank has started sees the
variable too. There the descriptor is another file, or none."""


NO_RANK = "-"
"""What stands behind the rank of a script that is one process and no rank."""


class Inbox:
    """The file to which ranks append, on the side that reads it. ``with`` closes it."""

    def __init__(self) -> None:
        import fcntl  # which Windows lacks

        self.descriptor = os.memfd_create("nvcoll-counts")
        fcntl.fcntl(self.descriptor, fcntl.F_SETFL, os.O_APPEND)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    def environment_of(self, rank: int, *, is_rank: bool) -> dict[str, str]:
        """Returns the variable by which a process finds the file; it inherits the descriptor."""
        return {VARIABLE: f"{_identity(self.descriptor)}:{rank}{'' if is_rank else NO_RANK}"}

    def read(self) -> dict[int, Counts]:
        """Returns the counts that ranks have sent, by rank."""
        received = {}
        for line in os.pread(self.descriptor, os.fstat(self.descriptor).st_size, 0).splitlines():
            with suppress(ValueError):  # the rank was killed while it wrote
                rank, _, text = line.partition(b" ")
                received[int(rank)] = unpacked(text)
        return dict(sorted(received.items()))


_counts: list[MarkedCounts] = []
_tells_nodes = False


def tell_at_end(counts: MarkedCounts) -> None:
    """Has this process tell the counts of a job when it ends, if `nvcoll run` has asked for them."""
    _counts.append(counts)


def tell_node_at_end(counts: CallCounts) -> None:
    """Has this process tell the counts of a node when it ends, if it is the script of `nvcoll run` and no rank."""
    if _tells_nodes:
        _counts.append(MarkedCounts(counts))


def _tell_to_inbox() -> None:
    """Has this process tell its counts when it ends, if `nvcoll run` has passed a file on; its children do not."""
    global _tells_nodes
    identity, _, rank = os.environ.pop(VARIABLE, "").rpartition(":")
    descriptor = int(identity.partition(":")[0] or -1)
    try:
        if _identity(descriptor) != identity:
            return
    except OSError:
        return
    os.set_inheritable(descriptor, False)
    _tells_nodes = rank.endswith(NO_RANK)
    process = os.getpid()

    def tell() -> None:
        if os.getpid() == process:
            text = packed([each.counts() for each in _counts])
            os.write(descriptor, f"\n{rank.removesuffix(NO_RANK)} {text}\n".encode())

    atexit.register(tell)


def _identity(descriptor: int) -> str:
    status = os.fstat(descriptor)
    return f"{descriptor}:{status.st_dev}:{status.st_ino}"


_tell_to_inbox()
