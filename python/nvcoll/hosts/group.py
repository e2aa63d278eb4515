"""Calls that launch together, one after the other."""

from __future__ import annotations

from types import TracebackType
from typing import Literal

from nvcoll._nvcoll import Busy
from nvcoll.hosts.lane import Call, Lane, Work


class Group:
    """The calls of a ``with`` block: see `nvcoll.Group`. Made by `Communicator.group`.

    Args:
        lane: runs the calls.
        opened: the open group of the communicator, if there is one.
        timeout: seconds that each call may take that does not say; None: as outside of the group.
        async_op: whether the program continues after the block while the calls run.

    Attributes:
        work: the work of the calls, if the group is asynchronous and its block has ended.
    """

    def __init__(self, lane: Lane, opened: list[Group], timeout: float | None, *, async_op: bool) -> None:
        self.timeout = timeout
        self._lane, self._opened, self._is_async = lane, opened, async_op
        self._calls: list[Call] = []
        self.work: Work | None = None

    def add(self, call: Call) -> None:
        """Adds a call."""
        self._calls.append(call)

    def __len__(self) -> int:
        return len(self._calls)

    def __enter__(self) -> Group:
        if self._opened:
            raise Busy("another group of this communicator is open: end its block first")
        self._opened.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> Literal[False]:
        self._opened.clear()
        if kind is None and self._calls:
            if self._is_async:
                self.work = self._lane.issue(self._all, self._name)
            else:
                self.run()
        return False

    def run(self) -> None:
        """Makes the calls, again if they were made, on the present elements of their arrays."""
        self._lane.run(self._all, self._name)

    @property
    def _name(self) -> str:
        return f"a group of {len(self)} calls"

    def _all(self) -> None:
        begun = [work for work in [call() for call in self._calls] if isinstance(work, Work)]
        for message in begun:
            message.wait()
