"""Faults: something happens to one rank at an exact moment of one of its calls.

::

    call=c           the call after c others, counted from the moment when the fault is armed
    step=None        before the rank enters the call
    step=0           it has entered, and has done no step
    step=k           it has done k steps of the call
    step=-1          it has done all of them, and has not left the call

The engine has the fault strike, on the thread of the call (``run/fault.rs``): no Python runs between the moment and the
fault. A rank that calls with several queues does its steps in the order in which they become ready, so the same step
index may be another step in another run.
"""

from __future__ import annotations

import signal as signals
from dataclasses import dataclass, replace

from nvcoll import _nvcoll
from nvcoll._nvcoll import Communicator


@dataclass(frozen=True)
class Fault:
    """What happens to which rank, and when. Make one by its class methods: ``Fault.kill(rank=1, call=3, step=2)``.

    Attributes:
        rank: the rank of the communicator that is struck.
        call: the number of calls that it makes before.
        step: the moment in that call; see above.
        strike: what happens, in the words of the engine.
        number: the signal, the exit status or the seconds.
        is_of_messages: sends and receives count, and not calls.
    """

    rank: int
    call: int
    step: int | None
    strike: str
    number: float = 0
    is_of_messages: bool = False

    @classmethod
    def signal(cls, number: int, rank: int, call: int = 0, step: int | None = 0) -> Fault:
        """Returns a fault in which the rank sends itself a signal."""
        return cls(rank, call, step, "signal", number)

    @classmethod
    def kill(cls, rank: int, call: int = 0, step: int | None = 0) -> Fault:
        """Returns a fault in which SIGKILL ends the rank."""
        return cls.signal(signals.SIGKILL, rank, call, step)

    @classmethod
    def segfault(cls, rank: int, call: int = 0, step: int | None = 0) -> Fault:
        """Returns a fault in which SIGSEGV ends the rank."""
        return cls.signal(signals.SIGSEGV, rank, call, step)

    @classmethod
    def stop(cls, rank: int, call: int = 0, step: int | None = 0) -> Fault:
        """Returns a fault in which SIGSTOP stops the rank. It goes on when every other rank has ended."""
        return cls.signal(signals.SIGSTOP, rank, call, step)

    @classmethod
    def exit(cls, rank: int, call: int = 0, step: int | None = 0, *, status: int = 1) -> Fault:
        """Returns a fault in which the rank ends by ``_exit``, without a word to its peers."""
        return cls(rank, call, step, "exit", status)

    @classmethod
    def fail(cls, rank: int, call: int = 0, step: int | None = 0) -> Fault:
        """Returns a fault in which the call raises on that rank, as when a handler of a signal raises."""
        return cls(rank, call, step, "raise")

    @classmethod
    def delay(cls, seconds: float, rank: int, call: int = 0, step: int | None = 0) -> Fault:
        """Returns a fault in which the rank stays where it is for some time."""
        return cls(rank, call, step, "delay", seconds)

    @classmethod
    def out_of_memory(cls, rank: int, call: int = 0, step: int | None = 0) -> Fault:
        """Returns a fault from which on the process of the rank gets no more memory."""
        return cls(rank, call, step, "memory")

    @classmethod
    def out_of_descriptors(cls, rank: int, call: int = 0, step: int | None = 0) -> Fault:
        """Returns a fault from which on the process of the rank gets no more descriptors."""
        return cls(rank, call, step, "descriptors")

    @classmethod
    def kill_launcher(cls, rank: int, call: int = 0, step: int | None = 0) -> Fault:
        """Returns a fault in which the rank kills its parent process, which is its launcher."""
        return cls(rank, call, step, "signal parent", signals.SIGKILL)

    def in_messages(self) -> Fault:
        """Returns the same fault in a send or a receive, of which ``sendrecv`` makes two. A step moves any transfer."""
        return replace(self, is_of_messages=True)

    def arm(self, comm: Communicator, told: int | None = None) -> None:
        """Has the fault strike in a later call of this communicator. On other ranks than its own it does nothing.

        Args:
            comm: the communicator whose calls and ranks count.
            told: a descriptor to which the engine writes 16 bytes as the fault strikes: the time in nanoseconds, as
                ``time.monotonic_ns`` has it, and the number of steps done.

        Raises:
            InvalidArgument: the rank is a thread, and the fault would strike the process of all ranks.
        """
        if comm.rank == self.rank:
            _nvcoll.arm(comm, self.is_of_messages, self.call, self.step, (self.strike, self.number), told)
