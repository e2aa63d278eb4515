"""What a rank sets up around a test: its place in the environment, the process group, the communicator of nvcoll."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from nvcoll import Communicator

AFTER_TEST_S = 30.0
"""How much longer a call may take than its test. Chosen: so the pool sees where the ranks wait."""

CONSEQUENCE = "nvcoll_consequence"
"""The property of a report whose test failed on its rank because another one had failed."""

OF_GLOO = ("Connection closed by peer", "Connection reset by peer")
"""What gloo says if a peer is gone. All its errors have one type."""

NONE = "none"
"""The backend of tests without a process group of torch."""


class Asked(TypedDict):
    """What the mark of a test asks for: see `Setting`."""

    world_size: int
    backend: str
    timeout_s: float
    strict: str | None


@dataclass(frozen=True)
class Setting:
    """What a test asks for.

    Attributes:
        world_size: the number of ranks.
        backend: of the default process group of torch; `NONE` for none.
        timeout_s: how long the test may take.
        strict: the library whose refusals nvcoll imitates; None for none.
        store: the file through which the ranks of this test find each other.
        environment: variables that are the same for all ranks, for tests that initialize torch.distributed themselves.
    """

    world_size: int
    backend: str
    timeout_s: float
    strict: str | None
    store: str
    environment: dict[str, str]


def begin(setting: Setting, rank: int) -> None:
    """Makes this process rank ``rank`` of a test."""
    os.environ.update(setting.environment, RANK=str(rank), LOCAL_RANK=str(rank))
    if setting.strict is None:
        os.environ.pop("NVCOLL_STRICT", None)
    else:
        os.environ["NVCOLL_STRICT"] = setting.strict
    if setting.backend == NONE or find_spec("torch") is None:
        import nvcoll

        job = f"test-{setting.store.replace('/', '-')}"
        nvcoll.init(rank, setting.world_size, job, timeout=setting.timeout_s + AFTER_TEST_S)
        return
    import torch.distributed as dist

    if setting.backend == "nvcoll":
        import nvcoll.torch
    logging.getLogger("c10d-NullHandler-default").addFilter(_is_no_error)
    store = dist.FileStore(setting.store, setting.world_size)
    timeout = timedelta(seconds=setting.timeout_s + AFTER_TEST_S)
    dist.init_process_group(setting.backend, store=store, rank=rank, world_size=setting.world_size, timeout=timeout)


def _is_no_error(record: logging.LogRecord) -> bool:
    """Drops what torch logs of an error that it then raises: reports would have it once more for each rank."""
    return not (isinstance(record.msg, dict) and "error" in record.msg)


def communicator() -> Communicator | None:
    """Returns the communicator of all ranks of the running test; None if torch's group is not of nvcoll."""
    from nvcoll.ranks import membership

    return membership.current()


def last_calls() -> list[str]:
    """Returns the last calls of this rank, newest first, as text."""
    if (group := sys.modules.get("nvcoll.torch")) is not None:
        with suppress(Exception):
            found = group.recent_calls()
            if found:
                return [f"{name}call {number}, {call}" for name, calls in found for number, call in calls]
    if "nvcoll.ranks.membership" in sys.modules:
        with suppress(Exception):
            if (comm := communicator()) is not None:
                return [f"call {number}, {call}" for number, call in comm.recent_calls()]
    return []


def fail() -> None:
    """Ends the calls of the other ranks, because the test has failed here."""
    if "nvcoll.ranks.membership" in sys.modules:
        from nvcoll.ranks import membership

        membership.fail()


def is_consequence(error: BaseException) -> bool:
    """Says whether a rank raises an exception because another rank has failed."""
    if (nvcoll := sys.modules.get("nvcoll")) is not None and isinstance(error, (nvcoll.Aborted, nvcoll.Closed)):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in OF_GLOO)


def end() -> None:
    """Leaves the group and the job."""
    steps: list[Callable[[], object]] = []
    if (torch := sys.modules.get("torch")) is not None and torch.distributed.is_initialized():
        steps.append(torch.distributed.destroy_process_group)
    if "nvcoll.ranks.membership" in sys.modules:
        from nvcoll.ranks import membership

        steps.append(membership.finalize)
    for step in steps:
        with suppress(Exception):  # what failed in the test fails here again
            step()
