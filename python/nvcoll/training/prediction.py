"""The price of a training step: what ``nvcoll plan`` prints, as attributes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from html import escape
from typing import Any, Final, Literal, TypeVar

from nvcoll._nvcoll import Fabric, InvalidArgument, WorkStep, step_words
from nvcoll.training.layouts import words

T = TypeVar("T", bound="StepTime")

Fit = Literal["fits", "tight", "too_large"]

FITS: Final[Mapping[str, str]] = {"fits": "fits", "tight": "may fit", "too_large": "does not fit"}
"""The answers about memory, best first, in words."""

_PARTS, _LINES = json.loads(step_words())

PARTS: Final[Mapping[str, str]] = {name: title for name, _, title in _PARTS}
"""The parts of a step by name, with what they are."""

EXPOSED: Final = tuple(name for name, kind, _ in _PARTS if kind == "exposed")
"""Parts in which a GPU computes nothing while data moves between GPUs, with what computing loses beside it."""

IDLE: Final = tuple(name for name, kind, _ in _PARTS if kind == "idle")
"""Other parts in which a GPU computes nothing. In all parts that are neither exposed nor idle it computes."""

TITLES: Final[Mapping[str, str]] = dict(_LINES)
"""The lines of the table of memory by name, with what they are."""

UNLIKE: Final = 5.0
"""The times by which a measured step may differ from its prediction. Chosen: beyond, something else ran."""

TRUSTED: Final = {True: 0.5, False: 0.8}
"""How much of the logarithm of one measured run against its prediction counts, by whether runs like it were measured.

The part that is not noise: variance between systems over that plus the variance between runs of one. Chosen: 0.05 and
0.05 for software and GPUs that were measured, 0.10 and 0.05 otherwise.
"""


@dataclass(frozen=True)
class RolePrice:
    """The time of the ranks of some stages: seconds of one micro-batch by chunk, and seconds once in a step."""

    name: str
    stages: tuple[int, ...]
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    once_s: float


@dataclass(frozen=True)
class MemoryTable:
    """Memory of a GPU of some role: bytes by line (`TITLES`), and the least and the most bytes that it needs."""

    role: str
    lines: Mapping[str, float]
    least: float
    most: float

    @property
    def gib(self) -> float:
        """The sum of the parts in GiB."""
        return sum(self.lines.values()) / 2**30


@dataclass(frozen=True)
class CollectivePrice:
    """One collective of a step: where it is, among which ranks, bytes as nccl-tests counts, seconds if nothing hid it.

    ``hides`` names what it hides behind; ``nothing`` means that computing waits for it. Where the step was recorded it
    is None, and ``exposed_s`` has the seconds of all calls that nothing hides.
    """

    of: str
    pass_: str
    name: str
    group: str
    ranks: str
    count: float
    bytes: float
    seconds: float
    hides: str | None
    exposed_s: float | None = None


@dataclass(frozen=True)
class LinePrice:
    """What the GPU of a recorded step loses for a line of the script, in seconds of a step.

    ``exposed_s``, ``copies_s``: its collectives and messages, and its copies, that nothing hides. ``waits_s``: it waits
    for other ranks. ``host_s``: the GPU waits for the processor to issue its operations.
    """

    line: str
    exposed_s: float
    copies_s: float
    waits_s: float
    host_s: float


@dataclass(frozen=True)
class StepTime:
    """The time of a step, what it consists of, and whether it fits: of a prediction, and of each layout of a sweep.

    Seconds; ``low_s`` and ``high_s`` are the ends of the 90 % interval. ``parts`` are the seconds of the slowest stage
    by part, and sum up to ``seconds``. ``memory_gib`` is that of the fullest rank. ``fit`` is None if the memory is not
    known, and ``tokens_per_second`` (per GPU) 0 if the tokens are not. ``extrapolated`` says why the interval is wider.
    """

    seconds: float
    low_s: float
    high_s: float
    extrapolated: tuple[str, ...]
    tokens_per_second: float
    mfu: float
    parts: Mapping[str, float]
    memory_gib: float
    fit: Fit | None

    @property
    def computes_s(self) -> float:
        """Seconds in which the GPU computes: all that are neither exposed nor idle."""
        return self.seconds - self.exposed_s - self.idle_s

    @property
    def exposed_s(self) -> float:
        """Seconds in which the GPU computes nothing as data moves between GPUs, and those computing loses beside it."""
        return sum(self.parts.get(name, 0.0) for name in EXPOSED)

    @property
    def idle_s(self) -> float:
        """Seconds in which the GPU waits for other stages, the processor, stalls of the software, and copies."""
        return sum(self.parts.get(name, 0.0) for name in IDLE)

    @property
    def fits(self) -> bool:
        """Whether even the most memory that the step may need is in the GPU."""
        return self.fit == "fits"

    @property
    def limit(self) -> str:
        """What takes most of the time, in words."""
        waits = self.exposed_s + self.idle_s
        name, seconds = max(self.parts.items(), key=lambda part: part[1])
        if waits < 0.25 * self.seconds:
            verb = "take" if PARTS[name].endswith("s") else "takes"
            return f"computing: {PARTS[name]} {verb} {100 * seconds / self.seconds:.0f} % of the time"
        name = max((*EXPOSED, *IDLE), key=lambda part: self.parts.get(part, 0.0))
        share = 100 * self.parts[name] / self.seconds
        return f"waiting takes {100 * waits / self.seconds:.0f} % of the time, most of it {PARTS[name]} ({share:.0f} %)"

    def dollars(self, per_gpu_hour: float, tokens: float = 1e12) -> float:
        """Returns the price of training on some tokens, in the currency of ``per_gpu_hour``.

        Raises:
            InvalidArgument: the number of tokens of the step is not known.
        """
        if self.tokens_per_second == 0:
            raise InvalidArgument("it is not known how many tokens the step has: add its `tokens`, or pass --tokens")
        return tokens / self.tokens_per_second / 3600 * per_gpu_hour

    def scaled(self: T, scale: float) -> T:
        """Returns it with all times scaled; rates follow."""
        rates = {name: getattr(self, name) / scale for name in ("tokens_per_second", "mfu", "tflops")
                 if hasattr(self, name)}  # fmt: skip
        times = {name: getattr(self, name) * scale for name in ("seconds", "low_s", "high_s")}
        return replace(self, **times, **rates, parts={name: time * scale for name, time in self.parts.items()})


@dataclass(frozen=True, repr=False)
class StepPrediction(StepTime):
    """The predicted time of a step of training on a machine, and what it consists of.

    ``flops_of`` says which FLOPs ``mfu`` and ``tflops`` count: those of the ``model``, or ``recorded`` ones. ``lines``:
    what a recorded step loses by line of the script. ``memory``: of each role; None if it is not known.
    """

    tflops: float
    flops_of: Literal["model", "recorded"]
    roles: tuple[RolePrice, ...]
    blocks: Mapping[str, Mapping[str, Mapping[str, float]]]
    collectives: tuple[CollectivePrice, ...]
    lines: tuple[LinePrice, ...]
    memory: tuple[MemoryTable, ...] | None
    gpu_memory_gib: float
    machine: Fabric
    step: WorkStep
    request: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str, machine: Fabric, step: WorkStep, request: Mapping[str, Any]) -> StepPrediction:
        """Reads the JSON of a price."""
        row = with_known(json.loads(text))
        tables = [(one, {line["name"]: line["bytes"] for line in one["lines"]}) for one in row["memory"]]
        row["memory"] = (
            tuple(MemoryTable(one["role"], lines, one["least"], one["most"]) for one, lines in tables) or None
        )
        row["extrapolated"] = tuple(row["extrapolated"])
        row["roles"] = tuple(_role(one) for one in row["roles"])
        row["collectives"] = tuple(_collective(one) for one in row["collectives"])
        row["lines"] = tuple(LinePrice(**one) for one in row["lines"])
        return cls(**row, machine=machine, step=step, request=request)

    def __repr__(self) -> str:
        """The step, the machine, and the time in a line."""
        interval = f"{self.seconds:.4g} s (90 %: {self.low_s:.4g} to {self.high_s:.4g} s)"
        return f"<StepPrediction {self.step.name}, {self.machine.name}: {interval}, {fit_words(self.fit)}>"

    def _repr_html_(self) -> str:
        shares = ((PARTS.get(name, name), 100 * time / self.seconds) for name, time in self.parts.items())
        rows = "".join(f"<tr><td>{escape(name)}</td><td>{share:.1f} %</td></tr>" for name, share in shares)
        return f"<p>{escape(repr(self)[1:-1])}</p><table>{rows}</table>"

    @property
    def words(self) -> str:
        """The layout in the short words of the field; empty for a step that was not planned here."""
        return words(self.request["layout"]) if self.request else ""

    @property
    def gpus(self) -> int:
        """The number of GPUs."""
        return self.step.gpus

    @property
    def is_recorded(self) -> bool:
        """Whether the step was recorded, and not planned."""
        return self.step.is_recorded

    def calibrated(self, measured_s: float) -> Calibration:
        """Compares the prediction with a step that was measured.

        Args:
            measured_s: seconds of the step, the median of several.

        Raises:
            InvalidArgument: it is not a positive number.
        """
        if not (math.isfinite(measured_s) and measured_s > 0):
            raise InvalidArgument(f"the measured step took {measured_s} s: pass a positive number of seconds")
        if not 1 / UNLIKE <= measured_s / self.seconds <= UNLIKE:
            what = f"the measured step took {measured_s:g} s and {self.seconds:.3g} s were predicted"
            raise InvalidArgument(f"{what}: more than noise differs, correct the layout, the machine or the software")
        trusted = TRUSTED[not self.extrapolated]
        return Calibration(measured_s / self.seconds, (measured_s / self.seconds) ** trusted)

    def to_dict(self) -> dict[str, Any]:
        """Returns everything as plain objects, for JSON: the step by its name, and null where something is unknown."""
        kept = [one.name for one in fields(self) if one.name not in ("machine", "step", "roles", "collectives")]
        row: dict[str, Any] = {"machine": self.machine.name, "step": self.step.name, "gpus": self.gpus}
        row |= {name: getattr(self, name) for name in (*kept, "computes_s", "exposed_s", "idle_s", "limit")}
        for name in ("memory", "lines"):
            row[name] = [asdict(one) for one in row[name]] if row[name] is not None else None
        row["roles"] = [asdict(one) for one in self.roles]
        row["collectives"] = [{key.rstrip("_"): value for key, value in vars(one).items()} for one in self.collectives]
        row |= {name: row[name] or None for name in ("tokens_per_second", "memory_gib", "mfu", "tflops")}
        return row


@dataclass(frozen=True)
class Calibration:
    """One measured step against its prediction: ``ratio`` as measured, ``scale`` as it counts for other steps.

    A run has noise of its own (3 to 5 % between equal runs), so ``scale`` is nearer to 1 than ``ratio``. It holds for
    the same model, GPU, precision and software.
    """

    ratio: float
    scale: float

    def of(self, found: T) -> T:
        """Returns a prediction, or a layout of a sweep, with all its times scaled; rates follow."""
        return found.scaled(self.scale)


def fit_words(fit: Fit | None) -> str:
    """Says whether a step fits."""
    return "memory not known" if fit is None else FITS[fit]


def with_known(row: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields of a price in JSON; what is not known is 0."""
    return row | {name: row[name] or 0.0 for name in ("tokens_per_second", "memory_gib")}


def _role(row: Mapping[str, Any]) -> RolePrice:
    stages, forward_s, backward_s = (tuple(row[name]) for name in ("stages", "forward_s", "backward_s"))
    return RolePrice(row["name"], stages, forward_s, backward_s, row["once_s"])


def _collective(row: Mapping[str, Any]) -> CollectivePrice:
    return CollectivePrice(**{("pass_" if key == "pass" else key): value for key, value in row.items()})
