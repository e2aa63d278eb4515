"""How a process learns its rank, the number of ranks and the name of its job: from arguments, or from its launcher.

`settings` reads the variables of the table `nvcoll.ranks.launchers`::

    rank, world size    the argument, else nvcoll's variable, else a launcher's
    job                 the argument, else nvcoll's variable, else a name made from the launcher's variables
    token               nvcoll's variable, if the job's name is nvcoll's variable too

A variable that is set to nothing counts as not set. What launchers say is checked before it is used:

1. Launchers that give the same values are fine: programs that copy Open MPI's variables to torchrun's are common.
2. Launchers that contradict each other are an error that names both. Two exceptions: a launcher that has started one
   process says nothing beside another one, which ran in that process (``srun -n 1 torchrun``); and the index of a pod
   says nothing beside a launcher that ran in the pod.
3. Ranks may be on several hosts if a launcher gives several, or if they have ``MASTER_ADDR`` and no name of a job: they
   meet through an engine (`nvcoll.hosts`). A name that an argument or nvcoll's variable gives is one of this host.

The name of a job is no secret; the token is one. What this does not do: it starts nothing, connects nothing, and does
not look whether the other ranks exist.
"""

from __future__ import annotations

import itertools
import operator
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nvcoll._nvcoll import InvalidArgument
from nvcoll.hosts.opening import PRETEND
from nvcoll.ranks.launchers import OTHERS, OURS, Launcher, name_of_job
from nvcoll.without_engine import require

TOKEN_BYTES = 32
"""The length of a token: 256 bits cannot be guessed. Chosen."""

TOKEN = "NVCOLL_TOKEN"
"""The variable of the token: `TOKEN_BYTES` bytes in hexadecimal digits."""

NAME_BYTES = 8
"""The random part of the name of a job: no two jobs of a machine have the same. Chosen."""


@dataclass(frozen=True)
class JobSettings:
    """A process's place in a job.

    Attributes:
        rank: this process.
        world_size: the number of processes.
        job: the name by which ranks find each other, the same on all of them.
        token: what ranks show each other besides; None where the launcher shares none, and then ranks know each other
            by the user that they run as.
        launcher: the launcher that gave the rank, by its name in `nvcoll.ranks.launchers`; None for an argument, and
            for the only rank of a job that no launcher started.
    """

    rank: int
    world_size: int
    job: str
    token: bytes | None = field(default=None, repr=False)
    launcher: str | None = None
    several_hosts: str | None = None
    has_mpi: bool = False


_NUMBER = re.compile("[0-9]{1,9}")


@dataclass(frozen=True)
class _Number:
    """A number with its origin: ``RANK=3``, ``rank=3``."""

    value: int
    origin: str
    launcher: Launcher | None = None


@dataclass(frozen=True)
class _Claim:
    """A launcher's statement about this process; None: it does not say."""

    launcher: Launcher
    rank: _Number | None
    world_size: _Number | None


def settings(
    rank: int | None = None,
    world_size: int | None = None,
    job: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> JobSettings:
    """Returns this process's place in its job.

    Args:
        rank: this process. Default: what the environment says.
        world_size: the number of processes. Default: what the environment says.
        job: the name of the job, the same on all ranks. Default: what the environment says.
        environ: the environment variables.

    Returns:
        The place. If no argument is given and no launcher has started this process, it is the only rank of a job of
        its own.

    Raises:
        InvalidArgument: something is missing, is no such number, or contradicts something else; the message names
            variables and values.
    """
    require("a job of ranks")
    ours = _claim(OURS, environ)
    own = _argument("rank", rank) or ours.rank
    size = _argument("world_size", world_size) or ours.world_size
    launchers = [row for row in OTHERS if _has_started(row, environ)]
    is_given = own is not None and size is not None
    if not is_given:
        claims = _agreeing(_claims(launchers, environ))
        own = own or next((claim.rank for claim in claims if claim.rank), None)
        size = size or next((claim.world_size for claim in claims if claim.world_size), None)
        if own is None and size is None and job is None and not environ.get(OURS.job[0]):
            return JobSettings(0, 1, _fresh_name("alone"))
        launchers = [claim.launcher for claim in claims]
    own, size = _fitting(own, size)
    name, token = _job(job, launchers, environ)
    is_named = job is not None or bool(environ.get(OURS.job[0]))
    hosts = None if is_given and is_named else _several_hosts(launchers, size.value, environ)
    if size.value > 1 and not is_named and hosts is None:
        hosts = _set("MASTER_ADDR", environ) if name is None else _set(PRETEND, environ)
    if name is None and size.value > 1 and hosts is None:
        raise InvalidArgument(_nameless(own))
    launcher = own.launcher.name if own.launcher else None
    has_mpi = any(row.has_mpi for row in launchers)
    return JobSettings(own.value, size.value, name or _fresh_name("alone"), token, launcher, hosts, has_mpi)


def environment_of(rank: int, world_size: int, job: str, token: bytes) -> dict[str, str]:
    """Returns the variables that tell a process its place: what `settings` reads."""
    return {
        OURS.rank[0]: str(rank),
        OURS.world_size[0]: str(world_size),
        OURS.job[0]: job,
        TOKEN: token.hex(),
    }


def fresh(launcher: str) -> tuple[str, bytes]:
    """Returns the name of a new job, which begins with the launcher's, and its token."""
    require("a job of ranks")
    return _fresh_name(launcher), secrets.token_bytes(TOKEN_BYTES)


def _fresh_name(beginning: str) -> str:
    return f"{beginning}-{secrets.token_hex(NAME_BYTES)}"


def _argument(name: str, value: int | None) -> _Number | None:
    """Returns an argument that is given as a number with its origin."""
    if value is None:
        return None
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if number < 0:
        raise InvalidArgument(f"`{name}` is {value!r}: pass an integer, 0 or more")
    return _Number(number, f"{name}={number}")


def _claim(launcher: Launcher, environ: Mapping[str, str]) -> _Claim:
    return _Claim(launcher, _number(launcher.rank, environ, launcher), _number(launcher.world_size, environ, launcher))


def _number(names: Sequence[str], environ: Mapping[str, str], launcher: Launcher) -> _Number | None:
    """Returns the number in the first of some variables that is set."""
    name = next((name for name in names if environ.get(name)), None)
    if name is None:
        return None
    if not _NUMBER.fullmatch(environ[name]):
        raise InvalidArgument(f"{name}={environ[name]} is no number: {launcher.name} sets it to 0 or more")
    return _Number(int(environ[name]), f"{name}={environ[name]}", launcher)


def _has_started(launcher: Launcher, environ: Mapping[str, str]) -> bool:
    return any(environ.get(name) for name in launcher.started)


def _claims(launchers: Sequence[Launcher], environ: Mapping[str, str]) -> list[_Claim]:
    """Returns the statements of the launchers that have started this process; that of pods only if there is no other.

    In a pod, a world size without a rank is that of the pods.
    """
    pods = [row for row in launchers if row.numbers_pods]
    of_pods = [row.world_size for row in pods]
    claims = [_claim(row, environ) for row in launchers if not row.numbers_pods]
    claims = [claim for claim in claims if claim.rank or claim.launcher.world_size not in of_pods]
    return claims or [_claim(row, environ) for row in pods]


def _agreeing(claims: list[_Claim]) -> list[_Claim]:
    """Returns the statements that count, which agree.

    Raises:
        InvalidArgument: two contradict each other.
    """
    several = [claim for claim in claims if claim.world_size is None or claim.world_size.value != 1]
    claims = several or claims
    for first, second in itertools.combinations(claims, 2):
        for one, other in ((first.rank, second.rank), (first.world_size, second.world_size)):
            if one and other and one.value != other.value:
                raise InvalidArgument(
                    f"{one.origin} ({first.launcher.name}) and {other.origin} ({second.launcher.name}) contradict "
                    f"each other: unset one of them, or set {OURS.rank[0]} and {OURS.world_size[0]}"
                )
    return claims


def _several_hosts(launchers: Sequence[Launcher], size: int, environ: Mapping[str, str]) -> str | None:
    """Returns what says that the ranks of a job of some size may be on several hosts; None: they are on one."""
    for launcher in launchers:
        names = launcher.world_size, launcher.local_size, launcher.hosts
        world_size, here, hosts = (_number(each, environ, launcher) for each in names)
        if world_size is None or world_size.value != size or size == 1:
            continue
        given = ", ".join(number.origin for number in (world_size, here, hosts) if number is not None)
        if (here is not None and here.value < size) or (hosts is not None and hosts.value > 1):
            return given
        if "MASTER_ADDR" in launcher.job and here is None and hosts is None and not _is_loopback(environ):
            return f"{given}, {_set('MASTER_ADDR', environ)}"
    return None


def _set(name: str, environ: Mapping[str, str]) -> str | None:
    """Returns a variable and its value, if it is set."""
    return f"{name}={value}" if (value := environ.get(name)) else None


def _is_loopback(environ: Mapping[str, str]) -> bool:
    """Says whether ranks meet nowhere, or at an address that only one host reaches, as all ranks see it."""
    address = environ.get("MASTER_ADDR") or "localhost"
    return address in ("localhost", "::1") or address.startswith("127.")


def _fitting(rank: _Number | None, world_size: _Number | None) -> tuple[_Number, _Number]:
    """Returns rank and world size, which fit together.

    Raises:
        InvalidArgument: one is missing or too large.
    """
    if rank is None or world_size is None:
        raise InvalidArgument(_incomplete(rank, world_size))
    if world_size.value == 0:
        raise InvalidArgument(f"{world_size.origin}: a job has at least one rank")
    if rank.value >= world_size.value:
        ranks = f"0 to {world_size.value - 1}" if world_size.value > 1 else "0"
        raise InvalidArgument(f"{rank.origin} is no rank of {world_size.origin}: pass {ranks}")
    return rank, world_size


def _incomplete(rank: _Number | None, world_size: _Number | None) -> str:
    """Returns the message for a rank without a world size, a world size without a rank, or a name alone."""
    if rank is None and world_size is None:
        return "the job has a name, and no rank or world size: pass both, or leave out the name for a job of one rank"
    is_rank = world_size is None
    present = rank or world_size
    assert present is not None
    missing, argument = ("world size", "world_size") if is_rank else ("rank", "rank")
    launcher = present.launcher or OURS
    names = launcher.world_size if is_rank else launcher.rank
    variables = " or ".join(dict.fromkeys((*names, *(OURS.world_size if is_rank else OURS.rank))))
    return f"{present.origin} is given without a {missing}: set {variables}, or pass `{argument}`"


def _job(job: str | None, launchers: Sequence[Launcher], environ: Mapping[str, str]) -> tuple[str | None, bytes | None]:
    """Returns the name of the job, None if nothing gives it one, and its token.

    Args:
        job: the argument.
        launchers: those that name it together.
        environ: the environment variables.
    """
    if job is not None:
        if not isinstance(job, str) or not job:
            raise InvalidArgument(f"`job` is {job!r}: pass a name, the same on all ranks")
        return job, None
    if name := environ.get(OURS.job[0]):
        return name, _token(environ)
    return "+".join(filter(None, (name_of_job(row, environ) for row in launchers))) or None, None


def _token(environ: Mapping[str, str]) -> bytes | None:
    """Returns the token in the environment; messages do not show it."""
    text = environ.get(TOKEN)
    if not text:
        return None
    if not re.fullmatch(f"[0-9a-fA-F]{{{2 * TOKEN_BYTES}}}", text):
        raise InvalidArgument(f"{TOKEN} is no token: set it to {2 * TOKEN_BYTES} hexadecimal digits, or unset it")
    return bytes.fromhex(text)


def _nameless(rank: _Number) -> str:
    """Returns the message for a job without a name."""
    start = f"{rank.launcher.name} gives" if rank.launcher and rank.launcher is not OURS else "there is"
    return (
        f"{start} no name of the job: set {OURS.job[0]} to a name that is the same on all ranks, or pass `job`; for "
        "ranks on several hosts, set MASTER_ADDR"
    )
