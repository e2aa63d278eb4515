"""The numbers of communicators, on which the ranks of each agree."""

from __future__ import annotations

import threading

import numpy as np

from nvcoll._nvcoll import InvalidArgument, Mismatch
from nvcoll.hosts.carrier import SUBSETS, Carrier
from nvcoll.hosts.peers import COMMUNICATORS
from nvcoll.hosts.placement import Placement


class Numbers:
    """This process's next number.

    The first rank of a new communicator takes the largest next number of its ranks: no two communicators of a rank have
    one number, so no two of one pair of ranks.

    Args:
        carrier: the carrier.
    """

    def __init__(self, carrier: Carrier) -> None:
        self._carrier, self._next, self._turn = carrier, 2, threading.Lock()

    def agree(self, placement: Placement, tag: int, deadline: float | None) -> int:
        """Returns the number of a new communicator, which all its ranks ask for.

        Raises:
            Mismatch: another rank makes another communicator.
            InvalidArgument: there are no numbers left.
            Late, Lost, Stopped: as `Carrier.wait`.
        """
        with self._turn:
            own = np.array([self._next, tag, hash(placement.world) & 0x7FFFFFFF], np.int64)
            first, others = placement.world[0], placement.world[1:]
            if placement.rank:
                answer = np.empty_like(own)
                reply = self._carrier.irecv(answer.view(np.uint8), first, SUBSETS)
                self._carrier.wait([self._carrier.isend(own.view(np.uint8), first, SUBSETS)], deadline)
                self._carrier.wait([reply], deadline)
            else:
                asked = {rank: np.empty_like(own) for rank in others}
                self._carrier.wait(
                    [self._carrier.irecv(x.view(np.uint8), rank, SUBSETS) for rank, x in asked.items()], deadline
                )
                answer = own.copy()
                answer[0] = max([own[0], *(x[0] for x in asked.values())])
                self._carrier.wait(
                    [self._carrier.isend(answer.view(np.uint8), rank, SUBSETS) for rank in others], deadline
                )
                for rank, x in asked.items():
                    if (x[1:] != own[1:]).any():
                        raise Mismatch(
                            f"rank {first} makes a communicator of ranks {placement.world}, and rank {rank} another",
                            ranks=(0, placement.world.index(rank)),
                        )
            if (answer[1:] != own[1:]).any():
                text = f"rank {first} makes another communicator than one of ranks {placement.world}"
                raise Mismatch(text, ranks=(0, placement.rank))
            number = int(answer[0])
            if number > COMMUNICATORS:
                raise InvalidArgument(f"a rank has made {COMMUNICATORS} communicators: make fewer, and keep them")
            self._next = number + 1
            return number
