"""How ranks on several hosts become one job.

::

    each rank says of itself     its version, its host, its user, a name and a token for the ranks of its host
    all compare                  versions, and the users of a host: a difference is an error on all ranks
    one host                     the engine is closed; the ranks join each other as without an engine
    several                      the engine connects them; the ranks of each host join each other
    each rank says how it went   all ranks are in the job, or none

The name and the token come from the lowest rank of a host. Who can read the store, or the network, can read the
token; so can who runs as the same user on that host.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from importlib.util import find_spec
from typing import Any, TypeVar

from nvcoll._nvcoll import Aborted, Closed, Communicator, InvalidArgument, Timeout, __version__
from nvcoll.hosts.carrier import Carrier, Late, Lost
from nvcoll.hosts.placement import Placement
from nvcoll.text.formatting import listed, printable

PRETEND = "NVCOLL_PRETEND_HOSTS"
"""For tests: the number of ranks of one machine that count as a host."""

BETWEEN = "NVCOLL_BETWEEN"
"""The variable of the engine: ``mpi`` or ``gloo``."""

TOKEN = re.compile("[0-9a-f]{64}")
"""A token in hexadecimal digits."""

Across = TypeVar("Across")

Join = Callable[[int, int, str, bytes], Communicator]
"""Joins the ranks of this host: local rank, their number, name of the job, token."""


@dataclass(frozen=True)
class Card:
    """What a rank says of itself.

    Attributes:
        version: that of nvcoll.
        machine: the boot of the kernel, and the network namespace.
        host: the same, or a part of it in tests.
        name: the name of the host, for people.
        user: the number of the user.
        job: the name of a job of this host's ranks.
        token: its token, in hexadecimal digits.
    """

    version: str
    machine: str
    host: str
    name: str
    user: int
    job: str
    token: str


def card(rank: int) -> Card:
    """Returns what this process says of itself."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        machine = f"{file.read().strip()}/{os.stat('/proc/self/ns/net').st_ino}"
    host, name = machine, socket.gethostname()
    if pretended := os.environ.get(PRETEND):
        if not (pretended.isascii() and pretended.isdecimal()) or not int(pretended):
            raise InvalidArgument(f"{PRETEND}={pretended} is no number of ranks: set it to 1 or more, or unset it")
        number = rank // int(pretended)
        host, name = f"{machine}/{number}", f"{name}-{number}"
    return Card(__version__, machine, host, name, os.getuid(), f"hosts-{secrets.token_hex(8)}", secrets.token_hex(32))


def open_world(
    carrier: Carrier,
    join: Join,
    timeout: float | None,
    across: Callable[[Placement, Communicator, Carrier, float | None], Across],
) -> Across | Communicator:
    """Makes the communicator of all ranks of a job. All of them call it.

    Args:
        carrier: an engine that carries messages between them.
        join: joins the ranks of a host.
        timeout: seconds that each collective may take.
        across: makes a communicator of ranks on several hosts.

    Returns:
        What `across` returns; where all ranks are on one host, what `join` returns.

    Raises:
        InvalidArgument: ranks have different versions, or the ranks of a host different users.
        Timeout: a rank did not come.
        Closed: a rank ended meanwhile.
        Aborted: another rank could not join the ranks of its host.
    """
    try:
        rows = carrier.exchange(json.dumps(asdict(card(carrier.rank))).encode())
        cards = _read(rows)
        _check_users(cards)
        placement = Placement.of(carrier.rank, [one.host for one in cards], [one.name for one in cards])
        leader = cards[placement.mine[0]]
        token = bytes.fromhex(leader.token)
        if len(placement.hosts) == 1:
            carrier.close(None)
            return join(carrier.rank, carrier.size, leader.job, token)
        way = carrier.connect(len({one.machine for one in cards}) == 1)
        if carrier.rank == 0:
            print(f"nvcoll: {_described(placement)}, by {way}", file=sys.stderr, flush=True)
        inner = _joined(carrier, placement, lambda: join(placement.local, len(placement.mine), leader.job, token))
        return across(placement, inner, carrier, timeout)
    except Late as error:
        raise Timeout(f"{error}: see whether all ranks were started") from error
    except Lost as error:
        raise Closed(f"ranks on several hosts cannot meet: {error}") from error


def _read(rows: list[bytes]) -> list[Card]:
    """Returns the cards of all ranks.

    Raises:
        InvalidArgument: ranks have different versions, or what a rank has sent is no card.
    """
    found = [_fields(rank, row) for rank, row in enumerate(rows)]
    versions: dict[str, int] = {}
    for rank, one in enumerate(found):
        versions.setdefault(one["version"], rank)
    if len(versions) > 1:  # first: a card of another version may have other fields
        said = " and ".join(
            f"{printable(version)} on rank {rank} ({printable(found[rank]['name'])})"
            for version, rank in versions.items()
        )
        raise InvalidArgument(f"ranks have different versions of nvcoll, {said}: install one on all hosts")
    return [_card(rank, one) for rank, one in enumerate(found)]


def _fields(rank: int, row: bytes) -> dict[str, Any]:
    """Returns the fields of a card; in every version it has a version and a name."""
    try:
        found = json.loads(row)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(found.get(name), str) for name in ("version", "name")):
        raise _no_card(rank)
    return found


def _card(rank: int, found: dict[str, Any]) -> Card:
    kinds = {field.name: int if field.name == "user" else str for field in fields(Card)}
    if {name: type(value) for name, value in found.items()} != kinds or not TOKEN.fullmatch(found["token"]):
        raise _no_card(rank)
    return replace(Card(**found), name=printable(found["name"]))


def _no_card(rank: int) -> InvalidArgument:
    text = f"what came as rank {rank} is no rank of nvcoll: see what else writes to the store or network of this job"
    return InvalidArgument(text, ranks=(rank,))


def _check_users(cards: list[Card]) -> None:
    users: dict[str, tuple[int, int]] = {}
    for rank, one in enumerate(cards):
        first, user = users.setdefault(one.host, (rank, one.user))
        if user != one.user:
            raise InvalidArgument(
                f"rank {first} is a process of user {user} and rank {rank} of user {one.user}, both on {one.name}: "
                "ranks of a host share memory, so start them as one user"
            )


def _described(placement: Placement) -> str:
    hosts = [f"{listed(ranks)} on {name}" for ranks, name in zip(placement.hosts, placement.names, strict=True)]
    shown = hosts if len(hosts) <= 4 else [*hosts[:3], "..."]
    return f"{len(hosts)} hosts ({'; '.join(shown)})"


def _joined(carrier: Carrier, placement: Placement, join: Callable[[], Communicator]) -> Communicator:
    """Joins the ranks of this host, if the ranks of every host join each other."""
    problem: Exception | None = None
    try:
        inner = join()
    except Exception as error:
        problem = error
    answers = carrier.exchange(f"{type(problem).__name__}: {problem}".encode(errors="replace") if problem else b"")
    if problem is not None:
        raise problem
    for rank, answer in enumerate(answers):
        if answer:
            host, why = placement.host_of(rank), printable(answer.decode(errors="replace"))
            text = f"rank {rank} could not join the ranks of its host: {why}, on host {placement.names[host]}"
            aborted = Aborted(text, ranks=(rank,))
            aborted.host = None if host == placement.host else placement.names[host]
            raise aborted
    return inner


def engine(rank: int, size: int, is_mpi: bool, said: str, timeout: float | None) -> Carrier:
    """Returns the engine between the hosts of a job.

    Args:
        rank: this process.
        size: the number of ranks.
        is_mpi: whether an MPI has started it, or a launcher that MPI knows.
        said: the variables that place ranks on several hosts, for messages.
        timeout: seconds from now until all ranks must have come; None: no limit.

    Raises:
        InvalidArgument: there is none; the message says what to install or to set.
        Timeout: ranks are missing.
    """
    wanted = os.environ.get(BETWEEN)
    if wanted not in (None, "", "mpi", "gloo"):
        raise InvalidArgument(f"{BETWEEN}={wanted} is no engine between hosts: set it to mpi or gloo, or unset it")
    missing = ""
    if wanted == "mpi" or (is_mpi and wanted != "gloo"):
        from nvcoll.hosts.mpi import Mpi, without_mpi

        missing = without_mpi()
        if not missing:
            return Mpi(rank, size, timeout)
    if wanted != "mpi" and find_spec("torch") is not None:
        if os.environ.get("MASTER_ADDR"):
            from nvcoll.hosts.gloo import Gloo

            return Gloo.at_master(rank, size, timeout)
        missing += "; for torch's gloo, set MASTER_ADDR to an address of rank 0's host"
    raise InvalidArgument(f"ranks are on several hosts ({said}): install mpi4py and an MPI, or torch{missing}")
