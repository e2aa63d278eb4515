"""Calls that launch together, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from nvcoll._nvcoll import Busy
from nvcoll.hosts.lane import Work

if TYPE_CHECKING:
    from nvcoll.hosts.communicator import Communicator


class Group:
    """The calls of a ``with`` block: see `nvcoll.Group`. Made by `Communicator.group`."""

    def __init__(self, comm: Communicator, timeout: float | None, *, async_op: bool) -> None:
        self._comm, self._timeout, self._is_async = comm, timeout, async_op
        self._calls: list[Callable[[], Any]] = []
        self._work: Work | None = None

    def add(self, name: str, call: Callable[[], Any]) -> None:
        """Adds a call."""
        self._calls.append(call)

    def __len__(self) -> int:
        return len(self._calls)

    def __enter__(self) -> Group:
        if self._comm._group is not None:
            raise Busy("another group of this communicator is open: end its block first")
        self._comm._group = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> Literal[False]:
        self._comm._group = None
        if kind is None and self._calls:
            if self._is_async:
                self._work = self._comm._lane.issue(self._all, self._name)
            else:
                self.run()
        return False

    def run(self, *, timeout: float | None = None) -> None:
        """Makes the calls, again if they were made, on the present elements of their arrays."""
        self._comm._lane.run(self._all, self._name)

    @property
    def work(self) -> Work | None:
        """The work of the calls, if the group is asynchronous and its block has ended."""
        return self._work

    @property
    def _name(self) -> str:
        return f"a group of {len(self)} calls"

    def _all(self) -> None:
        for call in self._calls:
            call()
