"""The engine between hosts over MPI, by mpi4py: point-to-point messages of a communicator of its own.

MPI moves bytes only while a rank is in one of its calls. So messages go in pieces below the eager limit
(`PIECE_BYTES`), which need nothing of a receiver that is in a call inside its host. A wait looks at its requests in a
loop, which yields the core and later sleeps: a wait of MPI's own spins for ever, and knows neither a deadline nor
`close`.

MPI never says that a link is down, and most launchers end the whole job when a rank dies. A rank that fails aborts the
job at its end (`end`), since ``MPI_Finalize`` waits for all ranks: but only after `GRACE_S`, in which the others say
what they know.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from os import getpid, sched_yield
from typing import TYPE_CHECKING

import numpy as np

from nvcoll._nvcoll import InvalidArgument
from nvcoll.hosts.carrier import ENDED, MAX_TAG, SUBSETS, Bytes, Late, Lost, Request, Waits

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from mpi4py import MPI

PIECE_BYTES = 60_000
"""The longest message that is sent in one piece. Measured: above MPI's eager limit of 64 KiB, 16 MiB at 1 Gbit/s took
245 ms instead of 156."""

YIELDS = 1000
"""How often a wait looks and yields before it sleeps: about a millisecond. Chosen."""

SLEEP_S = 5e-5
LONG_SLEEP_S = 2e-3
"""How long a wait sleeps between two looks, in its first second and later. Chosen."""

CONTROL_SLEEP_S = 0.02
"""The same for control messages: failures arrive in less than 0.1 s. Chosen."""

GRACE_S = 2.0
"""How long a failed rank waits before it aborts the job. Chosen: control messages arrive in less."""

_left: list[object] = []
"""Requests of waits that failed: sends of MPI cannot be cancelled."""

_failed: list[str] = []
"""Why engines of this process have failed."""

_process = getpid()
"""The process that runs MPI: its forked children must not end it."""

_is_ours = False
"""Whether nvcoll has started MPI, and so ends it."""


def without_mpi() -> str:
    """Returns why there is no MPI here, for a message; nothing if there is one, which then runs."""
    global _is_ours
    if find_spec("mpi4py") is None:
        return "; mpi4py is not installed"
    try:
        if "mpi4py.MPI" not in sys.modules:
            import mpi4py

            mpi4py.rc.finalize = False
            _is_ours = True
        from mpi4py import MPI  # noqa: F401
    except (ImportError, RuntimeError) as error:
        _is_ours = False
        first = str(error).partition("\n")[0]
        return f"; mpi4py finds no MPI ({first}): set MPI4PY_LIBMPI to the path of its libmpi.so"
    return ""


def end(has_failed: bool) -> None:
    """Ends MPI, if it runs: now and for the whole job if a rank or an engine has failed, else with the process."""
    module = sys.modules.get("mpi4py.MPI")
    if getpid() != _process or module is None or not module.Is_initialized() or module.Is_finalized():
        return
    if has_failed or _failed:
        until = time.monotonic() + GRACE_S
        while time.monotonic() < until:
            module.COMM_WORLD.Iprobe()  # pushes what is under way
            time.sleep(SLEEP_S)
        module.COMM_WORLD.Abort(1)
    elif _is_ours:
        _finalize_at_exit(module)


def _finalize_at_exit(module: ModuleType) -> None:
    """Has the C library finalize MPI, which waits for all ranks, once the ranks of this host know the exit status."""
    try:
        ctypes.CDLL(None).on_exit(ctypes.CDLL(module.__file__).MPI_Finalize, None)
    except AttributeError:  # not the GNU C library
        module.Finalize()


class Mpi:
    """The engine over MPI."""

    def __init__(self, rank: int, size: int, timeout: float | None) -> None:
        """Makes a communicator of all ranks of MPI.

        Args:
            rank: this process, as its launcher says.
            size: the number of ranks, as it says.
            timeout: seconds that each exchange may take; None: no limit.

        Raises:
            InvalidArgument: MPI says something else, has no threads, or too few tags.
        """
        from mpi4py import MPI

        self._mpi, world = MPI, MPI.COMM_WORLD
        if (world.rank, world.size) != (rank, size):
            raise InvalidArgument(
                f"MPI says rank {world.rank} of {world.size}, expected rank {rank} of {size}: start the ranks by the "
                "mpirun of the MPI that mpi4py uses; under Slurm, by srun --mpi=pmix or --mpi=pmi2"
            )
        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise InvalidArgument(
                "MPI was started without MPI_THREAD_MULTIPLE: leave mpi4py.rc.thread_level as it is, or call "
                "nvcoll.init() before the program imports mpi4py.MPI"
            )
        self._comm = world.Dup()
        self._comm.Set_errhandler(MPI.ERRORS_RETURN)
        self.rank, self.size, self._limit = rank, size, timeout
        if (most := self._comm.Get_attr(MPI.TAG_UB) or 0) < MAX_TAG:
            raise InvalidArgument(f"the largest tag of this MPI is {most}, nvcoll needs {MAX_TAG}")
        self._waits = Waits()
        self._posted: dict[int, Request] = {}

    def exchange(self, own: bytes) -> list[bytes]:
        """Gives every rank the bytes of all ranks, by rank."""
        mine, lengths = np.frombuffer(own, np.uint8), np.empty(self.size, np.int64)
        self._call("Iallgather", np.array([len(own)]), lengths)
        text = np.empty(lengths.sum(), np.uint8)
        self._call("Iallgatherv", [mine, self._mpi.BYTE], [text, lengths, self._mpi.BYTE])
        return [bytes(part) for part in np.split(text, np.cumsum(lengths)[:-1])]

    def connect(self, is_one_machine: bool) -> str:
        """Does nothing: MPI connects ranks when they talk. Returns its name."""
        first = str(self._mpi.Get_library_version()).strip("\0").partition(",")[0].partition("\n")[0]
        return f"MPI ({' '.join(first.split())})"

    def isend(self, x: Bytes, peer: int, tag: int) -> Request:
        """Begins to send bytes to a rank."""
        return self._begin(self._comm.Isend, x, peer, peer, tag)

    def irecv(self, x: Bytes, peer: int | None, tag: int) -> Request:
        """Begins to receive at most ``len(x)`` bytes from a rank; None: from any."""
        request = self._begin(self._comm.Irecv, x, peer, self._mpi.ANY_SOURCE if peer is None else peer, tag)
        self._posted[id(request)] = request
        return request

    def wait(self, requests: Sequence[Request], deadline: float | None) -> None:
        """Waits until all requests are over."""
        pieces = [piece for request in requests for piece in request.pieces]
        is_control = any(request.tag < SUBSETS for request in requests)
        try:
            self._loop(pieces, deadline, is_control)
        except BaseException as error:
            _left.append(requests)
            if isinstance(error, Late):
                late = (one.peer for one in requests if not self._mpi.Request.Testall(one.pieces))
                raise Late("no answer", next(late, None)) from None
            raise
        for request in requests:
            self._posted.pop(id(request), None)

    def poke(self, requests: Sequence[Request]) -> None:
        """Lets MPI move bytes, without waiting."""
        pieces = [piece for request in requests for piece in request.pieces]
        if pieces and self._waits.end is None:
            with contextlib.suppress(self._mpi.Exception):  # the wait says so
                self._mpi.Request.Testall(pieces)

    def close(self, failed: str | None) -> None:
        """Ends the engine; see `nvcoll.hosts.carrier`."""
        if self._waits.end is not None:
            return
        self._waits.end = failed or ENDED
        if failed is not None:
            _failed.append(failed)
        if self._waits.return_soon() and failed is None:
            for request in self._posted.values():
                for piece in request.pieces:
                    if piece:  # not over
                        piece.Cancel()
                        piece.Free()

    def _begin(self, call: Callable[..., MPI.Request], x: Bytes, peer: int | None, place: int, tag: int) -> Request:
        self._waits.check()
        starts = range(0, len(x), PIECE_BYTES) if len(x) > PIECE_BYTES else (0,)
        byte = self._mpi.BYTE
        try:
            pieces = [call([x[at : at + PIECE_BYTES], byte], place, tag) for at in starts]
        except self._mpi.Exception as error:
            raise Lost(f"MPI: {error}", peer) from error
        return Request(pieces, x, peer, tag)

    def _call(self, name: str, *arrays: object) -> None:
        """Makes a collective call of MPI's, with the deadline."""
        deadline = None if self._limit is None else time.monotonic() + self._limit
        try:
            self._loop([getattr(self._comm, name)(*arrays)], deadline, False)
        except Late:
            raise Late(f"not all ranks of MPI came within {self._limit} s") from None

    def _loop(self, pieces: list[MPI.Request], deadline: float | None, is_control: bool) -> None:
        test, looks, begin = self._mpi.Request.Testall, 0, time.monotonic()
        try:
            with self._waits:
                while True:
                    self._waits.check()
                    if test(pieces):
                        return
                    now, looks = time.monotonic(), looks + 1
                    if deadline is not None and now > deadline:
                        raise Late("MPI did not finish in time")
                    if is_control:
                        time.sleep(CONTROL_SLEEP_S)
                    elif looks < YIELDS:
                        sched_yield()
                    else:
                        time.sleep(SLEEP_S if now - begin < 1 else LONG_SLEEP_S)
        except self._mpi.Exception as error:
            raise Lost(f"MPI: {error}") from error
