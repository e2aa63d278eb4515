"""A recorded script as a file: the training step, and facts of the recording.

The file is gzip JSON, in the cache (`nvcoll.dryrun.cache`) and of ``nvcoll dryrun --record FILE``::

    {"schema": "nvcoll.recorded/1", "step": {... docs/training-step.md ...}, "facts": {... nvcoll.dryrun.facts ...}}
"""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from nvcoll._nvcoll import InvalidArgument, TrainingStep
from nvcoll.dryrun.recording import Run

SCHEMA = "nvcoll.recorded/1"

MOST_BYTES = 1 << 30
"""The largest text of a recording that is read. Chosen: a hundred times that of a large script."""


@dataclass(frozen=True)
class Recorded:
    """A script that was recorded on one model of GPU.

    Attributes:
        row: the training step, as JSON has it.
        facts: the facts of the recording, for reports.
        runs: how the ranks ran, with times and memory of this machine; empty if they did not run now. Files have none.
        not_kept: why the cache did not keep it, and the script will run again; empty: it did, or was not to.
    """

    row: dict[str, Any]
    facts: dict[str, Any]
    runs: tuple[Run, ...] = field(default=(), compare=False)
    not_kept: str = field(default="", compare=False)

    @cached_property
    def step(self) -> TrainingStep:
        """The training step."""
        return TrainingStep.from_json(json.dumps(self.row))

    @property
    def ranks(self) -> list[dict[str, Any]]:
        """The ranks of the step: operations and memory."""
        found: list[dict[str, Any]] = self.row["recorded"]["ranks"]
        return found

    def with_tokens(self, tokens: float | None) -> Recorded:
        """Returns the same step with a given number of tokens; None: the number that was found."""
        if tokens is None:
            return self
        return replace(self, row=self.row | {"tokens": tokens}).with_facts(tokens="as given by --tokens")

    def with_facts(self, **facts: Any) -> Recorded:
        """Returns the same step with further facts."""
        return replace(self, facts=self.facts | facts)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes it to a file, whole or not at all. The same recording is the same bytes."""
        text = json.dumps({"schema": SCHEMA, "step": self.row, "facts": self.facts}, separators=(",", ":"))
        path = Path(path)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            draft.write_bytes(gzip.compress(text.encode(), compresslevel=6, mtime=0))
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Recorded:
        """Reads a file.

        Raises:
            InvalidArgument: it is no recording, or one of another version.
            OSError: it cannot be read.
        """
        what = "pass a file of nvcoll dryrun --record"
        try:
            with gzip.open(path) as file:
                text = file.read(MOST_BYTES + 1)
            row = json.loads(text) if len(text) <= MOST_BYTES else None
        except (gzip.BadGzipFile, EOFError, ValueError, RecursionError) as error:
            raise InvalidArgument(f"{path} is no recording ({error}): {what}") from None
        if not isinstance(row, dict) or row.get("schema") != SCHEMA:
            found = row.get("schema") if isinstance(row, dict) else None
            raise InvalidArgument(f"{path} has the schema {found!r}, {SCHEMA!r} was expected: {what}")
        step, facts = row.get("step"), row.get("facts")
        if not isinstance(step, dict) or not isinstance(facts, dict) or "recorded" not in step:
            raise InvalidArgument(f"{path} has no recorded step: {what}")
        return cls(step, facts)
