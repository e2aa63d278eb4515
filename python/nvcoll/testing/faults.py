"""Faults: a fault strikes one rank at an exact moment of one of its calls.

::

    call=c           the call after c other calls; the count begins when the test arms the fault
    step=None        the rank has not entered the call
    step=0           the rank has entered the call and done no step
    step=k           the rank has done k steps of the call
    step=-1          the rank has done all steps and has not left the call

The engine makes the fault strike on the thread of the call (``run/fault.rs``). No Python runs between the moment and
the fault. If the call has several queues, the rank does its steps in the order in which they become ready. So the same
step index may name another step in another run.
"""

from __future__ import annotations

import signal as signals
from dataclasses import dataclass, replace

from nvcoll import _nvcoll
from nvcoll._nvcoll import Communicator


@dataclass(frozen=True)
class Fault:
    """A fault of one rank at one moment. Make one with a class method: ``Fault.kill(rank=1, call=3, step=2)``.

    Attributes:
        rank: the rank of the communicator that the fault strikes.
        call: the number of calls that the rank makes before the call with the fault.
        step: the moment in that call. None: before the rank enters it. k: after k steps. -1: after all steps.
        strike: the name of the fault in the engine.
        number: the signal, the exit status or the seconds.
        is_of_messages: whether ``call`` counts sends and receives instead of calls.
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
        """Returns a fault in which SIGSTOP stops the rank. The rank continues when every other rank has ended."""
        return cls.signal(signals.SIGSTOP, rank, call, step)

    @classmethod
    def exit(cls, rank: int, call: int = 0, step: int | None = 0, *, status: int = 1) -> Fault:
        """Returns a fault in which the rank ends by ``_exit`` and sends nothing to its peers."""
        return cls(rank, call, step, "exit", status)

    @classmethod
    def fail(cls, rank: int, call: int = 0, step: int | None = 0) -> Fault:
        """Returns a fault in which the call raises on that rank, as it does when a signal handler raises."""
        return cls(rank, call, step, "raise")

    @classmethod
    def delay(cls, seconds: float, rank: int, call: int = 0, step: int | None = 0) -> Fault:
        """Returns a fault in which the rank waits for some seconds."""
        return cls(rank, call, step, "delay", seconds)

    @classmethod
    def out_of_memory(cls, rank: int, call: int = 0, step: int | None = 0) -> Fault:
        """Returns a fault after which the process of the rank gets no more memory."""
        return cls(rank, call, step, "memory")

    @classmethod
    def out_of_descriptors(cls, rank: int, call: int = 0, step: int | None = 0) -> Fault:
        """Returns a fault after which the process of the rank gets no more descriptors."""
        return cls(rank, call, step, "descriptors")

    def in_messages(self) -> Fault:
        """Returns the same fault in a send or a receive. ``sendrecv`` counts as two. A step moves any transfer."""
        return replace(self, is_of_messages=True)

    def arm(self, comm: Communicator, report: int | None = None) -> None:
        """Makes the fault strike in a later call of this communicator. On ranks other than ``rank`` it does nothing.

        Args:
            comm: the communicator. ``rank`` is a rank of it, and ``call`` counts its calls.
            report: a descriptor. The engine writes 16 bytes to it when the fault strikes: the time of
                ``time.monotonic_ns`` in nanoseconds, and the number of steps done.

        Raises:
            InvalidArgument: the rank is a thread, and the fault would strike the process of all ranks.
        """
        if comm.rank == self.rank:
            _nvcoll.arm(comm, self.is_of_messages, self.call, self.step, (self.strike, self.number), report)
