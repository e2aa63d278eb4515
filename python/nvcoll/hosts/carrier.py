"""What nvcoll needs of an engine that carries messages between hosts: two attributes and seven methods.

Messages go from a rank of the job to a rank of the job, by a tag up to `MAX_TAG`. Two with one tag
from one rank to another arrive in the order of their sends. The engine may copy a message or not: its bytes must stay
as they are until a wait for its request has returned. No message is longer than the receive that takes it, since a
record precedes data (`nvcoll.hosts.records`); it may be shorter, and the receiver knows its length from the record.

An engine may move bytes only while a rank is in one of its calls, as MPI does, or on a thread of its own, as gloo does.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Bytes: TypeAlias = "NDArray[np.uint8]"
"""A contiguous vector of bytes."""

MAX_TAG = 2**19 - 2
"""The largest tag: Intel MPI allows no larger ones on all fabrics."""

CONTROL, BEAT, SUBSETS = range(3)
"""Tags of the job: failures, signs of life, the making of communicators. Tags of communicators are larger."""

CLOSE_S = 1.0
"""How long `Carrier.close` waits for waits of other threads, which look at it, and for its last control message.
Measured: milliseconds. Chosen."""

ENDED = "this rank has left the job"
"""Why waits end if this rank leaves in order."""


class Request(NamedTuple):
    """A send or a receive under way; each may be waited for once.

    Attributes:
        pieces: the engine's own requests; none: it is not waited for.
        x: its bytes.
        peer: the other rank; None: any.
        tag: its tag.
        before: what the bytes of a receive were, if the engine looks at them until they change.
    """

    pieces: Sequence[Any]
    x: Bytes
    peer: int | None
    tag: int
    before: Bytes | None = None


class Late(Exception):
    """A deadline has passed.

    Args:
        message: what did not come.
        peer: the rank of the job that is late; None: nobody knows.
    """

    def __init__(self, message: str, peer: int | None = None) -> None:
        super().__init__(message)
        self.peer = peer


class Lost(Exception):
    """The engine has lost a peer, or cannot go on.

    Args:
        message: the engine's.
        peer: the rank of the job that is lost; None: nobody knows.
    """

    def __init__(self, message: str, peer: int | None = None) -> None:
        super().__init__(message)
        self.peer = peer


class Stopped(Exception):
    """`close` ended the waits of this process; the message is the reason that `close` got."""


class Waits:
    """The waits of an engine, of several threads; each is made in a ``with`` block.

    Attributes:
        end: why they end, since `Carrier.close`; else None.
    """

    def __init__(self) -> None:
        self.end: str | None = None
        self._changed, self._count = threading.Condition(), 0

    def check(self) -> None:
        """Raises `Stopped` since `Carrier.close`."""
        if self.end is not None:
            raise Stopped(self.end)

    def __enter__(self) -> None:
        with self._changed:
            self._count += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    def return_soon(self) -> bool:
        """Waits until all have seen the end, and says whether they have."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._count, CLOSE_S)


class Carrier(Protocol):
    """An engine between hosts. Every method may be called from several threads at once.

    Attributes:
        rank: this process, in the job.
        size: the number of ranks of the job.
    """

    rank: int
    size: int

    def exchange(self, own: bytes) -> list[bytes]:
        """Gives every rank the bytes of all ranks, by rank; at the start only. Lengths may differ.

        Raises:
            Late, Lost: a rank did not come, or is gone.
        """
        ...

    def connect(self, is_one_machine: bool) -> str:
        """Connects the ranks; once, after an exchange, by all of them. Messages follow.

        Args:
            is_one_machine: hosts are pretended, or share a network: loopback will do.

        Returns:
            The way that messages take, for people.

        Raises:
            Late, Lost: a rank did not come, or cannot be reached.
        """
        ...

    def isend(self, x: Bytes, peer: int, tag: int) -> Request:
        """Begins to send bytes to a rank."""
        ...

    def irecv(self, x: Bytes, peer: int | None, tag: int) -> Request:
        """Begins to receive at most ``len(x)`` bytes from a rank; None: from any.

        A message is as long as `x` if it is longer than a piece, 60,000 bytes. It has 8 bytes or more if it is of
        control, or if its receive is from any rank.
        """
        ...

    def wait(self, requests: Sequence[Request], deadline: float | None) -> None:
        """Waits until all requests are over.

        Args:
            requests: each is waited for once only.
            deadline: a time of ``time.monotonic``; None: no limit.

        Raises:
            Late: the deadline has passed. The buffers may still be written or read: keep them.
            Lost: a peer is gone.
            Stopped: `close` was called with a reason.
        """
        ...

    def poke(self, requests: Sequence[Request]) -> None:
        """Lets the engine move the bytes of requests, without waiting. It raises nothing."""
        ...

    def close(self, failed: str | None) -> None:
        """Ends the engine.

        Args:
            failed: None: this rank leaves in order. Else why it cannot go on: waits of this process, also of other
                threads, and later ones end with `Stopped` and this text; what is in flight is left alone.
        """
        ...
