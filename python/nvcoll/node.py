"""Node: ranks in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from nvcoll import _nvcoll
from nvcoll._nvcoll import Aborted, Communicator

Result = TypeVar("Result")


class Node(_nvcoll.Node):
    """Ranks in this process: a node of virtual GPUs.

    One thread at a time may drive a node. ``all_reduce`` and ``plan`` speak for all ranks at once; ``run`` gives each
    rank a thread of its own.

    Args:
        world_size: the number of ranks, 1 to 1024.
        workers: threads that work for a call, the caller included. Default: the usable CPUs, at most one per rank.
        isa: the instruction set of the kernels, by the name that ``nvcoll info`` prints. Default: the best. The bits of
            results do not depend on it.

    Example:
        >>> import numpy as np
        >>> with Node(4) as node:
        ...     node.all_reduce(np.ones((4, 3), dtype="f4"))[0]
        array([4., 4., 4.], dtype=float32)
    """

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        """Leaves nothing to do: threads and memory go with the object."""

    def run(self, fn: Callable[..., Result], *args: Any, timeout: float | None = None) -> list[Result]:
        """Runs ``fn(comm, *args)`` in one thread per rank and returns the results by rank.

        Args:
            fn: the program of one rank; ``comm`` is its :class:`Communicator`.
            *args: passed to every rank.
            timeout: seconds that each collective may take; default for calls that do not say.

        Raises:
            BaseException: the first exception of a rank. The calls of others end with :class:`Aborted`, which names it.
            KeyboardInterrupt: Ctrl-C ends the calls of all ranks. The node is usable afterwards.
        """
        team = self.team()
        outcomes: list[Any] = [None] * self.world_size
        failures: list[tuple[int, BaseException]] = []

        def rank_main(rank: int) -> None:
            comm: Communicator = team.communicator(rank, timeout)
            try:
                outcomes[rank] = fn(comm, *args)
            except BaseException as error:
                failures.append((rank, error))
                team.fail(rank)

        threads = [
            threading.Thread(target=rank_main, args=(rank,), name=f"nvcoll-rank-{rank}", daemon=True)
            for rank in range(self.world_size)
        ]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except BaseException:
            team.interrupt()
            for thread in threads:
                thread.join()
            raise
        if failures:
            raise next((error for _, error in failures if not isinstance(error, Aborted)), failures[0][1])
        return outcomes
