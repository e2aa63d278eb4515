"""A process of a pool: a pytest session that collects the tests like its parent, and runs those it names.

::

    pool    ("run", test, next test, setting)   ──▶   worker
            ◀──   ("phase", report)             after set-up, call and tear-down
            ◀──   ("done", last calls)
            ◀──   ("ended", why)                Ctrl-C or `pytest.exit`: the session ends, and the process with it

So fixtures, marks, parameters, conftest files and rewritten assertions work on every rank as they do elsewhere. A rank
whose test fails ends the calls of the others at once.

Source: pytest-xdist runs tests in other processes in the same way.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from nvcoll_pytest import setting as settings
from nvcoll_pytest.setting import Setting

STACKS = "SIGUSR2"
"""The signal on which a worker writes the stacks of its threads, by name: Windows lacks it."""


OWN_ARGUMENTS = ("--capture=fd", "-W", "ignore::pytest.PytestAssertRewriteWarning")
"""The last arguments of a worker's session: what a test prints goes to the report, and this package is imported before
pytest could rewrite it."""


class Worker:
    """The plugin of a worker's session.

    Args:
        rank: this process.
        pipe: the connection with the pool.
    """

    def __init__(self, rank: int, pipe: Connection) -> None:
        self._rank, self._pipe = rank, pipe
        self._config: pytest.Config | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> None:
        """Turns options off that are the parent's business."""
        self._config = config
        off: dict[str, object] = {
            **{"lf": False, "failedfirst": False, "newfirst": False, "stepwise": False, "cacheclear": False},
            **{"maxfail": 0, "usepdb": False, "xmlpath": None, "durations": None, "collectonly": False},
            **{"numprocesses": None, "dist": "no", "tx": [], "timeout": 0, "no_cov": True},
        }
        for name, value in off.items():
            if hasattr(config.option, name):
                setattr(config.option, name, value)

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Prints nothing: what a worker prints is shown if it dies."""
        config.pluginmanager.unregister(name="terminalreporter")

    @pytest.hookimpl(optionalhook=True)
    def pytest_timeout_set_timer(self) -> bool:
        """Turns the timer of pytest-timeout off: the pool has one."""
        return True

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Runs the tests that the pool names, until it closes the connection."""
        items = {item.nodeid: item for item in session.items}
        self._send("ready")
        while (words := self._receive()) is not None:
            test, following, setting = words
            self._run(items.get(test), items.get(following), Setting(**setting))
        return True

    def _run(self, item: pytest.Item | None, following: pytest.Item | None, setting: Setting) -> None:
        if item is None:
            self._send(
                "failed",
                "this rank did not collect the test: names of tests must be the same in all processes, not random",
            )
            return
        try:
            settings.begin(setting, self._rank)
        except Exception as error:
            settings.fail()
            settings.end()
            self._send("failed", f"the ranks could not be joined: {type(error).__name__}: {error}")
            return
        try:
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        except (KeyboardInterrupt, pytest.exit.Exception) as error:
            settings.fail()
            where = "".join(traceback.format_exception(error, limit=-2))
            self._send("ended", f"the test raised {type(error).__name__}, which ends its process\n{where}")
            raise
        calls = settings.last_calls()
        settings.end()
        self._send("done", calls)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        """Ends the calls of the other ranks if the test has failed here."""
        if call.excinfo is not None and not item.config.getoption("fulltrace", False):
            _cut(call.excinfo)
        report = yield
        if call.excinfo is not None and not call.excinfo.errisinstance(pytest.skip.Exception):
            report.user_properties.append(("nvcoll_calls", settings.last_calls()))
            report.user_properties.append((settings.CONSEQUENCE, settings.is_consequence(call.excinfo.value)))
            settings.fail()
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Sends a report to the pool."""
        assert self._config is not None
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._send("phase", data)

    def _send(self, kind: str, content: object = None) -> None:
        plain = json.loads(json.dumps(content, default=str))  # what a test adds may be of a class of its own
        self._pipe.send((kind, plain))

    def _receive(self) -> Any:
        try:
            return self._pipe.recv()
        except EOFError:
            return None


def _cut(found: pytest.ExceptionInfo[BaseException]) -> None:
    """Cuts the frames of nvcoll and torch off a traceback that ends in nvcoll: the line of the test says enough."""
    if (nvcoll := sys.modules.get("nvcoll")) is None:
        return
    files = [str(module.__file__) for module in (nvcoll, sys.modules.get("torch")) if module is not None]
    own, *others = (Path(file).parent for file in files)
    kept: TracebackType | None = None
    frame: TracebackType | None = found.tb
    while frame is not None:
        last = Path(frame.tb_frame.f_code.co_filename)
        if not any(last.is_relative_to(folder) for folder in (own, *others)):
            kept = frame
        frame = frame.tb_next
    if kept is None or not last.is_relative_to(own):
        return
    kept.tb_next = None
    found.traceback = type(found.traceback)(found.tb)
    if isinstance(found.value.__cause__, nvcoll.Error):  # torch's error has the same words
        found.value.__cause__ = None


def main() -> None:
    """Runs a worker: ``python -m nvcoll_pytest.worker RANK DESCRIPTOR STACKS ARGUMENT...``."""
    rank, descriptor, stacks = (int(word) for word in sys.argv[1:4])
    faulthandler.register(signal.Signals[STACKS], file=stacks, all_threads=True)
    os.environ["PYTEST_XDIST_AUTO_NUM_WORKERS"] = "0"
    worker = Worker(rank, Connection(descriptor))
    pytest.main([*sys.argv[4:], *OWN_ARGUMENTS], plugins=[worker])
    os._exit(0)  # the pool has closed the connection, and waits for nothing


if __name__ == "__main__":
    main()
