"""A watchdog beside pytest-timeout's, which needs the GIL: a thread of C that ends a run in which nobody gets it.

It says where every thread stands and ends the process, a little after pytest-timeout would have ended the test.
Processes that a test starts have limits of their own.

What commands print does not depend on the terminal and the settings of who runs the tests.

Hypothesis has no deadline: how long an example takes, or takes to be drawn, depends on what else runs. ``amounts.py``
says how many examples it draws.

A run ends with what it left out and why: tests of packages that are not installed by the command that tests them, tests
with the mark ``slow``, which run with ``--slow``.

In a build of nvcoll without the engine, a test or a file of tests that asks for the engine is skipped.
"""

import faulthandler
import os
import re
from collections import Counter, defaultdict

import pytest
from amounts import examples
from hypothesis import HealthCheck, settings

from nvcoll._nvcoll import HAS_ENGINE

GRACE_S = 20
"""How much longer than pytest-timeout it waits. Chosen: a stack is printed in less, on a busy machine too."""

STDERR = pytest.StashKey[int]()
SLOW = pytest.StashKey[int]()
"""How many slow tests are left out. With ``-n``, a worker counts them and sends the number."""

EXTRAS = {"torch": "torch", "mkdocs": "docs", "mypy": "lint"}
"""The extra of pyproject.toml that has a package."""

OF_THE_USER = (
    *("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "PY_COLORS", "TTY_COMPATIBLE", "TTY_INTERACTIVE"),
    *("GITHUB_ACTIONS", "NVCOLL_TUNING"),
)
"""What rich, typer and nvcoll read of the environment; a test that wants one of them sets it."""

for name in OF_THE_USER:
    os.environ.pop(name, None)
    os.unsetenv(name)  # readline, which pytest imports, sets COLUMNS and LINES where Python does not see it

settings.register_profile(
    "untimed", max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("untimed")


def pytest_addoption(parser):
    parser.addoption(
        "--ranks", choices=("threads", "processes"), default="threads", help="ranks that call for themselves"
    )
    parser.addoption("--slow", action="store_true", help="tests that take minutes, too")


def pytest_collection_modifyitems(config, items):
    """Leaves out slow tests, and those in which no rank calls for itself if ranks are processes."""
    is_slow = {item for item in items if item.get_closest_marker("slow") and not config.getoption("slow")}
    config.stash[SLOW] = len(is_slow)
    only_spmd = config.getoption("ranks") == "processes"
    left_out = is_slow | {item for item in items if only_spmd and "check_spmd" not in item.fixturenames}
    config.hook.pytest_deselected(items=[*left_out])
    items[:] = [item for item in items if item not in left_out]


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["slow"] = session.config.stash.get(SLOW, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    if hasattr(node, "workeroutput"):  # a worker that crashed sends nothing
        node.config.stash[SLOW] = node.workeroutput["slow"]


def reason_of(report):
    """Returns why a test was skipped, alike for all that lack the same package."""
    reason = report.longrepr[2].removeprefix("Skipped: ")
    package = re.search(r"could not import '(\w+)|^(\w+) is not installed", reason)
    return f"{package[1] or package[2]} is not installed" if package else reason


def pytest_terminal_summary(terminalreporter, config):
    """Says which tests did not run, why, and which command runs them."""
    folders = defaultdict(Counter)
    for report in terminalreporter.stats.get("skipped", []):
        folders[reason_of(report)]["/".join(report.nodeid.split("/")[:2])] += 1
    for reason, counts in sorted(folders.items(), key=lambda row: -row[1].total()):
        extra, number = EXTRAS.get(reason.partition(" is not installed")[0]), counts.total()
        most = " ".join(folder for folder, count in counts.most_common() if count >= number / 20)
        how = f": pip install '.[{extra}]' && pytest {most}" if extra else ""
        terminalreporter.write_line(f"skipped {number}: {reason}{how}")
    if config.stash.get(SLOW, 0):
        terminalreporter.write_line(f"left out {config.stash[SLOW]} that take minutes: pytest --slow")


NO_ENGINE = "this build of nvcoll has no engine"


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    if not HAS_ENGINE and report.failed and NO_ENGINE in str(report.longrepr):
        report.outcome, report.longrepr = "skipped", (str(collector.path), 0, NO_ENGINE)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if not HAS_ENGINE and report.failed and NO_ENGINE in str(report.longrepr):
        report.outcome, report.longrepr = "skipped", (str(item.path), 0, NO_ENGINE)
    return report


def pytest_configure(config):
    config.stash[STDERR] = os.dup(2)  # pytest captures descriptor 2 while a test runs


def pytest_unconfigure(config):
    faulthandler.cancel_dump_traceback_later()
    os.close(config.stash[STDERR])


def limit_of(item):
    """Returns the seconds that pytest-timeout gives a test: its mark's, else the command line's, else pyproject's."""
    mark = item.get_closest_marker("timeout")
    if mark is not None:
        return mark.args[0] if mark.args else mark.kwargs["timeout"]
    option = item.config.getoption("timeout")
    return float(option if option is not None else item.config.getini("timeout") or 0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    limit = 0 if item.config.getoption("usepdb") else limit_of(item)
    if limit > 0:
        faulthandler.dump_traceback_later(limit + GRACE_S, exit=True, file=item.config.stash[STDERR])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def mine(tmp_path):
    """Returns the path of a file with algorithms of a user."""
    from command_line import file_of_mine

    return file_of_mine(tmp_path)
