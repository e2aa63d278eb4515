"""`sweep`: many layouts of one step on one machine, best first.

Candidates are all combinations that the rules of layouts allow, within what people use: tensor parallelism over two
nodes at most, context parallelism down to 4,096 tokens a rank, at most ten chunks that divide the layers. Each is
priced with the closed form of the pipeline, on all processors.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from html import escape
from itertools import product
from typing import Any, Final, Unpack, cast

from nvcoll._nvcoll import Fabric, InvalidArgument
from nvcoll.training.layouts import layout, options_of, words
from nvcoll.training.options import GLOBAL_BATCH, Fields, PlanOptions
from nvcoll.training.planning import Machine
from nvcoll.training.prediction import FITS, Calibration, StepTime, fit_words, with_known

TABLE_ROWS: Final = 10
"""Layouts that a notebook and a page show. Chosen."""

AT_ONCE: Final = 64
"""The layouts that are priced between two reports of progress. Chosen."""

LONG: Final = 4096
"""Tokens per context-parallel rank below which no more of them are tried. Chosen."""

CHUNKS: Final = 10
"""The most chunks of a stage that are tried. Chosen."""

MOST_TRIED: Final = 20_000
"""The most layouts of a sweep. Chosen: half a minute."""

VARIED: Final = ("tp", "pp", "vp", "cp", "ep", "dp", "micro_batch", "recompute")
"""The words of layouts that a sweep varies, unless they are given."""


@dataclass(frozen=True, repr=False)
class Candidate(StepTime):
    """A layout with its price. ``layout`` has the options of `nvcoll.training.plan`."""

    gpus: int
    layout: PlanOptions

    def __repr__(self) -> str:
        return f"<{self.words}: {self.seconds:.4g} s, {self.memory_gib:.0f} GiB, {fit_words(self.fit)}>"

    @property
    def words(self) -> str:
        """The layout in the short words of the field."""
        return words(layout(self.layout, gpus=self.gpus, sequence=1))


@dataclass(frozen=True, repr=False)
class Sweep:
    """Layouts that were priced: those that fit first, then those that are tight, each best first.

    ``refused`` counts the combinations that break a rule, by the rule.
    """

    candidates: Sequence[Candidate]
    refused: Mapping[str, int]

    def __repr__(self) -> str:
        """The number of layouts, and the best."""
        best = f", best {self.candidates[0]!r}" if self.candidates else ""
        return f"<Sweep of {len(self.candidates)} layouts{best}>"

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><td>{escape(repr(one)[1:-1])}</td></tr>" for one in self.candidates[:TABLE_ROWS])
        return f"<p>The first of {len(self.candidates)} layouts, best first</p><table>{rows}</table>"

    @classmethod
    def of(cls, found: Iterable[Candidate], refused: Mapping[str, int]) -> Sweep:
        """Puts layouts in their order."""
        order = list(FITS)
        return cls(sorted(found, key=lambda one: (order.index(str(one.fit)), one.seconds)), refused)

    def scaled(self, calibration: Calibration) -> Sweep:
        """Returns the sweep with its times scaled by a measured step."""
        return replace(self, candidates=[one.scaled(calibration.scale) for one in self.candidates])

    @property
    def best(self) -> Candidate:
        """The fastest layout that fits, or is tight if none fits.

        Raises:
            InvalidArgument: no layout fits.
        """
        if not self.candidates or self.candidates[0].fit == "too_large":
            raise InvalidArgument("no layout fits in the memory of the GPUs: use more GPUs, or a smaller micro-batch")
        return self.candidates[0]

    @property
    def pareto(self) -> list[Candidate]:
        """The layouts that no other beats in time, memory and number of GPUs at once; those that fit or are tight."""
        found: list[Candidate] = []
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
        how: arguments of `nvcoll.training.plan` that are the same for all; those of the layout that are given are not
            varied.

    Raises:
        InvalidArgument: a name is unknown, or nothing can be varied.
    """
    machine = on if isinstance(on, Machine) else Machine(on)
    requests = [machine.request(model, **free) for free in _free(machine, model, how)]
    if len(requests) > MOST_TRIED:
        raise InvalidArgument(
            f"{len(requests)} layouts are more than {MOST_TRIED}: fix one of tp, pp, cp, ep, micro_batch"
        )
    found, refused = [], dict[str, int]()
    for start in range(0, len(requests), AT_ONCE):
        some = requests[start : start + AT_ONCE]
        answers = machine.pricer.price_all([json.dumps(one) for one in some])
        for request, answer in zip(some, map(json.loads, answers), strict=True):
            if "error" in answer:
                refused[answer["error"]] = refused.get(answer["error"], 0) + 1
            else:
                found.append(candidate(machine.gpus, request["layout"], answer))
        if tell:
            tell(start + len(some), len(requests))
    return Sweep.of(found, refused)


def candidate(gpus: int, layout: Mapping[str, Any], price: dict[str, Any]) -> Candidate:
    """Returns a layout of the planner with its price."""
    row = with_known(price)
    kept = {one.name: row[one.name] for one in fields(StepTime)}
    return Candidate(**kept | {"extrapolated": tuple(row["extrapolated"])}, gpus=gpus, layout=options_of(layout))


def _powers(most: int) -> list[int]:
    return [1 << power for power in range(most.bit_length()) if 1 << power <= most]


def _free(machine: Machine, model: str | Fields, how: PlanOptions) -> Iterator[PlanOptions]:
    """Yields the options of all layouts: those given, with the words that they leave open in all combinations."""
    fixed: PlanOptions = {**how, "tp": 1, "pp": 1, "cp": 1, "ep": 1, "vp": 1, "dp": None, "schedule": None}
    request = machine.request(model, **fixed)
    dims, length = request["model"], request["layout"]["sequence"]
    experts = (dims.get("experts") or {}).get("count", 1)
    varied: dict[str, Sequence[object]] = {
        "tp": [size for size in _powers(2 * machine.pricer.domain) if dims["heads"] % size == 0],
        "pp": [size for size in range(1, dims["layers"] + 1) if machine.gpus % size == 0 and size <= 64],
        "vp": [*range(1, CHUNKS + 1)],
        "cp": [size for size in _powers(16) if size == 1 or length // size >= LONG],
        "ep": [size for size in _powers(64) if experts % size == 0],
        "micro_batch": [1, 2, 4, 8],
        "recompute": ["none", "selective", "full"],
    }
    open_words = {word: values for word, values in varied.items() if word not in how}
    for values in product(*open_words.values()):
        free = cast(PlanOptions, {**how, **dict(zip(open_words, values, strict=True))})
        if _can_be(machine.gpus, dims, free):
            yield free


def _divides(layers: int, chunks: int) -> bool:
    """Says whether chunks divide the layers, or the layers with embedding and head."""
    return layers % chunks == 0 or (layers + 2) % chunks == 0


def _can_be(gpus: int, model: Fields, how: PlanOptions) -> bool:
    """Says whether a combination keeps the simple rules, so that the planner need not refuse it."""
    tp, pp, cp, vp = how.get("tp", 1), how.get("pp", 1), how.get("cp", 1), how.get("vp", 1)
    if gpus % (tp * pp * cp) or (vp > 1 and (pp == 1 or not _divides(model["layers"], pp * vp))):
        return False
    dp = gpus // (tp * pp * cp)
    each, batch = dp * how.get("micro_batch", 1), how.get("global_batch", GLOBAL_BATCH)
    if batch % each or (dp * cp * tp) % how.get("ep", 1) or how.get("dp", dp) not in (dp, None):
        return False
    if vp == 1 and how.get("schedule") == "interleaved":
        return False
    micro_batches = batch // each
    return (vp == 1 or micro_batches % pp == 0) and micro_batches >= min(pp, 2)
