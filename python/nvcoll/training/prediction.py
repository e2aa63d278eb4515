"""The price of a training step: what ``nvcoll plan`` prints, as attributes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal, TypeVar, cast

from nvcoll._nvcoll import Fabric, InvalidArgument, WorkStep
from nvcoll.training.layouts import words

T = TypeVar("T")

Fit = Literal["fits", "tight", "too_large"]

TITLES: Final[Mapping[str, str]] = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer": "optimizer state",
    "buffers": "communication buffers",
    "activations": "activations",
    "temporary": "layer at work",
    "loss": "logits and loss",
    "graphs": "CUDA graphs",
    "other": "other",
    "reserved": "reserved, not allocated",
    "nccl": "NCCL",
    "context": "CUDA context",
}
"""The lines of the table of memory by name, as people call them."""

FITS: Final[Mapping[str, str]] = {"fits": "fits", "tight": "may fit", "too_large": "does not fit"}
"""The answers about memory, best first, in words."""

COMPUTING: Final = ("gemm", "attention", "elementwise", "recompute", "optimizer")
"""Parts in which the GPU works; in the others it waits."""

COMMUNICATING: Final = ("tensor", "expert", "context", "sharded", "data", "sends")
"""Parts in which computing waits for communication."""

PARTS: Final = {
    "gemm": "matrix products",
    "attention": "attention",
    "elementwise": "element-wise work",
    "recompute": "computed again",
    "host": "waits for the processor",
    "tensor": "tensor parallelism, exposed",
    "expert": "expert parallelism, exposed",
    "context": "context parallelism, exposed",
    "sharded": "sharded parameters, exposed",
    "bubble": "pipeline bubble",
    "sends": "sends between stages, exposed",
    "data": "data parallelism, exposed",
    "optimizer": "optimizer",
    "stall": "stalls of the software",
    "copies": "copies to and from the processor, exposed",
}
"""The parts of a step by name, with what they are."""

UNLIKE: Final = 5.0
"""The times by which a measured step may differ from its prediction. Chosen: beyond, something else ran."""

TRUSTED: Final = {True: 0.5, False: 0.8}
"""How much of the logarithm of one measured run against its prediction counts, by whether runs like it were measured.

The part that is not noise: variance between systems over that plus the variance between runs of one. Chosen: 0.05 and
0.05 for software and GPUs that were measured, 0.10 and 0.05 otherwise.
"""


def dollars_of(tokens_per_second: float, per_gpu_hour: float, tokens: float) -> float:
    """Returns the price of training on some tokens, in the currency of ``per_gpu_hour``; the rate is that of a GPU."""
    return tokens / tokens_per_second / 3600 * per_gpu_hour


@dataclass(frozen=True)
class RolePrice:
    """What the ranks of some stages need: seconds of one micro-batch by chunk, seconds once, memory by part."""

    name: str
    stages: tuple[int, ...]
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    once_s: float
    memory_gb: float
    memory: Mapping[str, float]


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

    ``exposed_s``, ``copies_s``: its collectives and messages, and its copies, that nothing hides. ``waits_s``:
    they wait for other ranks.
    ``host_s``: the GPU waits for the processor to issue its operations.
    """

    line: str
    exposed_s: float
    copies_s: float
    waits_s: float
    host_s: float


@dataclass(frozen=True, repr=False)
class StepPrediction:
    """The predicted time of a step of training, and what it consists of.

    Seconds; ``low_s`` and ``high_s`` are the ends of the 90 % interval. ``parts`` are the seconds of the slowest stage
    by part, and sum up to ``seconds``. ``memory_gb`` is that of the fullest rank, in GB of 2^30 bytes.
    ``extrapolated`` says why the interval is wider than usual. ``flops_of`` says which FLOPs ``mfu`` and ``tflops``
    count: those of the ``model``, or ``recorded`` ones. ``lines``: what a recorded step loses by line of the script.
    """

    seconds: float
    low_s: float
    high_s: float
    extrapolated: tuple[str, ...]
    tokens_per_second: float
    mfu: float
    tflops: float
    flops_of: Literal["model", "recorded"]
    parts: Mapping[str, float]
    roles: tuple[RolePrice, ...]
    blocks: Mapping[str, Any]
    collectives: tuple[CollectivePrice, ...]
    lines: tuple[LinePrice, ...]
    memory_gb: float
    gpu_memory_gb: float
    fit: Fit
    machine: Fabric = field(repr=False)
    step: WorkStep = field(repr=False)
    request: Mapping[str, Any] = field(repr=False, default_factory=dict)

    @classmethod
    def of(cls, text: str, machine: Fabric, step: WorkStep, request: Mapping[str, Any]) -> StepPrediction:
        """Reads the JSON of a price."""
        row = json.loads(text)
        for name in ("computes_s", "exposed_s", "idle_s", "limit"):
            del row[name]
        tables = {one["role"]: one["lines"] for one in row.pop("memory")}
        row |= {"memory_gb": row.pop("memory_gib") or 0.0, "gpu_memory_gb": row.pop("gpu_memory_gib")}
        row["tokens_per_second"] = row["tokens_per_second"] or 0.0
        row["roles"] = [one | {"memory": tables.get(one["name"], [])} for one in row["roles"]]
        row["extrapolated"] = tuple(row["extrapolated"])
        row["roles"] = tuple(_role(one) for one in row["roles"])
        row["collectives"] = tuple(_collective(one) for one in row["collectives"])
        row["lines"] = tuple(LinePrice(**one) for one in row["lines"])
        return cls(**row, machine=machine, step=step, request=request)

    def __repr__(self) -> str:
        """The step, the machine, and the time in a line."""
        interval = f"{self.seconds:.4g} s (90 %: {self.low_s:.4g} to {self.high_s:.4g} s)"
        return f"<StepPrediction {self.step.name}, {self.machine.name}: {interval}, {self.fit}>"

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

    @property
    def exposed_s(self) -> float:
        """Seconds in which GPUs wait: for collectives, other stages, the processor."""
        return sum(seconds for name, seconds in self.parts.items() if name not in COMPUTING)

    @property
    def limit(self) -> str:
        """What takes most of the time, in words."""
        waiting = self.exposed_s / self.seconds
        name, seconds = max(self.parts.items(), key=lambda part: part[1])
        if waiting < 0.25:
            verb = "take" if PARTS[name].endswith("s") else "takes"
            return f"computing: {PARTS[name]} {verb} {100 * seconds / self.seconds:.0f} % of the time"
        longest = max((part for part in self.parts.items() if part[0] not in COMPUTING), key=lambda part: part[1])
        share = 100 * longest[1] / self.seconds
        return f"waiting takes {100 * waiting:.0f} % of the time, most of it {PARTS[longest[0]]} ({share:.0f} %)"

    def dollars(self, per_gpu_hour: float, tokens: float = 1e12) -> float:
        """Returns the price of training on some tokens, in the currency of ``per_gpu_hour``.

        Raises:
            InvalidArgument: the step does not say its tokens.
        """
        if self.tokens_per_second == 0:
            raise InvalidArgument(f"the step `{self.step.name}` does not say how many tokens it has: add its `tokens`")
        return dollars_of(self.tokens_per_second, per_gpu_hour, tokens)

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
        """Returns everything as plain objects, for JSON."""
        row: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(self)}
        row["machine"], row["step"] = self.machine.name, json.loads(self.step.to_json())
        row["roles"] = [vars(one) for one in self.roles]
        row["lines"] = [vars(one) for one in self.lines]
        row["collectives"] = [{key.rstrip("_"): value for key, value in vars(one).items()} for one in self.collectives]
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
        scale, row = self.scale, cast(Any, found)
        has = {one.name for one in fields(row)}
        times = {name: getattr(row, name) * scale for name in ("seconds", "low_s", "high_s")}
        rates = {name: getattr(row, name) / scale for name in ("tokens_per_second", "mfu", "tflops") if name in has}
        parts = {name: seconds * scale for name, seconds in row.parts.items()}
        return cast(T, replace(row, **times, **rates, parts=parts))


def _role(row: Mapping[str, Any]) -> RolePrice:
    memory = {TITLES[part["name"]]: part["bytes"] for part in row["memory"]}
    row = dict(row) | {"memory_gb": sum(memory.values()) / 2**30}
    rows = {name: tuple(row[name]) for name in ("stages", "forward_s", "backward_s")}
    return RolePrice(**(dict(row) | rows | {"memory": memory}))


def _collective(row: Mapping[str, Any]) -> CollectivePrice:
    return CollectivePrice(**{("pass_" if key == "pass" else key): value for key, value in row.items()})
