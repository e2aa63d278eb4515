"""Outcomes of the suite: one record for each case and world size, and the files that hold them.

A case passes, fails or is skipped. Skips have one of five reasons, which this file reads from the suite's own words:

    gpu                the case needs a GPU, or NCCL, which needs one
    disabled upstream  torch skips the case everywhere because of a known defect
    dependency         a package is not installed
    world size         the case needs another number of ranks
    backend name       the case is for another backend

A run is kept in full as JSON, with tracebacks and times. What a backend passes is kept as a table of four columns with
tabs between them (case, world sizes, result, reason), which people read and `diff` compares. A table loses tracebacks,
times and the number of leaked processes.

Source: ours. It does not run anything: see ``ranks.py``.
"""

import dataclasses
import itertools
import json
import re
from collections.abc import Iterable
from pathlib import Path

REASONS = {
    "disabled upstream": r"github\.com|failing|flaky",
    "dependency": r"torchvision|missing import",
    "gpu": r"(?i)accelerator|cuda|gpu|nccl",
    "world size": r"world ?size",
    "backend name": r"",
}
"""A pattern for each reason to skip; the first that matches counts."""

AFTER_MESSAGE = ("Exception raised from", "frame #", "To execute this test")
"""How lines begin that torch appends to the message of an error."""


@dataclasses.dataclass
class Outcome:
    """What one case did at one world size.

    Attributes:
        case: the name of the test method
        world_size: how many ranks ran it
        result: ``passed``, ``failed`` or ``skipped``
        reason: one of `REASONS` if skipped; the last line of the error if failed; else empty
        shown: the backend name that the suite was shown
        seconds: wall time
        leaked: how many processes outlived the ranks
        tracebacks: the whole error by rank
    """

    case: str
    world_size: int
    result: str
    reason: str = ""
    shown: str = ""
    seconds: float = 0.0
    leaked: int = 0
    tracebacks: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def key(self) -> tuple[str, int]:
        """What identifies the case in a run."""
        return self.case, self.world_size


def reason_of(words: str) -> str:
    """Returns the reason to skip that the suite's words give."""
    return next(reason for reason, pattern in REASONS.items() if re.search(pattern, words))


def merge(first: Outcome, second: Outcome) -> Outcome:
    """Returns the outcome of a case that was skipped under a first name, and tried under a second.

    The first reason to skip counts, unless it was the name.
    """
    return first if second.result == "skipped" and first.reason != "backend name" else second


def line_of_error(traceback: str) -> str:
    """Returns the first two lines of a traceback's error as one, without the stack of C++ that torch adds."""
    after = traceback.rpartition("Traceback (most recent call last):\n")[2]
    lines = [line for line in after.splitlines() if line and not line.startswith(" ")]
    message = itertools.takewhile(lambda line: not line.startswith(AFTER_MESSAGE), lines)
    return " ".join(" ".join(itertools.islice(message, 2)).split())[:200]


def write(file: Path, backend: str, torch_version: str, outcomes: Iterable[Outcome]) -> None:
    """Writes a run: as a table if the name ends in ``.tsv``, else as JSON."""
    outcomes = sorted(outcomes, key=lambda one: one.key)
    if file.suffix == ".tsv":
        file.write_text(table_of(f"# {backend}, torch {torch_version}", outcomes))
        return
    run = {"backend": backend, "torch": torch_version, "outcomes": [dataclasses.asdict(one) for one in outcomes]}
    file.write_text(json.dumps(run, indent=1))


def read(file: Path) -> dict[tuple[str, int], Outcome]:
    """Reads a run, JSON or table; returns its outcomes by case and world size."""
    text = file.read_text()
    if file.suffix == ".tsv":
        outcomes = outcomes_of(text)
    else:
        outcomes = [Outcome(**record) for record in json.loads(text)["outcomes"]]
    return {one.key: one for one in outcomes}


def table_of(title: str, outcomes: Iterable[Outcome]) -> str:
    """Returns the table: one line for the world sizes at which a case has the same result for the same reason."""
    sizes: dict[tuple[str, str, str], list[str]] = {}
    for one in outcomes:
        sizes.setdefault((one.case, one.result, one.reason), []).append(str(one.world_size))
    lines = [title, "# case\tworld sizes\tresult\treason"]
    lines += ["\t".join((case, ",".join(at), *why)).rstrip("\t") for (case, *why), at in sizes.items()]
    return "\n".join(lines) + "\n"


def outcomes_of(table: str) -> list[Outcome]:
    """Reads what `table_of` returns."""
    outcomes = []
    for line in table.splitlines():
        if not line.startswith("#"):
            case, sizes, result, reason, *_ = [*line.split("\t"), ""]
            outcomes += [Outcome(case, int(size), result, reason) for size in sizes.split(",")]
    return outcomes
