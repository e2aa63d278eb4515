"""One result of a test out of the results of all ranks.

===========================  ===========================================================================================
all ranks passed             passed
all ranks skipped            skipped
a rank failed as expected    failed as expected (xfail)
some skipped, some not       failed: ranks that make other calls than their peers wait for ever
a rank failed                failed, with the traceback of the rank that failed first and not because of another rank
===========================  ===========================================================================================

Below the traceback stand what the other ranks raised, the last calls of each rank, and the stacks of those that did not
end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import pytest
from _pytest._code.code import ExceptionRepr

from nvcoll.text.formatting import listed
from nvcoll_pytest.pool import RankResult
from nvcoll_pytest.setting import CONSEQUENCE

PHASES = ("setup", "call", "teardown")

UNEXPECTED = "[XPASS(strict)]"
"""How pytest begins the words for a test that passes and should not have."""

SHOWN_CALLS = 5
"""The number of last calls that are shown of each rank. Chosen."""


def reports(item: pytest.Item, results: Sequence[RankResult], duration_s: float) -> Iterator[pytest.TestReport]:
    """Yields the reports of a test, phase by phase."""
    if any(result.failure for result in results):
        yield _report(item, "setup", "passed")
        yield _of_failure(item, results, duration_s)
        yield _report(item, "teardown", "passed")
        return
    of_ranks = [[_read(item, phase) for phase in result.phases] for result in results]
    whole = [[one for one in reports if type(one) is pytest.TestReport] for reports in of_ranks]
    for name in PHASES:
        if name == "call":
            yield from _of_subtests(of_ranks)
        phases = [next((one for one in reports if one.when == name), None) for reports in whole]
        there = [(rank, one) for rank, one in enumerate(phases) if one is not None]
        if there:
            yield _merged(item, there, results)


def _of_subtests(of_ranks: Sequence[Sequence[pytest.TestReport]]) -> Iterator[pytest.TestReport]:
    """Yields the reports of subtests: all of rank 0, and the failed ones of other ranks."""
    for rank, reports in enumerate(of_ranks):
        for one in reports:
            if type(one) is not pytest.TestReport and (rank == 0 or one.failed):
                if one.failed:
                    _name(one, rank, len(of_ranks))
                yield one


def _merged(
    item: pytest.Item, there: list[tuple[int, pytest.TestReport]], results: Sequence[RankResult]
) -> pytest.TestReport:
    """Merges the reports of a phase."""
    expected = [one for _, one in there if one.skipped and hasattr(one, "wasxfail")]
    failed = [(rank, one) for rank, one in there if one.failed]
    if expected:  # that another rank passes, or fails because of it, is no surprise
        failed = [(rank, one) for rank, one in failed if _message(one) != UNEXPECTED and not _is_consequence(one)]
    skipped = [(rank, one) for rank, one in there if one.skipped and not hasattr(one, "wasxfail")]
    if failed:
        rank, report = min(failed, key=lambda pair: (_is_consequence(pair[1]), pair[1].stop))
        _name(report, rank, len(results))
        report.sections[:0] = list(_sections(there, failed, rank, results))
        return report
    if expected:
        return expected[0]
    if skipped and len(skipped) < len(there):
        those = ", ".join(str(rank) for rank, _ in skipped)
        text = f"skipped on rank {those} of {len(results)}, and not on the others: skip a test on all ranks or on none"
        return _report(item, there[0][1].when, "failed", text)
    report = there[0][1]
    report.duration = max(one.duration for _, one in there)
    for rank, one in there[1:]:
        report.sections += [(f"{title}, rank {rank}", text) for title, text in one.sections]
    return report


def _of_failure(item: pytest.Item, results: Sequence[RankResult], duration_s: float) -> pytest.TestReport:
    """Makes the report of a test in which a rank did not come to the end."""
    found = [(rank, _read(item, phase)) for rank, result in enumerate(results) for phase in result.phases]
    failed = [(rank, one) for rank, one in found if one.failed]
    culprits = [(rank, one) for rank, one in failed if not _is_consequence(one)]
    died = any(result.has_died for result in results)
    if culprits and not died:
        rank, report = min(culprits, key=lambda pair: pair[1].stop)
        report.when = "call"
        _name(report, rank, len(results))
    else:
        first = next(rank for rank, result in enumerate(results) if result.failure)
        report = _report(item, "call", "failed", _failures(results))
        rank = first
    report.duration = duration_s
    report.sections[:0] = list(_sections(found, failed, rank, results))
    return report


def _failures(results: Sequence[RankResult]) -> str:
    """Says which ranks wait for whom, and which ranks did not come to the end. The summary has the first line."""
    waits: dict[str, list[int]] = {}
    failures: dict[str, list[int]] = {}
    for rank, result in enumerate(results):
        if result.awaited:
            waits.setdefault(result.awaited, []).append(rank)
        if result.failure:
            failures.setdefault(result.failure, []).append(rank)
    who = [f"{listed(ranks)} wait{'s' * (len(ranks) == 1)} for {awaited}; " for awaited, ranks in waits.items()]
    return "".join(who) + "\n".join(f"{listed(ranks)}: {failure}" for failure, ranks in failures.items())


NO_CALLS = "none recorded: no rank made a call, or the backend is not nvcoll"


def _sections(
    found: list[tuple[int, pytest.TestReport]],
    failed: list[tuple[int, pytest.TestReport]],
    shown: int,
    results: Sequence[RankResult],
) -> Iterator[tuple[str, str]]:
    """Yields what stands below the traceback of rank ``shown``."""
    others = [f"rank {rank}: {_message(one)}" for rank, one in failed if rank != shown]
    if not results[shown].failure:  # otherwise they stand above
        others += [f"rank {rank}: {one.failure}" for rank, one in enumerate(results) if one.failure and rank != shown]
    if others:
        yield "other ranks", "\n".join(dict.fromkeys(others))
    calls = [(rank, line) for rank, result in enumerate(results) for line in _calls(result)]
    known = "\n".join(f"rank {rank}: {line}" for rank, line in calls)
    yield "waits and last calls of each rank, newest first", known or NO_CALLS
    for rank, result in enumerate(results):
        if result.stacks:
            yield f"stacks of rank {rank}", _without_pytest(result.stacks)
    for rank, one in found:
        if rank != shown:
            yield from ((f"{title}, rank {rank}", text) for title, text in one.sections)


def _without_pytest(stacks: str) -> str:
    """Leaves out the frames of pytest."""
    ours = ("/_pytest/", "/pluggy/", "/nvcoll_pytest/", "<frozen runpy>")
    return "\n".join(line for line in stacks.splitlines() if not any(words in line for words in ours))


def _calls(result: RankResult) -> list[str]:
    """Returns the last calls of a rank: at its failure, before peers heard of it, else at its end."""
    reported = [value for phase in result.phases for name, value in phase["user_properties"] if name == "nvcoll_calls"]
    return next((calls for calls in reported if calls), result.calls)[:SHOWN_CALLS]


def _is_consequence(report: pytest.TestReport) -> bool:
    return (CONSEQUENCE, True) in map(tuple, report.user_properties)


def _message(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else str(report.longrepr)
    return str(text).strip().partition("\n")[0]


def _name(report: pytest.TestReport, rank: int, world_size: int) -> None:
    """Has the summary line of a failure begin with the rank."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        crash.message = f"rank {rank} of {world_size}: {crash.message}"
    if isinstance(report.longrepr, ExceptionRepr):
        report.longrepr.addsection("rank", f"this is rank {rank} of {world_size}", sep="_")


def _read(item: pytest.Item, data: dict[str, Any]) -> pytest.TestReport:
    tuples = {name: tuple(data[name]) for name in ("longrepr", "location") if isinstance(data[name], list)}
    report = item.config.hook.pytest_report_from_serializable(config=item.config, data=data | tuples)
    assert isinstance(report, pytest.TestReport)
    return report


def _report(
    item: pytest.Item, when: str, outcome: Literal["passed", "failed"], text: str | None = None
) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords={name: 1 for name in item.keywords},
        outcome=outcome,
        longrepr=text,
        when=when,  # type: ignore[arg-type]
    )
