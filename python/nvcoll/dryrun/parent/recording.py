"""A recorded script as a file: the training step, and facts of the recording.

The file is gzip JSON, in the cache (`parent.cache`) and of ``nvcoll dryrun --save FILE``::

    {"schema": "nvcoll.recorded/2", "step": {... docs/reference/training-step.md ...}, "facts": {... parent.facts ...}}
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, repeat
from pathlib import Path
from types import UnionType
from typing import Any, NotRequired, TypedDict, Union, cast, get_args, get_origin, get_type_hints, is_typeddict

from nvcoll._nvcoll import InvalidArgument, WorkStep
from nvcoll.dryrun.wire.host_speed import USUAL
from nvcoll.dryrun.wire.rank_recording import Growth, RankRecording, Run
from nvcoll.dryrun.wire.virtual_gpu import CAPTURED
from nvcoll.dryrun.wire.whole import write_whole

SCHEMA = "nvcoll.recorded/2"

MOST_BYTES = 1 << 30
"""The largest text of a recording that is read. Chosen: a hundred times the text of a large script."""


KNOWN = 1.2
"""The factor by which a processor of known speed may differ. Chosen: rows of one source agree within a tenth."""


class RankFacts(TypedDict):
    """Counts of a rank that ran, in the counted step."""

    name: str
    stands_for: int
    rank: int
    steps: int
    launches: int
    products: int
    calls: int
    host_waits: int
    streams: int
    host_ops: int
    allocated: int
    reserved: int
    capacity: int


class GroupFacts(TypedDict):
    """A group that communicates: its name in the step, what the framework calls it, and its ranks."""

    name: str
    called: str
    size: int
    stride: int
    first: int
    runs: NotRequired[int]
    apart: NotRequired[int]


class Assumed(TypedDict):
    """An assumption, the line of the script, and how often it was made."""

    text: str
    line: str
    times: int


class Pass(TypedDict):
    """A pass of the first rank: the line that calls it without gradients, or "" of training; its first operation."""

    line: str
    first: int


class ServedFacts(TypedDict):
    """The iteration of a server, and its cache of keys and values, as it prints it."""

    kind: str
    words: str
    server: str
    sequences: int
    context: int
    tokens: NotRequired[int]
    pairs: NotRequired[float]
    kv_tokens: int
    kv_bytes: int
    longest: int


class Facts(TypedDict):
    """Facts of a recording beside the step, for reports."""

    script: str
    world_size: int
    gpu: str
    gpu_title: str
    versions: dict[str, str]
    optimizer: str
    ranks: list[RankFacts]
    groups: list[GroupFacts]
    tokens: str
    model_flops: float | None
    hardware_flops: float
    flops: float
    assumed: list[Assumed]
    alone: str
    ddp_waits: bool
    without_gradients: dict[str, float]
    passes: NotRequired[list[Pass]]
    saves: list[str]
    growth: Growth
    unanswered: list[str]
    served: NotRequired[ServedFacts]
    machine: NotRequired[str | None]


def _wrong(value: object, shape: Any, where: str) -> Iterator[str]:
    """Yields the places at which a value has not a type."""
    inner, of = get_args(shape), get_origin(shape)
    if of is NotRequired or (of in (Union, UnionType) and value is not None):
        yield from _wrong(value, inner[0], where)
    elif is_typeddict(shape) and isinstance(value, dict):
        for key, type_ in get_type_hints(shape, include_extras=True).items():
            if key in value or (shape.__total__ and get_origin(type_) is not NotRequired):
                yield from _wrong(value.get(key), type_, f"{where}.{key}")
    elif (of is list and isinstance(value, list)) or (of is dict and isinstance(value, dict)):
        rows: Iterable[tuple[object, object]] = value.items() if isinstance(value, dict) else enumerate(value)
        for name, one in rows:
            yield from _wrong(one, inner[-1], f"{where}[{name}]")
    elif is_typeddict(shape) or of in (list, dict):
        yield where
    elif shape is float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
            yield where
    elif shape is not Any:
        is_other = not isinstance(value, shape) or (isinstance(value, bool) and shape is not bool)
        if is_other or (isinstance(value, int) and abs(value) >= 1 << 63):
            yield where


@dataclass(frozen=True)
class HostTimes:
    """The processor that recorded, as measured in steps without observers. Of one rank that ran.

    Attributes:
        seconds: seconds before each operation of the step; empty: not measured.
        speed: the speed of the processor (`wire.host_speed`).
        why: why it was not measured, if it may matter.
    """

    seconds: list[float] = field(default_factory=list)
    speed: float = 0.0
    why: str = ""

    @classmethod
    def of(cls, recording: RankRecording, places: Sequence[int], run: Run) -> HostTimes:
        """Returns times of operations from gaps of records; a record without an operation counts to the next."""
        found, left = [0.0] * (max(places, default=-1) + 1) if run.gaps else [], 0.0
        ran = iter(places)
        for kind, gap in zip(recording.records["kind"].tolist(), run.gaps, strict=False):
            left, place = left + gap, -1 if kind & CAPTURED else next(ran)
            if place >= 0:
                found[place], left = found[place] + left, 0.0
        return cls(found, run.host_speed, run.unmeasured)

    @staticmethod
    def beside(path: str | os.PathLike[str]) -> Path:
        """Returns the file of times beside that of a recording, which is the same bytes in two runs."""
        return Path(f"{os.fspath(path)}.host")

    @classmethod
    def load(cls, path: str | os.PathLike[str], operations: int) -> HostTimes:
        """Reads the file beside a recording; without one of as many operations nothing is known."""
        with suppress(OSError, ValueError, TypeError):
            found = cls(**json.loads(cls.beside(path).read_text()))
            if len(found.seconds) in (0, operations) and sum(found.seconds) >= 0 and found.speed >= 0:
                return found
        return cls()

    def in_step(self, step: WorkStep, speed: float | None) -> WorkStep:
        """Returns a step with these times, on a processor of a speed; None: a usual one, which is not known."""
        if not self.seconds and speed is None:
            return step
        row, known = json.loads(step.to_json()), {} if speed is None else {"spread": KNOWN}
        for rank in row["streams"]["ranks"]:
            issued, of = rank["issued"], rank["host"]["launches"]
            operators = of.get("operators", len(issued)) * USUAL / (speed or USUAL)
            rank["host"] = {"launches": {"operators": 0 if self.seconds else operators, **known}}
            if self.seconds:
                each = zip(issued, chain(self.seconds, repeat(0.0)), strict=False)
                slower = self.speed / (speed or USUAL)
                rank["issued"] = [one for op, seconds in each for one in (*_host(op, slower * seconds), op)]
        return WorkStep.from_json(json.dumps(row))


def _host(op: dict[str, Any], seconds: float) -> Iterator[dict[str, Any]]:
    """Yields the operation of the processor before another, if it takes a time."""
    if seconds:
        yield {"stream": op.get("stream", 0), "work": "host", "name": "issue", "seconds": seconds}


@dataclass(frozen=True)
class Recording:
    """A script that was recorded on one model of GPU.

    Attributes:
        step: the training step.
        facts: the facts of the recording, for reports.
        host: the time of the processor.
        runs: how the ranks ran, with times and memory of this machine; empty if they did not run now. Files have none.
        not_kept: why the cache did not keep it, and the script will run again; empty: it did, or was not to.
        also: iterations of another kind of the same server.
    """

    step: WorkStep
    facts: Facts
    host: HostTimes = field(default=HostTimes(), compare=False)
    runs: tuple[Run, ...] = field(default=(), compare=False)
    not_kept: str = field(default="", compare=False)
    also: tuple[Recording, ...] = ()

    @property
    def fullest(self) -> RankFacts:
        """The rank whose allocator held most memory."""
        return max(self.facts["ranks"], key=lambda one: one["reserved"])

    @property
    def peak(self) -> str:
        """The line of the script at the peak of the fullest rank."""
        stack = max(self._allocators(), key=lambda one: float(one["reserved"])).get("stack")
        return str(stack[-1]) if stack else ""

    def _allocators(self) -> list[dict[str, Any]]:
        """Returns what the allocator of each rank counted, as the step has it."""
        return [rank["memory"]["allocator"] for rank in json.loads(self.step.to_json())["streams"]["ranks"]]

    def with_tokens(self, tokens: float | None) -> Recording:
        """Returns the same step with a given number of tokens; None: the number that was found."""
        if tokens is None:
            return self
        return replace(self, step=with_tokens(self.step, tokens)).with_facts(tokens="as given by --tokens")

    def with_facts(self, **facts: str | None) -> Recording:
        """Returns the same step with further facts."""
        also = tuple(one.with_facts(**facts) for one in self.also)
        return replace(self, facts=cast(Facts, self.facts | facts), also=also)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes it to a file, whole or not at all. The same recording is the same bytes."""
        row: dict[str, object] = {"schema": SCHEMA, **self._row()}
        if self.also:
            row["also"] = [one._row() for one in self.also]
        text = json.dumps(row, separators=(",", ":"))
        write_whole(Path(path), gzip.compress(text.encode(), compresslevel=6, mtime=0))
        HostTimes.beside(path).unlink(missing_ok=True)
        if self.host != HostTimes():
            write_whole(HostTimes.beside(path), json.dumps(asdict(self.host)).encode())

    def _row(self) -> dict[str, object]:
        return {"step": json.loads(self.step.to_json()), "facts": self.facts}

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
        step, others = row.get("step"), row.get("also", [])
        if not isinstance(step, dict) or not isinstance(row.get("facts"), dict) or "streams" not in step:
            raise InvalidArgument(f"{path} has no recorded step: {what}")
        try:
            host = HostTimes.load(path, len(step["streams"]["ranks"][0]["issued"]))
            return replace(cls._of_row(row), host=host, also=tuple(map(cls._of_row, others)))
        except (InvalidArgument, LookupError, TypeError, AttributeError) as error:
            raise InvalidArgument(f"{path} is a damaged recording (`{error}`): {what}") from None

    @classmethod
    def _of_row(cls, row: Mapping[str, Any]) -> Recording:
        """Returns one recording of a file.

        Raises:
            InvalidArgument, LookupError, TypeError, AttributeError: it is damaged.
        """
        made = cls(WorkStep.from_json(json.dumps(row["step"])), row["facts"])
        if wrong := next(_wrong(made.facts, Facts, "facts"), ""):
            raise InvalidArgument(wrong)
        if not (made.facts["ranks"] and made._allocators()):
            raise InvalidArgument("ranks")
        return made


def with_tokens(step: WorkStep, tokens: float) -> WorkStep:
    """Returns a step with another number of tokens."""
    return WorkStep.from_json(json.dumps(json.loads(step.to_json()) | {"tokens": tokens}))


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number")
