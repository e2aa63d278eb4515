"""What ``nvcoll predict`` asks of the library, and puts together: a row per machine and size.

A row has three answers. The *prediction* is the time of the call. *NCCL's own estimate* is the time by which NCCL
chooses. The *floor* is the lower bound for any schedule. An answer that is missing is None, with the reason beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nvcoll._nvcoll import Fabric, InvalidArgument, NcclEstimate, Prediction, collectives, patterns
from nvcoll.cli import hints

if TYPE_CHECKING:
    from nvcoll._nvcoll import _Launch as Launch


@dataclass(frozen=True)
class Buckets:
    """A gradient that is reduced bucket after bucket; microseconds."""

    nbytes: int
    """Of a full one."""
    count: int
    each: Prediction
    total: float
    low: float
    high: float


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
    buckets: Buckets | None = None

    @property
    def times_floor(self) -> float | None:
        """The prediction as a multiple of the floor."""
        return self.prediction.time_us / self.floor if self.prediction and self.floor else None

    def to_json(self, best: float | None) -> dict[str, Any]:
        """Returns every field; ``best`` is the time of the fastest machine at that size."""
        found, way = self.prediction, self.nccl and self.nccl.chosen
        link, network = self.fabric.port_rates()
        return {
            "fabric": self.fabric.name,
            "nbytes": self.nbytes,
            "algorithm": found and found.algorithm,
            "protocol": found and found.protocol,
            "channels": found and found.channels,
            "time_us": found and found.time_us,
            "low_us": found and found.low_us,
            "high_us": found and found.high_us,
            "algbw": found and found.algbw,
            "busbw": found and found.busbw,
            "link_gbps": link,
            "network_gbps": network,
            "vs_best": found.time_us / best if found and best else None,
            "bottleneck": found and found.bottleneck,
            "parts": dict(found.parts) if found else None,
            "trust": found and found.trust,
            "choice": found and found.choice,
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
            "bucket_bytes": self.buckets and self.buckets.nbytes,
            "buckets": self.buckets and self.buckets.count,
            "bucket_us": self.buckets and self.buckets.each.time_us,
            "total_us": self.buckets and self.buckets.total,
            "total_low_us": self.buckets and self.buckets.low,
            "total_high_us": self.buckets and self.buckets.high,
        }


@dataclass(frozen=True)
class Question:
    """One question to every machine."""

    collective: str
    sizes: Sequence[int]
    launch: Launch
    version: str | None
    bucket: int | None = None

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
            estimates = one.nccl(self.collective, self.sizes, version=self.version)
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
                self._buckets(one, size) if found else None,
            )
            for size, found, nccl in zip(self.sizes, predictions, estimates, strict=True)
        ]

    def predict(self, one: Fabric, sizes: Sequence[int]) -> list[Prediction]:
        """Predicts the collective on one machine."""
        return one.predict(self.collective, sizes, launch=self.launch, version=self.version)

    def _buckets(self, one: Fabric, nbytes: int) -> Buckets | None:
        """Cuts a call into buckets, of which the last has the rest, and adds up their times."""
        if self.bucket is None:
            return None
        full, rest = divmod(nbytes, self.bucket)
        sizes = [self.bucket] * bool(full) + [rest] * bool(rest)
        counts = [full] * bool(full) + [1] * bool(rest)
        found = self.predict(one, sizes)
        low, total, high = (
            sum(count * time for count, time in zip(counts, times, strict=True))
            for times in ([p.low_us for p in found], [p.time_us for p in found], [p.high_us for p in found])
        )
        return Buckets(self.bucket, sum(counts), found[0], total, low, high)


def ask_all(question: Question, machines: Sequence[Fabric]) -> list[list[Answer]]:
    """Asks every machine, in their order.

    Raises:
        InvalidArgument: there is a prediction for none of them.
    """
    found = [question.ask(one) for one in machines]
    refused = [answers[0].why_no_prediction for answers in found]
    if all(refused):
        raise InvalidArgument(refused[0])
    return found
