"""Messages between two ranks, which may be on different hosts."""

from __future__ import annotations

from typing import Any

from nvcoll._nvcoll import Communicator as HostCommunicator
from nvcoll._nvcoll import InvalidArgument, Message
from nvcoll.hosts.channel import Channel
from nvcoll.hosts.places import Places
from nvcoll.hosts.watch import Watch

__all__ = ["Message", "Messages"]


class Messages:
    """The sends and receives of a communicator."""

    def __init__(
        self, places: Places, inner: HostCommunicator, channel: Channel, watch: Watch, timeout: float | None
    ) -> None:
        self._places, self._inner = places, inner

    def isend(self, x: Any, dst: int, tag: int | None, timeout: float | None) -> Any:
        """Begins to send an array to a rank."""
        return self._inner.isend(x, self._near(dst), tag=tag, timeout=timeout)

    def irecv(self, x: Any, src: int | None, tag: int | None, timeout: float | None) -> Any:
        """Begins to receive an array from a rank."""
        return self._inner.irecv(x, self._near(src), tag=tag, timeout=timeout)

    def _near(self, rank: int | None) -> int:
        if rank is None or rank not in self._places.mine:
            raise InvalidArgument("messages between hosts are not there yet: pass a rank of this host")
        return self._places.mine.index(rank)
