"""The engine between hosts over gloo, which comes with torch: TCP, with a thread of its own that moves bytes.

Ranks meet at torch's store. There they exchange what they say of themselves, then the addresses at which they listen,
and at last gloo connects each two ranks, twice: once for data, once for control messages.

How gloo differs from what `nvcoll.hosts.carrier` asks, and what is done about it:

1. A wait that exceeds its time closes every connection of its context. So control has a context of its own, and a rank
   that is late with data can still say so.
2. Nothing ends a wait of another thread, except for (1): `close` starts a receive that times out at once.
3. A receive from any rank is not even ended by (1), and control must outlive `close`. The buffers of both are filled
   with random bytes, and looked at until they change; only then are they waited for. Sends of control are not waited
   for: their receives are posted.
4. A second wait for a request hangs. Each is waited for once, as the contract says.
5. A thread that waits in C++ when Python ends terminates the process. By (2) and (3) none does, and `close` returns
   when the last has come back.
6. Ctrl-C does not end a wait in C++. So Python writes the signals of the main thread's waits to a socket. The thread
   that waits for control looks at it, and ends the waits as `close` does.

Cost: 2 (size - 1) sockets per rank, a thread and a loop of gloo. Connections on first use (gloo's lazy devices) were
tried: a send blocks there until its receiver has touched the connection, and ranks that send in a circle hang.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import secrets
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np

from nvcoll._nvcoll import Closed, InvalidArgument, Timeout
from nvcoll.hosts.carrier import CLOSE_S, ENDED, SUBSETS, Bytes, Late, Lost, Request, Stopped, Waits
from nvcoll.hosts.interfaces import Interface, between_hosts, towards
from nvcoll.text.formatting import listed

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroupGloo, Store, Work

CLOSING_TAG = 2**31 - 1
"""The tag of the receives that nobody answers."""

FOREVER = timedelta(days=3650)
"""The time of a wait without a limit: gloo knows only waits with one. Chosen."""

LOOK_S = 0.02
"""How often a receive of control messages and the store are looked at. Chosen: failures arrive in less than 0.1 s."""

SHORT_LOOK_S = 1e-3
"""How often a receive of other messages from any rank is looked at, in the end; at first more often. Chosen."""

PORT = 29500
"""The port of the store where ``MASTER_PORT`` is not set. Cited: torch.distributed.run."""

TOLD = 4096
"""How many sends of control messages are kept: their senders may not wait for them. Chosen."""

GRAIN_S = 2e-3
"""How much earlier than its deadline a wait may end: gloo counts milliseconds. Chosen."""

_stores: dict[tuple[str, int, str], Store] = {}
"""The stores of this process: rank 0 serves its own until the process ends."""

_left: list[object] = []
"""Engines that failed, with all they refer to: nobody knows what gloo still reads and writes."""


class Gloo:
    """The engine over gloo."""

    def __init__(
        self, store: Store, rank: int, size: int, timeout: float | None, master: str, interface: str | None = None
    ) -> None:
        """Makes the engine; `connect` connects it.

        Args:
            store: torch's, the same on all ranks; it may have served other engines before.
            rank: this process.
            size: the number of ranks.
            timeout: seconds from now until all ranks must have come; None: no limit.
            master: the address of the store, to which other hosts have a route.
            interface: the interfaces to use, separated by commas. Default: ``GLOO_SOCKET_IFNAME``, else the one that
                leads to `master`.
        """
        from torch.distributed import PrefixStore

        self.rank, self.size = rank, size
        self._master, self._names = master, interface or os.environ.get("GLOO_SOCKET_IFNAME", "")
        self._end = None if timeout is None else time.monotonic() + timeout
        self._limit = timeout
        try:
            self._store = PrefixStore(f"nvcoll.outer/{store.add(f'nvcoll.outer/{rank}', 1)}", store)
        except RuntimeError as error:
            raise Closed(f"the store at {master}: {_first_line(error)}") from error
        self._exchanged = 0
        self._data: ProcessGroupGloo | None = None
        self._control: ProcessGroupGloo | None = None
        self._told: deque[tuple[Work, Bytes]] = deque(maxlen=TOLD)
        self._waits, self._closing = Waits(), threading.Lock()
        self._signals = socket.socketpair()
        for end in self._signals:
            end.setblocking(False)

    @classmethod
    def at_master(cls, rank: int, size: int, timeout: float | None) -> Gloo:
        """Returns the engine of ranks that meet at the store at ``MASTER_ADDR``.

        Raises:
            InvalidArgument: the address does not resolve, or no route leads there.
            Timeout: nobody serves the store.
            Closed: who serves it has ended.
        """
        return cls(_store_at_master(rank, timeout), rank, size, timeout, os.environ["MASTER_ADDR"])

    def exchange(self, own: bytes) -> list[bytes]:
        """Gives every rank the bytes of all ranks, by rank."""
        self._exchanged += 1
        keys = [f"{self._exchanged}/{rank}" for rank in range(self.size)]
        try:
            self._store.set(keys[self.rank], own)
            if not _looked(lambda: self._store.check(keys), self._end, LOOK_S):
                missing = [rank for rank, key in enumerate(keys) if not self._store.check([key])]
                raise Late(f"{listed(missing)} did not come to the store at {self._master} in {self._limit} s")
            return [bytes(one) for one in self._store.multi_get(keys)]
        except RuntimeError as error:
            raise Lost(f"the store at {self._master}: {_first_line(error)}") from error

    def connect(self, is_one_machine: bool) -> str:
        """Connects each two ranks. All ranks call it, after an exchange.

        Args:
            is_one_machine: loopback will do.

        Returns:
            gloo and its interface, for people.

        Raises:
            Late, Lost: a rank did not come, or cannot be reached; the message names both addresses.
        """
        from torch.distributed import PrefixStore, ProcessGroupGloo

        try:
            own = towards(self._master)
            addresses = [one.decode() for one in self.exchange(own.address.encode())]
            if not self._names and not is_one_machine:
                own = between_hosts(own, addresses)
        except OSError as error:
            raise Lost(f"no interface leads from here to MASTER_ADDR={self._master}: {error}") from error
        try:
            devices = [ProcessGroupGloo.create_device(interface=name) for name in self._names.split(",") if name]
            devices = devices or [ProcessGroupGloo.create_device(hostname=own.address)]
            for name in ("data", "control"):
                options = ProcessGroupGloo._Options()
                options._devices, options._threads, options._timeout = devices, 1, self._left_of(self._end)
                group = ProcessGroupGloo(PrefixStore(name, self._store), self.rank, self.size, options)
                setattr(self, f"_{name}", group)
        except RuntimeError as error:
            said = f"gloo at {self._names or own} did not reach all ranks (MASTER_ADDR={self._master})"
            raise Lost(f"{said}: {_first_line(error)}") from error
        return f"gloo over {self._names or own}"

    def isend(self, x: Bytes, peer: int, tag: int) -> Request:
        """Begins to send bytes to a rank."""
        if tag >= SUBSETS:
            return Request([self._begin("send", x, tag, peer)], x, peer, tag)
        x = x.copy()
        self._told.append((self._begin("send", x, tag, peer), x))
        return Request([], x, peer, tag)

    def irecv(self, x: Bytes, peer: int | None, tag: int) -> Request:
        """Begins to receive at most ``len(x)`` bytes from a rank; None: from any."""
        before = None
        if peer is None or tag < SUBSETS:
            x[:] = before = np.frombuffer(secrets.token_bytes(len(x)), np.uint8)
        work = self._begin("recv_anysource", x, tag) if peer is None else self._begin("recv", x, tag, peer)
        return Request([work], x, peer, tag, before)

    def wait(self, requests: Sequence[Request], deadline: float | None) -> None:
        """Waits until all requests are over."""
        try:
            for request in requests:
                self._look_for(request, deadline)
                self._waits.check()
                for work in request.pieces:
                    self._wait(work, deadline)
        except RuntimeError as error:
            _left.append(requests)
            raise self._meaning(error, request.peer, deadline) from error
        except (Late, Stopped):
            if self._waits.end != ENDED:
                _left.append(requests)
            raise

    def poke(self, requests: Sequence[Request]) -> None:
        """Does nothing: gloo's own thread moves bytes."""

    def close(self, failed: str | None) -> None:
        """Ends the engine; see `nvcoll.hosts.carrier`. Control messages under way still arrive."""
        with self._closing:
            if self._waits.end is None:
                self._waits.end = failed or ENDED
                self._end_waits()
                if failed is None and self._told:
                    with contextlib.suppress(RuntimeError):  # the last receiver has left
                        self._told[-1][0].wait(timedelta(seconds=CLOSE_S))
            self._waits.return_soon()
            if failed is None:
                self._data = self._control = None
            else:
                _left.append(self)

    def _end_waits(self) -> None:
        if self._data is not None:
            with contextlib.suppress(RuntimeError):
                nobody = self._data.recv_anysource([_tensor(np.empty(1, np.uint8))], CLOSING_TAG)
                nobody.wait(timedelta(milliseconds=1))

    def _begin(self, call: str, x: Bytes, tag: int, *peer: int) -> Work:
        self._waits.check()
        group = self._control if tag < SUBSETS else self._data
        try:
            work: Work = getattr(group, call)([_tensor(x)], *peer, tag)
        except RuntimeError as error:
            raise self._meaning(error, peer[0] if peer else None) from error
        return work

    def _wait(self, work: Work, deadline: float | None) -> None:
        is_mine = False
        with self._waits:
            try:
                is_mine = self._takes_signals()
                work.wait(self._left_of(deadline))
            finally:
                if is_mine:
                    signal.set_wakeup_fd(-1)

    def _takes_signals(self) -> bool:
        """Has Python write the signals of the main thread's wait to a socket, unless it writes them elsewhere."""
        if threading.current_thread() is not threading.main_thread():
            return False
        before = signal.set_wakeup_fd(self._signals[1].fileno(), warn_on_full_buffer=False)
        if before >= 0:
            signal.set_wakeup_fd(before)
        return before < 0

    def _look_at_signals(self) -> None:
        """Ends the waits of this process after Ctrl-C, so that the main thread raises `KeyboardInterrupt`."""
        is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        with contextlib.suppress(BlockingIOError):
            if signal.SIGINT in self._signals[0].recv(64) and is_default:
                self._end_waits()

    def _look_for(self, request: Request, deadline: float | None) -> None:
        """Returns when the bytes of a receive that is looked at begin to come."""
        if (before := request.before) is None:
            return

        def has_come() -> bool:
            self._waits.check()
            if request.tag < SUBSETS:
                self._look_at_signals()
            return not np.array_equal(request.x, before)

        if not _looked(has_come, deadline, 2e-5, LOOK_S if request.tag < SUBSETS else SHORT_LOOK_S):
            raise Late("nothing was sent", request.peer)

    def _meaning(self, error: RuntimeError, peer: int | None, deadline: float | None = None) -> Exception:
        """Returns what an error of gloo means. All have one type: one that comes at the deadline is of the deadline."""
        if self._waits.end is not None:
            return Stopped(self._waits.end)
        if deadline is not None and time.monotonic() > deadline - GRAIN_S:
            return Late("no answer", peer)
        return Lost(_first_line(error), peer)

    @staticmethod
    def _left_of(deadline: float | None) -> timedelta:
        return FOREVER if deadline is None else timedelta(seconds=max(deadline - time.monotonic(), 0.001))


def _looked(is_so: Callable[[], bool], end: float | None, pause: float, longest: float = 0.0) -> bool:
    """Looks until something is so, or until a time, and says whether it is so.

    Args:
        is_so: what is looked at.
        end: a time of ``time.monotonic``; None: no limit.
        pause: seconds between the first two looks; twice as long from look to look, up to `longest`.
        longest: default: all pauses are equal.
    """
    while not is_so():
        if end is not None and time.monotonic() > end:
            return False
        time.sleep(pause)
        pause = min(2 * pause, max(longest, pause))
    return True


def _tensor(x: Bytes) -> torch.Tensor:
    """Returns a tensor on the memory of an array, also of one that may only be read: torch warns of those."""
    import torch

    if not x.flags.writeable and len(x):
        x = np.ctypeslib.as_array((ctypes.c_uint8 * len(x)).from_address(x.ctypes.data))
    return torch.from_numpy(x)


def _first_line(error: BaseException) -> str:
    """Returns a message of torch or gloo without the place in its source, its advice and the stack of C++."""
    return re.sub(r"^(\[[^]]*\] )?(.*?)(\. .*)?$", r"\2", str(error).partition("\n")[0]) or type(error).__name__


def _store_at_master(rank: int, timeout: float | None) -> Store:
    """Returns torch's store at ``MASTER_ADDR``, which rank 0 serves, or torchrun's agent."""
    from torch.distributed import PrefixStore, TCPStore

    host, said = os.environ["MASTER_ADDR"], os.environ.get("MASTER_PORT") or str(PORT)
    if not (said.isascii() and said.isdecimal()) or not 0 < (port := int(said)) < 2**16:
        raise InvalidArgument(f"MASTER_PORT={said} is no port: set it to a number, 1 to 65535, or unset it")
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    key = host, port, attempt
    if key not in _stores:
        serves = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        own = _route_to(host)
        if not serves:
            _await(host, port, own, timeout)
        limit = FOREVER if timeout is None else timedelta(seconds=timeout)
        try:
            store = TCPStore(host, port, None, serves, limit, wait_for_workers=False, multi_tenant=True)
        except RuntimeError as error:
            raise InvalidArgument(f"no store at MASTER_ADDR={host}, port {port}: {_first_line(error)}") from error
        _stores[key] = PrefixStore(f"nvcoll/{attempt}", store)
    return _stores[key]


def _route_to(host: str) -> Interface:
    try:
        return towards(host)
    except OSError as error:
        raise InvalidArgument(f"MASTER_ADDR={host} cannot be reached from {socket.gethostname()}: {error}") from error


def _await(host: str, port: int, own: Interface, timeout: float | None) -> None:
    """Returns when somebody listens at an address. torch would print a stack for every try."""
    problem: OSError | None = None

    def is_served() -> bool:
        nonlocal problem
        try:
            socket.create_connection((host, port), 1).close()
        except OSError as error:
            problem = error
            return False
        return True

    if _looked(is_served, None if timeout is None else time.monotonic() + timeout, LOOK_S):
        return
    loopback = ", a loopback address, which only processes of this host reach" if own.is_loopback else ""
    raise Timeout(
        f"nothing answers at MASTER_ADDR={host}, port {port}, from {own} within {timeout} s ({problem}){loopback}: see "
        "whether rank 0 was started, and set MASTER_ADDR to an address of its host that other hosts reach"
    )
