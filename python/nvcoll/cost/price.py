"""The price of one call on a machine that you do not have.

A price is the first of three answers that exists, and says which one it is:

====================  ==============================================================================================
predicted             the algorithm of NCCL on that machine: ``Fabric.predict``
simulated schedule    NCCL has no such collective (scan, exscan), or there is no prediction among these ranks: the
                      schedule that ran here, in virtual time. It is not validated
floor only            neither: a lower bound for any schedule
====================  ==============================================================================================

A call of one rank, or of no bytes, crosses no link and costs nothing. A barrier is priced as an all_reduce of 4 bytes,
which is what frameworks make of it. A send is priced as NCCL's sendrecv between the two ranks. Rank r is GPU r, also in
a group of ranks; a call is alone on the machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from nvcoll._nvcoll import Fabric, InvalidArgument, Prediction, launch_named
from nvcoll.cost.comparison import LAUNCH
from nvcoll.cost.counts import CallKind, CountedCalls

if TYPE_CHECKING:
    from nvcoll._nvcoll import _Launch as Launch

OF_PREDICTION = ("time_us", "low_us", "high_us", "algorithm", "protocol", "bottleneck", "trust")
"""The attributes of a prediction that a price has, in its order."""

Way = Literal["predicted", "simulated schedule", "floor only", "nothing crosses", "no answer"]

BARRIER_BYTES: Final = 4
"""An element of float32. Cited: torch's ProcessGroupNCCL::barrier reduces a tensor of one element."""


@dataclass(frozen=True)
class Price:
    """The time of one call on one machine, in microseconds.

    ``way`` names the kind of answer, ``why`` why there is no better one, ``trust`` the accuracy of predictions
    for such machines; ``low_us`` and ``high_us`` are the ends of the 90 % interval. Fields without an answer are None.

    Example:
        >>> import numpy as np, nvcoll
        >>> node = nvcoll.Node(8)
        >>> _ = node.all_reduce(np.ones((8, 1 << 20), "f4"))
        >>> price = node.report(on="hgx-h100").calls[0].prices[0]
        >>> price.way, price.algorithm
        ('predicted', 'NVLS')
    """

    machine: str
    way: Way
    time_us: float | None
    low_us: float | None = None
    high_us: float | None = None
    algorithm: str | None = None
    protocol: str | None = None
    bottleneck: str | None = None
    trust: str | None = None
    why: str | None = None


@dataclass(frozen=True)
class PricedCalls(CallKind):
    """Calls of one kind: the calls of one rank, how many are in steps of training, and the price of one by machine.

    Example:
        >>> import numpy as np, nvcoll
        >>> node = nvcoll.Node(8)
        >>> _ = node.all_reduce(np.ones((8, 1 << 20), "f4"))
        >>> calls = node.report(on="hgx-h100").calls[0]
        >>> calls.collective, calls.nbytes, calls.times
        ('all_reduce', 4194304, 1)
    """

    times: int
    in_steps: int
    prices: tuple[Price, ...]


class Pricer:
    """Prices calls on one machine, each kind once.

    Args:
        fabric: the machine; it may have more GPUs than the calls have ranks.
        launch, version, settings: how calls are launched, and NCCL's version and settings, as of `Fabric.predict`.

    Raises:
        InvalidArgument: no launch is called so.
    """

    def __init__(
        self,
        fabric: Fabric,
        launch: Launch = LAUNCH,
        version: str | None = None,
        settings: Mapping[str, str | int] | None = None,
    ) -> None:
        self.fabric, self.launch = fabric, launch_named(launch)
        self._version, self._settings = version, settings
        self._known: dict[CallKind, Price] = {}
        self._parts = {tuple(range(fabric.world_size)): fabric}

    def predict(self, among: Fabric, collective: str, sizes: Sequence[int]) -> list[Prediction]:
        """Predicts calls among some of the GPUs, or all."""
        return among.predict(collective, sizes, launch=self.launch, version=self._version, settings=self._settings)

    def prices(self, calls: Sequence[CountedCalls]) -> list[Price]:
        """Returns what one call of each kind costs."""
        new: dict[tuple[str, tuple[int, ...]], list[CountedCalls]] = {}
        for one in calls:
            if one.kind not in self._known:
                new.setdefault((one.kind.collective, one.kind.ranks), []).append(one)
        for (collective, ranks), of_one_model in new.items():
            priced = self._priced(collective, ranks, of_one_model)
            self._known |= {one.kind: price for one, price in zip(of_one_model, priced, strict=True)}
        return [self._known[one.kind] for one in calls]

    def _priced(self, collective: str, ranks: tuple[int, ...], calls: Sequence[CountedCalls]) -> list[Price]:
        """Prices calls of one collective among the same ranks."""
        name, sizes = self.fabric.name, [one.kind.nbytes for one in calls]
        if len(ranks) == 1 or not (collective == "barrier" or any(sizes)):
            return [Price(name, "nothing crosses", 0.0, 0.0, 0.0) for _ in calls]
        if max(ranks) >= self.fabric.world_size:
            why = f"{name} has {self.fabric.world_size} GPUs, the call is of rank {max(ranks)} too"
            return [Price(name, "no answer", None, why=why) for _ in calls]
        if ranks not in self._parts:
            self._parts[ranks] = self.fabric.among(ranks)
        among = self._parts[ranks]
        try:
            if collective == "barrier":
                return self._predicted(among, "all_reduce", [BARRIER_BYTES] * len(calls))
            return self._predicted(among, collective, sizes)
        except InvalidArgument as error:
            return [self._otherwise(among, one, str(error)) for one in calls]

    def _predicted(self, among: Fabric, collective: str, nbytes: Sequence[int]) -> list[Price]:
        """Returns what NCCL's way takes on a machine.

        Raises:
            InvalidArgument: there is no prediction of the collective, or on the machine.
        """
        name = self.fabric.name
        found = iter(self.predict(among, collective, [size for size in nbytes if size]))
        return [_of(name, next(found)) if size else Price(name, "nothing crosses", 0.0, 0.0, 0.0) for size in nbytes]

    def _otherwise(self, among: Fabric, call: CountedCalls, why: str) -> Price:
        """Prices what has no model: by the schedule that ran, else by the floor."""
        name, kind = self.fabric.name, call.kind
        if kind.dtype and not kind.nbytes:
            return Price(name, "nothing crosses", 0.0, 0.0, 0.0)
        try:
            if kind.dtype and (schedule := call.schedule()):
                found = among.simulate(schedule, kind.nbytes, dtype=kind.dtype, launch=self.launch)
                us, by, of = found.time_us, schedule.algorithm, found.bottleneck
                return Price(name, "simulated schedule", us, algorithm=by, bottleneck=of, why=why)
        except InvalidArgument as error:
            why = f"{why}; {error}"
        try:
            return Price(name, "floor only", among.floor(kind.collective, kind.nbytes), why=why)
        except InvalidArgument as error:
            return Price(name, "no answer", None, why=str(error))


def _of(name: str, one: Prediction) -> Price:
    return Price(name, "predicted", *(getattr(one, key) for key in OF_PREDICTION))
