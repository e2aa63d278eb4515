"""``@pytest.mark.ranks(4)``: the test runs on each of four ranks, which are processes that stay from test to test.

In the process of pytest, a marked test is collected and not run: `Pool` runs it, and `verdict` makes one result of
the reports of all ranks.
"""

from __future__ import annotations

import inspect
import math
import os
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from nvcoll_pytest.pool import Pool
    from nvcoll_pytest.setting import Asked


class _TimeoutSettings(Protocol):
    """What pytest-timeout says of a test."""

    timeout: float | None


MARK = "ranks(n, backend=None, timeout=None, strict=None): run the test on n ranks, each a process of this machine"

TIMEOUT_S = 60.0
"""How long a test may take that does not say. Chosen."""

POOL = pytest.StashKey["Pool"]()
LIMIT = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options of marked tests."""
    group = parser.getgroup("ranks", "tests that run on several ranks (nvcoll)")
    about = "backend of torch.distributed in tests with the mark `ranks`: nvcoll, gloo, or none"
    group.addoption("--ranks-backend", metavar="NAME", help=f"{about} (default: nvcoll)")
    group.addoption("--ranks-timeout", metavar="SECONDS", type=float, help=f"limit of such a test ({TIMEOUT_S:g})")
    group.addoption("--ranks-strict", metavar="NAME", choices=["nccl"], help="refuse what NCCL would refuse: nccl")
    parser.addini("ranks_backend", about, default="nvcoll")


def pytest_configure(config: pytest.Config) -> None:
    """Registers the mark."""
    config.addinivalue_line("markers", MARK)


def is_worker() -> bool:
    """Says whether this process is a rank of a pool."""
    return "NVCOLL_PYTEST_WORKER" in os.environ


@pytest.fixture
def comm() -> object:
    """The nvcoll communicator of all ranks of a test with the mark ``ranks``."""
    from nvcoll_pytest import setting

    if not is_worker():
        pytest.fail("the fixture `comm` is for tests with the mark `ranks`", pytrace=False)
    found = setting.communicator()
    if found is None:
        pytest.fail("the fixture `comm` needs the backend nvcoll: pass --ranks-backend nvcoll", pytrace=False)
    return found


@pytest.fixture
def nvcoll_dryrun() -> object:
    """`nvcoll.testing.dryrun`: a training script on GPUs that do not exist, for tests of memory and overlap."""
    from nvcoll.testing import dryrun

    return dryrun


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: _TimeoutSettings) -> bool | None:
    """Leaves the time of marked tests to the pool, with the limit that pytest-timeout has for the test."""
    if is_worker() or item.get_closest_marker("ranks") is None:
        return None
    item.stash[LIMIT] = settings.timeout or math.inf
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Runs a marked test on its ranks."""
    mark = item.get_closest_marker("ranks")
    if mark is None or is_worker():
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _reports(item, nextitem, mark):
        item.ihook.pytest_runtest_logreport(report=report)
        if item.config.option.capture == "no":
            _print_captured(report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    try:
        item.session._setupstate.teardown_exact(nextitem)
    except Exception:  # a fixture of tests that ran before, in this process
        item.ihook.pytest_runtest_logreport(report=_of_teardown(item))
    return True


def _of_teardown(item: pytest.Item) -> pytest.TestReport:
    from nvcoll_pytest import verdict

    return verdict._report(item, "teardown", "failed", traceback.format_exc())


def pytest_unconfigure(config: pytest.Config) -> None:
    """Closes the pool."""
    pool = config.stash.get(POOL, None)
    if pool is not None:
        pool.close()


def _reports(item: pytest.Item, nextitem: pytest.Item | None, mark: pytest.Mark) -> Iterator[pytest.TestReport]:
    from nvcoll_pytest import verdict

    began = time.monotonic()
    try:
        setting = _asked_for(item, mark)
        following = nextitem.get_closest_marker("ranks") if nextitem is not None else None
        is_like = following is not None and _world_size(following) == setting["world_size"]
        results = _pool(item).run(item.nodeid, nextitem.nodeid if nextitem and is_like else None, setting)
    except (ValueError, RuntimeError) as error:
        yield verdict._report(item, "setup", "failed", str(error))
        yield verdict._report(item, "teardown", "passed")
        return
    except BaseException:  # Ctrl-C
        _pool(item).close()
        raise
    yield from verdict.reports(item, results, time.monotonic() - began)


def _print_captured(report: pytest.TestReport) -> None:
    """Prints what the ranks printed, for ``pytest -s``."""
    for title, text in report.sections:
        if title.startswith("Captured std"):
            print(f"\n{title.removeprefix('Captured ')}\n{text}", end="")


def _world_size(mark: pytest.Mark) -> object:
    return mark.args[0] if mark.args else mark.kwargs.get("n")


def _asked_for(item: pytest.Item, mark: pytest.Mark) -> Asked:
    """Returns the setting of a test.

    Raises:
        ValueError: the mark is none, or pytest should debug.
    """
    signature = inspect.signature(lambda n, *, backend=None, timeout=None, strict=None: None)
    try:
        asked = signature.bind(*mark.args, **mark.kwargs)
    except TypeError as error:
        raise ValueError(f"unexpected arguments of the mark `ranks` ({error}), expected {MARK}") from None
    asked.apply_defaults()
    world_size, option = asked.arguments["n"], item.config.getoption
    if not isinstance(world_size, int) or world_size < 1:
        raise ValueError(f"the mark `ranks` has {world_size!r}: pass a number of ranks, 1 or more")
    if option("usepdb"):
        raise ValueError("--pdb cannot debug a test on several ranks, whose processes have no terminal: leave it out")
    limit = min(asked.arguments["timeout"] or option("ranks_timeout") or TIMEOUT_S, item.stash.get(LIMIT, math.inf))
    backend = asked.arguments["backend"] or option("ranks_backend") or item.config.getini("ranks_backend")
    strict = asked.arguments["strict"] or option("ranks_strict")
    if strict and (strict != "nccl" or backend != "nvcoll"):
        raise ValueError(f"found strict={strict!r} with backend {backend}: strict is 'nccl', and needs nvcoll")
    if not strict and backend == "nvcoll":
        strict = os.environ.get("NVCOLL_STRICT") or None
    return {"backend": backend, "timeout_s": limit, "strict": strict, "world_size": world_size}


def _pool(item: pytest.Item) -> Pool:
    """Returns the pool, which may be new."""
    from nvcoll.without_engine import require

    require("the mark `ranks`")
    from nvcoll_pytest.pool import Pool

    stash = item.config.stash
    pool = stash.get(POOL, None)
    if pool is not None and pool.is_open:
        return pool
    files = dict.fromkeys(str(one.path) for one in item.session.items if one.get_closest_marker("ranks"))
    arguments = [*_arguments(item.config), *files]
    stash[POOL] = pool = Pool(arguments, Path(item.config.invocation_params.dir))
    return pool


def _arguments(config: pytest.Config) -> Sequence[str]:
    """Returns the arguments of this session without its files and tests."""
    given = list(getattr(config, "workerinput", {}).get("mainargv", [None, *config.invocation_params.args])[1:])
    named = set(config.option.file_or_dir)
    kept = [str(word) for word in given if str(word) not in named]
    place = [f"--rootdir={config.rootpath}", *([f"-c={config.inipath}"] if config.inipath else [])]
    return [*kept, *place]
