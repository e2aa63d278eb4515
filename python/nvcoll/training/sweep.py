"""`sweep`: many layouts of one step on one machine, best first; `neighbours`: the layouts next to one.

Rust has the rules of layouts, and knows which are tried. Each is priced with the closed form of the pipeline, on all
processors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Final, Unpack

from nvcoll._nvcoll import Calibration, Fabric, InvalidArgument, StepPrediction
from nvcoll.training.options import Fields, PlanOptions
from nvcoll.training.planning import Machine, asked
from nvcoll.training.prediction import FITS

TABLE_ROWS: Final = 10
"""Layouts that a notebook and a page show. Chosen."""

VARIED: Final = ("tp", "pp", "vp", "cp", "ep", "dp", "micro_batch", "recompute")
"""The words of layouts that a sweep varies, unless they are given."""


@dataclass(frozen=True, repr=False)
class Sweep:
    """Layouts that were priced: first layouts that fit, then tight ones, each best first.

    ``refused`` counts the combinations that break a rule, by the rule.
    """

    candidates: Sequence[StepPrediction]
    refused: Mapping[str, int]

    def __repr__(self) -> str:
        """The number of layouts, and the best."""
        best = f", best {self.candidates[0]!r}" if self.candidates else ""
        return f"<Sweep of {len(self.candidates)} layouts{best}>"

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><td>{escape(repr(one)[1:-1])}</td></tr>" for one in self.candidates[:TABLE_ROWS])
        return f"<p>The first of {len(self.candidates)} layouts, best first</p><table>{rows}</table>"

    @classmethod
    def of(cls, found: Iterable[StepPrediction], refused: Mapping[str, int]) -> Sweep:
        """Puts layouts in their order."""
        order = list(FITS)
        return cls(sorted(found, key=lambda one: (order.index(str(one.fit)), one.seconds)), refused)

    def scaled(self, calibration: Calibration) -> Sweep:
        """Returns the sweep with its times scaled by a measured step."""
        return replace(self, candidates=[one.scaled(calibration.scale) for one in self.candidates])

    @property
    def best(self) -> StepPrediction:
        """The fastest layout that fits, or is tight if none fits.

        Raises:
            InvalidArgument: no layout fits.
        """
        if not self.candidates or self.candidates[0].fit == "too_large":
            raise InvalidArgument("no layout fits in memory: use more GPUs, or a smaller micro-batch")
        return self.candidates[0]

    @property
    def pareto(self) -> list[StepPrediction]:
        """The layouts that no other beats in time, memory and number of GPUs at once; all fit or are tight."""
        found: list[StepPrediction] = []
        for one in sorted(self.candidates, key=lambda one: (one.seconds, one.memory_gib, one.gpus)):
            beaten = any(other.memory_gib <= one.memory_gib and other.gpus <= one.gpus for other in found)
            if one.fit != "too_large" and not beaten:
                found.append(one)
        return found


def sweep(
    model: str | Fields,
    on: Machine | str | Fabric,
    *,
    tell: Callable[[int, int], None] | None = None,
    **how: Unpack[PlanOptions],
) -> Sweep:
    """Prices all usual layouts of a step.

    Args:
        model: as of `nvcoll.training.plan`.
        on: the machine, or its name; all its ``gpus`` are used.
        tell: is called with the numbers of layouts priced and to price.
        how: arguments of `nvcoll.training.plan` that are the same for all; sizes of the layout that are given are not
            varied.

    Raises:
        InvalidArgument: a name is unknown, or nothing can be varied.
    """
    machine = on if isinstance(on, Machine) else Machine(on)
    found, refused = machine.pricer.sweep(asked(model, how), tell)
    return Sweep.of(found, Counter(refused))


def neighbours(machine: Machine, prediction: StepPrediction) -> list[StepPrediction]:
    """Returns the layouts next to a prediction's that are possible, fit or are tight, and are faster; best first.

    One thing differs: a size is doubled or halved, or chunks, recomputation or sharding are others; data parallelism
    takes the GPUs that are left. If the layout does not fit, slower ones that fit are returned, too.

    Args:
        machine: the machine of the prediction.
        prediction: a prediction of `nvcoll.training.plan`.
    """
    return machine.pricer.neighbours(prediction)
