"""A row of a tool that is not nccl-tests, beside what a machine should give for it.

A format (`nvcoll.check.deepep` and others) makes logs whose rows have bytes and a time, and gives them a `Tool`: the
time that a machine should take. A damaged machine is asked the same question, so verdicts and ailments work on these
logs as on those of nccl-tests. The interval is a factor on both sides of the time::

    time   = Tool.time_us(machine, row)
    low    = time / spread
    high   = max(time, the time of an older release) x spread

Sizes that a tool cannot fill a link with are no rows: every row decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nvcoll._nvcoll import Fabric, InvalidArgument
from nvcoll.check.row import Row

if TYPE_CHECKING:
    from nvcoll._nvcoll import _Launch

NUMBER = r"[-+]?(?:\d{1,15}(?:\.\d{1,15})?(?:e[-+]?\d{1,3})?|nan|inf)"
"""A number as tools print it."""

UNREAL = "a number is negative, too large or too small"
"""Why a row is left out."""

LIKE_OLDER = 0.15
"""The largest difference from the time of an older release of a row that may be from it. Chosen."""


@dataclass(frozen=True)
class Expected:
    """The time that a machine should take for a row; its fields are those of `Prediction`."""

    collective: str
    nbytes: int
    time_us: float
    low_us: float
    high_us: float
    trust: str
    algorithm: str = "SendRecv"
    protocol: str | None = None
    launch: _Launch = "process_per_gpu"

    @property
    def busbw(self) -> float:
        """Bytes over the time, decimal GB/s."""
        return self.nbytes / self.time_us / 1e3


@dataclass(frozen=True)
class Tool:
    """How the rows of a tool are predicted."""

    time_us: Callable[[Fabric, Row], float]
    """Raises InvalidArgument if the machine has not what the tool measures."""
    trust: str
    """The evidence for these predictions."""
    spread: float
    """The interval is from the time divided by this factor to the time multiplied by it."""
    older_us: Callable[[Fabric, Row], float] | None = None
    """The same of an older release, where a log does not show its release."""
    older: str = ""
    """The name of that release."""
    is_of_card: bool = False
    """Rows are of one network card, whatever GPUs are near."""
    is_of_some: bool = False
    """Rows are of some of the GPUs: the machine may have more."""
    least_sm: int = 0
    """The least compute capability on which the tool runs."""
    common: Mapping[str, float] = field(default_factory=dict)
    """How much more common boards are among logs of the tool than among others."""
    is_latency: bool = False
    """Rows are times, not rates."""

    def note(self, fabric: Fabric, row: Row) -> str | None:
        """Returns that a row is as of the older release, if it is."""
        if self.older_us is None or abs(row.time_us / self.older_us(fabric, row) - 1) > LIKE_OLDER:
            return None
        return f"so it is with {self.older}: {self.older_us(fabric, row):.0f} us"

    def expected(self, what: str, fabric: Fabric, row: Row) -> Expected:
        """Returns what a machine should give for a row.

        Raises:
            InvalidArgument: the machine has not what the tool measures.
        """
        time = self.time_us(fabric, row)
        if time <= 0:
            raise InvalidArgument(f"{fabric.name} sends nothing for {what}")
        high = self.spread * (max(time, self.older_us(fabric, row)) if self.older_us else time)
        return Expected(what, row.nbytes, time, time / self.spread, high, self.trust)


def at_rate(rate: Callable[[Fabric], float]) -> Callable[[Fabric, Row], float]:
    """Returns the time of a row whose bytes move at a rate of the machine, in GB/s."""
    return lambda fabric, row: row.nbytes / rate(fabric) / 1e3


def cross_node(fabric: Fabric) -> float:
    """Returns the share of a node's network cards that a GPU has, at line rate, in GB/s.

    Raises:
        InvalidArgument: the machine is one node.
    """
    rate = fabric.port_rates()[1]
    if rate is None:
        raise InvalidArgument(f"{fabric.name} has no network: pass --on with one, as --on hgx-h100x2+ib-ndr-8")
    return rate


def card(fabric: Fabric) -> float:
    """Returns the GB/s of one network card, in one direction: the slower of its port and its PCIe link.

    Raises:
        InvalidArgument: the machine has no network.
    """
    cross_node(fabric)
    kinds = {name: kind for name, kind, *_ in fabric.devices}
    first = next(name for name, kind in kinds.items() if kind == "nic")
    return min(long / max(lanes, 1) if kinds[to] == "network_switch" else long
               for source, to, _, lanes, _, long in fabric.links if source == first)  # fmt: skip
