"""What ``nvcoll predict`` asks of the library, and puts together: a row per machine and size.

A row has three answers. The *prediction* is the time of the call. *NCCL's own estimate* is the time by which NCCL
chooses. The *floor* is the lower bound for any schedule. An answer that is missing is None, with the reason beside it.

An algorithm that NCCL weighs and does not choose is *faster* if its predicted time is at least 10 % less, if each of
the two times is outside the interval of the other, and if both predictions are validated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nvcoll._nvcoll import Fabric, InvalidArgument, NcclEstimate, Prediction, collectives, patterns
from nvcoll.cli import hints, progress

if TYPE_CHECKING:
    from nvcoll._nvcoll import _Launch as Launch
    from nvcoll._nvcoll import _Server as Server


LEAST_SAVED = 0.1
"""The least part of the time that a faster algorithm saves. Chosen."""

LISTS_BY_COLLECTIVE = (2, 24)
"""The first version whose NCCL_ALGO has a list per collective. Others then keep theirs; source: src/graph/tuning.cc."""


OF_PREDICTION = (
    *("implementation", "algorithm", "protocol", "channels", "time_us", "low_us", "high_us", "algbw", "busbw"),
    *("bottleneck", "trust", "choice"),
)
"""The attributes of a prediction that JSON has by the same names."""


@dataclass(frozen=True)
class Faster:
    """A setting of NCCL with which a call is predicted to be faster."""

    setting: str
    """As ``NCCL_ALGO=allreduce:Tree``."""
    prediction: Prediction
    saved: float
    """The part of the time that it saves."""


@dataclass(frozen=True)
class Answer:
    """A call of one size on one machine."""

    fabric: Fabric
    nbytes: int
    floor: float
    prediction: Prediction | None = None
    why_no_prediction: str | None = None
    nccl: NcclEstimate | None = None
    why_no_nccl: str | None = None
    faster: Faster | None = None

    @property
    def times_floor(self) -> float | None:
        """The prediction as a multiple of the floor."""
        return self.prediction.time_us / self.floor if self.prediction and self.floor else None

    def to_json(self, best: float | None) -> dict[str, Any]:
        """Returns every field; ``best`` is the time of the fastest machine at that size."""
        found, way = self.prediction, self.nccl and self.nccl.chosen
        link, network = self.fabric.port_rates()
        return {
            "machine": self.fabric.name,
            "nbytes": self.nbytes,
            **{name: found and getattr(found, name) for name in OF_PREDICTION},
            "link_gbps": link,
            "network_gbps": network,
            "vs_best": found.time_us / best if found and best else None,
            "parts": dict(found.parts) if found else None,
            "why_no_prediction": self.why_no_prediction,
            "floor_us": self.floor,
            "times_floor": self.times_floor,
            "nccl_tag": self.nccl and self.nccl.tag,
            "nccl_algorithm": way and way.algorithm,
            "nccl_protocol": way and way.protocol,
            "nccl_channels": way and way.channels,
            "nccl_estimate_us": way and way.time_us,
            "nccl_is_last_resort": bool(self.nccl and self.nccl.is_last_resort),
            "why_no_estimate": self.why_no_nccl,
            "faster_setting": self.faster and self.faster.setting,
            "faster_us": self.faster and self.faster.prediction.time_us,
        }


@dataclass(frozen=True)
class Question:
    """One question to every machine."""

    collective: str
    sizes: Sequence[int]
    launch: Launch
    version: str | None
    settings: Mapping[str, str] = field(default_factory=dict)
    server: Server | None = None

    def ask(self, one: Fabric) -> list[Answer]:
        """Asks one machine.

        Raises:
            InvalidArgument: no collective is called so.
        """
        predictions: Sequence[Prediction | None] = [None] * len(self.sizes)
        estimates: Sequence[NcclEstimate | None] = [None] * len(self.sizes)
        why_no_prediction = why_no_nccl = None
        is_contract = self.collective in {row.name for row in collectives()}
        predicted = [row.name for row in patterns()]
        if not is_contract and self.collective not in predicted:
            raise InvalidArgument(hints.of_collective(self.collective, predicted))
        try:
            predictions = self.predict(one, self.sizes)
        except InvalidArgument as error:
            if not is_contract:
                raise
            why_no_prediction = str(error)
        try:
            estimates = one.nccl(self.collective, self.sizes, version=self.version, settings=self.settings)
        except InvalidArgument as error:
            why_no_nccl = str(error) if is_contract else f"NCCL has no cost model of {self.collective}"
        return [
            Answer(
                one,
                size,
                found.floor_us if found else one.floor(self.collective, size),
                found,
                why_no_prediction,
                nccl,
                why_no_nccl,
                self._faster(one, found, nccl) if found and nccl else None,
            )
            for size, found, nccl in zip(self.sizes, predictions, estimates, strict=True)
        ]

    def predict(self, one: Fabric, sizes: Sequence[int], algorithm: str | None = None) -> list[Prediction]:
        """Predicts the collective on one machine, by an algorithm of NCCL or by the one that it chooses."""
        return one.predict(
            self.collective,
            sizes,
            launch=self.launch,
            algorithm=algorithm,
            version=self.version,
            settings=self.settings,
            as_=self.server,
        )

    def _faster(self, one: Fabric, found: Prediction, nccl: NcclEstimate) -> Faster | None:
        """Finds the fastest algorithm that is clearly faster than the one that NCCL chooses."""
        if "NCCL_ALGO" in self.settings or self.server or not found.is_validated:
            return None
        others = {way.algorithm for way in nccl.candidates if way.time_us is not None} - {found.algorithm}
        faster = []
        for algorithm in sorted(others):
            try:
                (other,) = self.predict(one, [found.nbytes], algorithm)
            except InvalidArgument:  # it has no closed form
                continue
            saved = 1 - other.time_us / found.time_us
            is_apart = other.time_us < found.low_us and other.high_us < found.time_us
            if saved >= LEAST_SAVED and is_apart and other.is_validated:
                faster.append(Faster(self._forcing(algorithm, nccl.tag), other, saved))
        return max(faster, key=lambda one: one.saved, default=None)

    def _forcing(self, algorithm: str, tag: str) -> str:
        """Returns the setting that makes a version of NCCL take an algorithm."""
        version = tuple(int(number) for number in tag.removeprefix("v").split("-")[0].split("."))
        only = f"{self.collective.replace('_', '')}:" if version >= LISTS_BY_COLLECTIVE else ""
        return f"NCCL_ALGO={only}{algorithm}"


def ask_all(question: Question, machines: Sequence[Fabric]) -> list[list[Answer]]:
    """Asks every machine, in their order.

    Raises:
        InvalidArgument: there is a prediction for none of them.
    """
    found = []
    with progress.line() as tell:
        for at, one in enumerate(machines, 1):
            tell(f"{one.name} ({at} of {len(machines)})")
            found.append(question.ask(one))
    refused = [answers[0].why_no_prediction for answers in found]
    if all(refused):
        raise InvalidArgument(refused[0])
    return found
