"""A recorded script as a file: the training step, and facts of the recording.

The file is gzip JSON, in the cache (`parent.cache`) and of ``nvcoll dryrun --save FILE``::

    {"schema": "nvcoll.recorded/2", "step": {... docs/training-step.md ...}, "facts": {... parent.facts ...}}
"""

from __future__ import annotations

import gzip
import json
import math
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from nvcoll._nvcoll import InvalidArgument, WorkStep
from nvcoll.dryrun.wire.rank_recording import Run
from nvcoll.dryrun.wire.whole import write_whole

SCHEMA = "nvcoll.recorded/2"

MOST_BYTES = 1 << 30
"""The largest text of a recording that is read. Chosen: a hundred times that of a large script."""


FACTS: dict[Any, Any] = {
    **{"script": str, "world_size": int, "gpu": str, "gpu_title": str, "tokens": str, "flops": float},
    "versions": {...: str},
    "ranks": [dict.fromkeys(("rank", "products", "launches", "calls", "streams"), int)],
    "groups": [{"name": str, **dict.fromkeys(("size", "stride", "first", "runs?", "apart?"), int)}],
    "assumed": [{"text": str, "line": str, "times": int}],
    **{"unanswered": [str], "saves?": [str], "without_gradients?": {...: float}},
    **{"alone?": str, "ddp_waits?": bool, "machine?": str | None},
    "growth?": {"bytes?": int, "step?": int, "line?": str},
}
"""What readers of facts rely on: types by name, with `?` where a name may be missing; `...` stands for all names."""

STEP: dict[str, Any] = {
    **{"gpus": int, "tokens?": float, "model_flops?": float},
    "streams": {"ranks": [{"issued": list, "memory": {"allocator": {"allocated": float, "reserved": float}}}]},
}
"""What readers of the step in Python rely on, beside what the step itself checks."""


def _wrong(value: Any, shape: Any, where: str) -> Iterator[str]:
    """Yields the places at which a value has not a shape."""
    if isinstance(shape, list) and isinstance(value, list):
        for nth, row in enumerate(value):
            yield from _wrong(row, shape[0], f"{where}[{nth}]")
    elif isinstance(shape, dict) and isinstance(value, dict):
        for name, one in (dict.fromkeys(value, shape[...]) if ... in shape else shape).items():
            known = name.removesuffix("?")
            if known == name or known in value:
                yield from _wrong(value.get(known), one, f"{where}.{known}")
    elif isinstance(shape, list | dict):
        yield where
    elif shape is float:
        if type(value) not in (int, float) or not math.isfinite(value):
            yield where
    elif not isinstance(value, shape) or (isinstance(value, bool) and shape is not bool):
        yield where


@dataclass(frozen=True)
class Recording:
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
    def step(self) -> WorkStep:
        """The training step."""
        return WorkStep.from_json(json.dumps(self.row))

    @property
    def ranks(self) -> list[dict[str, Any]]:
        """The ranks of the step: operations and memory."""
        found: list[dict[str, Any]] = self.row["streams"]["ranks"]
        return found

    @property
    def memory(self) -> list[dict[str, Any]]:
        """What the allocator of each rank counted."""
        return [rank["memory"]["allocator"] for rank in self.ranks]

    def with_tokens(self, tokens: float | None) -> Recording:
        """Returns the same step with a given number of tokens; None: the number that was found."""
        if tokens is None:
            return self
        return replace(self, row=self.row | {"tokens": tokens}).with_facts(tokens="as given by --tokens")

    def with_facts(self, **facts: Any) -> Recording:
        """Returns the same step with further facts."""
        return replace(self, facts=self.facts | facts)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes it to a file, whole or not at all. The same recording is the same bytes."""
        text = json.dumps({"schema": SCHEMA, "step": self.row, "facts": self.facts}, separators=(",", ":"))
        write_whole(Path(path), gzip.compress(text.encode(), compresslevel=6, mtime=0))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Recording:
        """Reads a file.

        Raises:
            InvalidArgument: it is no recording, or one of another version.
            OSError: it cannot be read.
        """
        what = "pass a file of nvcoll dryrun --save"
        try:
            with gzip.open(path) as file:
                text = file.read(MOST_BYTES + 1)
            row = json.loads(text, parse_constant=_no_number) if len(text) <= MOST_BYTES else None
        except (gzip.BadGzipFile, EOFError, zlib.error, ValueError, RecursionError) as error:
            raise InvalidArgument(f"{path} is no recording ({error}): {what}") from None
        if not isinstance(row, dict) or row.get("schema") != SCHEMA:
            found = row.get("schema") if isinstance(row, dict) else None
            raise InvalidArgument(f"{path} has the schema {found!r}, {SCHEMA!r} was expected: {what}")
        step, facts = row.get("step"), row.get("facts")
        if not isinstance(step, dict) or not isinstance(facts, dict) or "streams" not in step:
            raise InvalidArgument(f"{path} has no recorded step: {what}")
        given = {name: value for name, value in step.items() if value is not None}
        where = next(chain(_wrong(facts, FACTS, "facts"), _wrong(given, STEP, "step")), "")
        if not where and not (facts["ranks"] and step["streams"]["ranks"]):
            where = "ranks"
        if where:
            raise InvalidArgument(f"{path} is a damaged recording (`{where}`): {what}")
        return cls(step, facts)


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number")
