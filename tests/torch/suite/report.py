"""What a run is said to have done: the table of counts, and what is wrong with it.

A case that fails and is listed in ``expected.py`` is not wrong; a listed case that passes is, so that the list stays
true. A case that leaves a process behind is wrong whatever its result.
"""

from collections import Counter
from pathlib import Path

from expected import EXPECTED
from outcomes import REASONS, Outcome, read

HEADS = ("world size", "cases", "ran", "passed", "failed", *(f"skipped: {reason}" for reason in REASONS), "leaked")


def summary(backend: str, results: list[Outcome]) -> str:
    """Returns the table of counts, one line for each world size, and the failures."""
    lines = [" | ".join(HEADS)]
    for size in sorted({one.world_size for one in results}):
        here = [one for one in results if one.world_size == size]
        count = Counter(one.result for one in here) + Counter(one.reason for one in here if one.reason in REASONS)
        row = [size, len(here), len(here) - count["skipped"], count["passed"], count["failed"]]
        row += [*(count[reason] for reason in REASONS), sum(one.leaked for one in here)]
        lines.append(" | ".join(f"{value:>{len(head)}}" for value, head in zip(row, HEADS, strict=True)))
    for one in results:
        if one.result == "failed":
            known = "expected to fail" if one.case in EXPECTED.get(backend, {}) else "failed"
            lines.append(f"{known} at world size {one.world_size}: {one.case}: {one.reason}")
    return "\n".join(lines)


def complaints(backend: str, results: list[Outcome], baseline: "Path | None") -> list[str]:
    """Returns what is wrong with a run, one sentence each."""
    expected, found = EXPECTED.get(backend, {}), []
    floor = read(baseline) if baseline else {}
    for one in results:
        at = f"{one.case} at world size {one.world_size}"
        if one.result == "passed" and one.case in expected:
            found.append(f"{at} passed, which expected.py does not expect: take it off the list")
        elif one.result == "skipped" and one.key in floor and floor[one.key].result == "passed":
            found.append(f"{at} was skipped ({one.reason}), the baseline passes it")
        if one.leaked:
            found.append(f"{at} left {one.leaked} processes behind")
    failed = sum(one.result == "failed" and one.case not in expected for one in results)
    return found + [f"{failed} cases failed that expected.py does not list"] * bool(failed)
