"""Judges predictions of training steps on published runs, and fits their constants.

    python tools/training/steps.py           prints errors with each source left out: constants are fitted without it
    python tools/training/steps.py --worst   and the rows that are predicted worst
    python tools/training/steps.py --memory  which runs fit, and names those that are judged wrongly
    python tools/training/steps.py --write   fits, writes constants.toml, intervals.toml, data/training-steps/folds.toml

Score: the median of |predicted / measured - 1| of the time of a step, by source; then the mean over the sources with
five rows or more. Time, never MFU: sources count FLOPs differently. Sweeps: the rank correlation (Spearman) of layouts
of the same model, GPUs, batch and sequence, and what the layout called best loses to the truly best.
Folds leave constants out, not structure, which was chosen on the same rows: read them as the error for a new source
whose software has a row.

Fit: least squares of log(predicted / measured) with a soft L1 loss, so that medians count; sources of many rows weigh
as their square root. Priors are wide: physics or a round number.

Needs scipy. The table takes half a minute, a fit minutes; `--jobs` fits in several processes.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from nvcoll._nvcoll import Fabric, InvalidArgument, StepPrediction, WorkStep, fabric, training_constants
from nvcoll.training.models import software_of
from nvcoll.training.planning import Machine

from training_rows import DATA, Published, failed, machine, published

ROOT = Path(__file__).parents[2]
STEP = ROOT / "rust" / "nvcoll-step" / "src" / "data"
FOLDS = ROOT / "data" / "training-steps" / "folds.toml"

PRIORS = {
    "gemm.volta": (0.75, 0.12),
    "gemm.ampere": (0.80, 0.12),
    "gemm.hopper": (0.75, 0.12),
    "gemm.blackwell": (0.68, 0.15),
    "gemm.blackwell_ultra": (0.70, 0.15),
    "gemm_fp8": (0.95, 0.1),
    "gemm_fp4": (0.75, 0.15),
    "gemm_loss": (150.0, 0.5),
    "grouped": (3.0, 0.5),
    "attention": (0.9, 0.15),
    "score_bytes": (33.0, 0.3),
    "elementwise.ampere": (1.2, 0.3),
    "elementwise.hopper": (1.3, 0.3),
    "elementwise.blackwell": (1.3, 0.3),
    "tiles_exposed": (0.3, 0.5),
    "data_exposed": (0.35, 0.5),
    "contention": (0.25, 0.3),
    "network": (1.0, 0.25),
    "all_to_all": (0.8, 0.4),
}
"""Expected value and spread (of the logarithm) of each constant that is fitted. The others are chosen."""

AS = {"elementwise.volta": "elementwise.ampere", "elementwise.blackwell_ultra": "elementwise.blackwell"}
"""Constants that no row fixes, and the one whose value they take."""

SCALE = 0.06
"""The error at which the loss turns from square to linear. Chosen: the noise of runs."""

LEAST_ROWS = 5
"""The least rows of a source that counts in means, and the least layouts of a sweep."""

Keep = Callable[["Judged"], bool]

CHECKS = ("torchtitan", "aleph_layouts", "vtrain_single")
"""Sources that judge and are never fitted; means leave them out."""

LEAST_SOURCES = 4
"""The least sources that can judge each other's intervals."""

SWEEPS = ("nanotron_ultrascale", "bigscience_bloom", "internevo", "aleph_layouts", "vtrain_single")
"""The sources that sweep layouts."""


@dataclass(frozen=True)
class Judged:
    """A published run with its machine and its step."""

    row: Published
    machine: Machine
    step: WorkStep
    layout: Mapping[str, Any]

    @property
    def price(self) -> StepPrediction:
        """The price in closed form."""
        return self.machine.pricer.predict(self.step, exact=False)

    @property
    def source(self) -> str:
        """Where it was published."""
        return self.row.source

    @property
    def words(self) -> str:
        """The step, its GPU and its layout."""
        return f"{self.step.name}, {self.device}, {self.machine.plan(self.row.model, **self.row.options).words}"

    @property
    def seconds(self) -> float:
        """The time of the step as it was measured."""
        return self.row.seconds

    @property
    def has_experts(self) -> bool:
        """Whether the model is a mixture of experts."""
        return "experts" in self.row.model

    @property
    def device(self) -> str:
        """The name of the GPU."""
        return self.row.gpu

    @property
    def alike(self) -> tuple[str, ...]:
        """What one measured run says something about."""
        return self.source, self.row.model["name"], self.device, self.layout["dtype"], self.row.software


UNSEEN = {
    "host_experts": 1.0, "expert_casts": 1.0, "grouped_loss": 1.0, "overlaps_sharded": True, "elementwise": 1.6,
    "launch_us": 21.0, "host_added_ms": 0.0, "host_pipelined_ms": 0.0, "ring_over_nodes_us": 0.0, "host_gather_ms": 0.0,
    "stall": None,
}  # fmt: skip
"""What fields of software are that were found in its runs, if nobody has seen these."""


def _unseen(row: Published) -> Published:
    """Returns a run as it is planned by someone who has seen no run of its software."""
    of_runs = software_of(row.software)["from_runs"]
    found = {name: value for name, value in row.overrides.items() if name not in UNSEEN or name == "elementwise"}
    return replace(row, overrides={**{name: UNSEEN[name] for name in of_runs}, **found})


@cache
def planned(*, is_unseen: bool = False) -> list[Judged]:
    """Returns the published runs with their machines and steps; unseen: with nothing that their runs showed."""
    machines: dict[str, Machine] = {}
    found = []
    for row in map(_unseen, published()) if is_unseen else published():
        key = json.dumps([row.machine, row.change, row.gpus, row.gpu, list(map(dict, row.measured))])
        if key not in machines:
            machines[key] = Machine(_changed(row), row.gpus, measured=row.measured)
        machine = machines[key]
        try:
            price = machine.plan(row.model, **row.options)
        except InvalidArgument as error:
            raise SystemExit(f"{row.id}: {error}") from None
        found.append(Judged(row, machine, price.step, {**price.layout, "gpus": row.gpus}))
    return found


def _changed(row: Published) -> Fabric:
    machine = fabric(row.machine)
    if row.gpu != machine.gpu_model.name:
        machine = machine.what_if(f"gpu {row.gpu}")
    return machine.what_if(row.change) if row.change else machine


def predicted(
    constants: Mapping[str, float], only: Iterable[int] | None = None, *, is_unseen: bool = False
) -> np.ndarray:
    """Returns seconds of steps under constants."""
    every = planned(is_unseen=is_unseen)
    some = every if only is None else [every[nth] for nth in only]
    return np.array([one.machine.pricer.seconds(one.step, dict(constants)) for one in some])


def values(spreads: np.ndarray) -> dict[str, float]:
    """Returns constants from the logarithms of what they are times their priors."""
    priors = zip(PRIORS.items(), spreads, strict=True)
    found = {name: prior * float(np.exp(spread)) for (name, (prior, _)), spread in priors}
    return found | {name: found[as_] for name, as_ in AS.items()}


def fit(without: str | None = None, start: np.ndarray | None = None) -> np.ndarray:
    """Fits to the rows of all sources but one; returns logarithms of constants in priors."""
    from scipy.optimize import least_squares

    rows = planned()
    used = [nth for nth, row in enumerate(rows) if row.source not in (without, *CHECKS)]
    counts = Counter(rows[nth].source for nth in used)
    weights = np.array([3 / np.sqrt(max(counts[rows[nth].source], 4)) for nth in used])
    measured = np.log([rows[nth].seconds for nth in used])
    widths = np.array([spread for _, spread in PRIORS.values()])

    def residuals(spreads: np.ndarray) -> np.ndarray:
        error = (np.log(predicted(values(spreads), used)) - measured) / SCALE
        soft = np.sign(error) * np.sqrt(2 * (np.sqrt(1 + error**2) - 1))
        return np.concatenate([soft * weights, 0.7 * spreads / widths])

    begin = np.zeros(len(PRIORS)) if start is None else start
    return least_squares(residuals, begin, max_nfev=15, x_scale=0.1, diff_step=1e-3, xtol=1e-4, ftol=1e-5).x


def _fold(job: tuple[str, np.ndarray]) -> tuple[str, np.ndarray]:
    source, start = job
    return source, fit(source, start)


def folds() -> dict[str, dict[str, float]]:
    """Returns the constants that were fitted without each source."""
    return {row["without"]: row["constants"] for row in tomllib.loads(FOLDS.read_text())["fold"]}


def left_out(*, is_unseen: bool = False) -> np.ndarray:
    """Returns seconds of steps, each under constants that were fitted without its source; checks are in no fit."""
    known, found = folds(), np.zeros(len(planned()))
    for source in {one.source for one in planned()}:
        of_source = [nth for nth, one in enumerate(planned()) if one.source == source]
        found[of_source] = predicted(known.get(source, {}), of_source, is_unseen=is_unseen)
    return found


def six_n_d() -> np.ndarray:
    """Returns seconds by 6 FLOPs per active parameter and token at 40 % of the peak of the step's precision."""
    found = []
    for one in planned():
        price = one.price
        found.append(_six_n_d(one) / (0.4 * price.tflops * 1e12 / price.mfu))
    return np.array(found)


def one_mfu() -> np.ndarray:
    """Returns seconds by one FLOP rate per GPU family and precision: the median of the other sources."""
    flops = np.array([_six_n_d(one) for one in planned()])
    rates = flops / np.array([one.seconds for one in planned()])
    families = defaultdict(lambda: defaultdict(list))
    for one, rate in zip(planned(), rates, strict=True):
        families[one.device[:2], one.layout["dtype"]][one.source].append(rate)
    found = []
    for one, need in zip(planned(), flops, strict=True):
        by_source = families[one.device[:2], one.layout["dtype"]]
        others = [np.median(some) for source, some in by_source.items() if source != one.source]
        found.append(need / np.median(others or [np.median(by_source[one.source])]))
    return np.array(found)


def _six_n_d(one: Judged) -> float:
    """Returns 6 FLOPs per active parameter and token of a GPU."""
    model, experts = one.row.model, one.row.model.get("experts") or {}
    hidden, width = model["hidden"], 3 if model["gated"] else 2
    dense = width * hidden * model["ffn"]
    routed = width * hidden * experts.get("ffn", 0) * (experts.get("top_k", 0) + experts.get("shared", 0))
    with_experts = (model["layers"] - experts.get("dense_layers", 0)) // experts.get("every", 1) if experts else 0
    attention = hidden * model["head_dim"] * (2 * model["heads"] + 2 * model["kv_heads"])
    layers = model["layers"] * attention + (model["layers"] - with_experts) * dense + with_experts * routed
    tokens = one.layout["global_batch"] * one.layout["sequence"]
    return 6 * (layers + hidden * model["vocab"]) * tokens / one.layout["gpus"]


def errors(seconds: np.ndarray, keep: Keep = lambda one: True) -> dict[str, list[float]]:
    """Returns relative errors by source."""
    found = defaultdict(list)
    for one, time in zip(planned(), seconds, strict=True):
        if keep(one):
            found[one.source].append(time / one.seconds - 1)
    return found


def macro(seconds: np.ndarray, keep: Keep = lambda one: True) -> float:
    """Returns the mean over sources of the median |error|, in percent."""
    known = [
        np.median(np.abs(some))
        for source, some in errors(seconds, keep).items()
        if len(some) >= LEAST_ROWS and source not in CHECKS
    ]
    return 100 * float(np.mean(known))


def is_dense_of_two(row: Judged) -> bool:
    """Says whether a row is a dense model on A100 or H100."""
    return not row.has_experts and row.device.startswith(("a100", "h100"))


def spearman(one: Sequence[float], other: Sequence[float]) -> float:
    """Returns the rank correlation."""
    ranks = [np.argsort(np.argsort(some)) for some in (one, other)]
    return float(np.corrcoef(*ranks)[0, 1])


def swept(seconds: np.ndarray) -> dict[str, list[tuple[float, float, int]]]:
    """Returns each sweep by source: rank correlation, loss of the layout called best in percent, number of layouts."""
    sweeps = defaultdict(lambda: defaultdict(list))
    for nth, one in enumerate(planned()):
        if one.source in SWEEPS:
            same = [one.layout[name] for name in ("gpus", "global_batch", "sequence", "dtype")]
            own = {**one.layout, **one.row.overrides}
            sweeps[one.source, one.row.model["name"], *same][json.dumps(own, sort_keys=True)].append(nth)
    found = defaultdict(list)
    for (source, *_), layouts in sweeps.items():
        if len(layouts) >= LEAST_ROWS:
            took = [float(np.median([planned()[nth].seconds for nth in some])) for some in layouts.values()]
            said = [float(np.median(seconds[some])) for some in layouts.values()]
            loss = 100 * (took[int(np.argmin(said))] / min(took) - 1)
            found[source].append((spearman(took, said), loss, len(layouts)))
    return found


def calibrated(seconds: np.ndarray, trusted: float = 0.5) -> float:
    """Returns the macro error of rows if one other run of the same model, GPU, precision and framework was measured."""
    groups = defaultdict(list)
    for one, time in zip(planned(), seconds, strict=True):
        groups[one.alike].append(np.log(one.seconds / time))
    by_source = defaultdict(list)
    for (source, *_), logs in groups.items():
        for nth, log in enumerate(logs):
            others = [np.exp(-(log - trusted * other)) - 1 for at, other in enumerate(logs) if at != nth]
            by_source[source] += [abs(one) for one in others]
    return 100 * float(np.mean([np.median(some) for some in by_source.values() if len(some) >= LEAST_ROWS]))


def show(title: str, seconds: np.ndarray) -> None:
    """Prints the table of errors by source."""
    print(f"\n{title}\n{'source':24} {'rows':>5} {'median %':>9} {'bias %':>7} {'90 % below':>11}")
    for source, some in sorted(errors(seconds).items(), key=lambda one: -len(one[1])):
        size = np.abs(some)
        print(f"{source:24} {len(some):5} {100 * np.median(size):9.1f} {100 * np.median(some):+7.1f}", end="")
        print(f" {100 * np.quantile(size, 0.9):11.1f}")
    line(title, seconds)
    for source, sweeps in swept(seconds).items():
        ranks, losses, _ = zip(*sweeps, strict=True)
        print(f"{source}: {len(sweeps)} sweeps, Spearman median {np.median(ranks):.3f}", end="")
        print(f", the layout called best loses {np.median(losses):.1f} % (median), {np.mean(losses):.1f} % (mean)")
    print(f"calibrated by one other run: {calibrated(seconds):.1f} %")


def line(title: str, seconds: np.ndarray) -> None:
    """Prints the aims in one line."""
    experts = macro(seconds, lambda row: row.has_experts)
    print(f"{title}: macro {macro(seconds):.1f} %, ", end="")
    print(f"dense on A100 and H100 {macro(seconds, is_dense_of_two):.1f} %, experts {experts:.1f} %")


def fullest(price: StepPrediction) -> tuple[float, float]:
    """Returns GB of the fullest GPU, and those that the framework's allocator has of it."""
    tables = price.memory or []
    beside = [sum(one.lines.get(name, 0.0) for name in ("nccl", "context")) for one in tables]
    allocators = [sum(one.lines.values()) - other for one, other in zip(tables, beside, strict=True)]
    return price.memory_gib or 0.0, max(allocators) / 2**30


@dataclass(frozen=True)
class Judgement:
    """What is said of the memory of a run; a layout that is impossible has no price."""

    run: str
    source: str
    words: str
    price: StepPrediction | None

    @property
    def fit(self) -> str:
        """Whether it fits."""
        return (self.price.fit if self.price else None) or "too_large"

    @property
    def part(self) -> float:
        """The part of the GPU's memory that it needs; infinite if the layout is impossible."""
        return (self.price.memory_gib or 0.0) / (self.price.gpu_memory_gib or 1.0) if self.price else float("inf")


@cache
def of_ran() -> list[Judgement]:
    """Returns what is said of the runs that ran."""
    return [Judgement(one.row.id, one.source, one.words, one.price) for one in planned()]


@cache
def of_failed() -> list[Judgement]:
    """Returns what is said of the runs that failed."""
    machines = {gpus: Machine(machine(system, gpus)) for gpus, system in {(row.gpus, row.system) for row in failed()}}
    found = []
    for row in failed():
        try:
            price = machines[row.gpus].predict(row.step())
        except InvalidArgument:
            price = None
        found.append(Judgement(row.id, "failed", f"{row.name} on {row.gpus} GPUs", price))
    return found


def of_measured() -> dict[str, list[float]]:
    """Returns predicted over measured memory by source: of PyTorch for nanotron, of nvidia-smi for BLOOM."""
    found = defaultdict(list)
    machines: dict[int, Machine] = {}
    for row in [*published(DATA / "nanotron-full.csv"), *published()]:
        is_bloom = row.source == "bigscience_bloom"
        if row.memory_gb and (is_bloom or row.id.startswith("nanotron-full")):
            if row.gpus not in machines:
                machines[row.gpus] = Machine(row.machine, row.gpus)
            on = machines[row.gpus]
            together, allocated = fullest(on.plan(row.model, **row.options))
            found[row.source].append((together if is_bloom else allocated) / row.memory_gb)
            if not is_bloom:
                kept = fullest(on.plan(row.model, **row.options | {"overrides": {"keeps_gathered": True}}))[1]
                nearer = min(allocated, kept, key=lambda one: abs(np.log(one / row.memory_gb)))
                found["the nearer of 2 settings"].append(nearer / row.memory_gb)
    return found


def memory(names: bool) -> None:
    """Prints how many of the runs that ran, and of those that failed, are said to fit; errors where GB are known."""
    fits = defaultdict(Counter)
    for one in of_ran():
        fits[one.source][one.fit] += 1
    print("\nmemory of runs that ran")
    for source, some in [*fits.items(), ("all", sum(fits.values(), Counter()))]:
        shares = (f"{name} {100 * some[name] / some.total():.0f} %" for name in ("fits", "tight", "too_large"))
        print(f"{source:24} {', '.join(shares)}")
    print("\nmemory of runs that failed")
    large = [one for one in of_failed() if one.part > 0.5]
    for name, runs in (("all", of_failed()), ("above half of the GPU's", large)):
        some = Counter(one.fit for one in runs)
        shares = (f"{word} {100 * some[word] / some.total():.0f} %" for word in ("too_large", "tight", "fits"))
        print(f"{name:24} {', '.join(shares)}")
    print("\nmemory, predicted / measured")
    for source, ratios in of_measured().items():
        low, median, high = np.quantile(ratios, (0.05, 0.5, 0.95))
        size = 100 * np.median(np.abs(np.array(ratios) - 1))
        print(f"{source:24} {len(ratios)} runs, |error| {size:.0f} %, ratio {median:.2f} ({low:.2f} to {high:.2f})")
    if names:
        named("ran, and are said not to fit", [one for one in of_ran() if one.fit == "too_large"])
        named("failed, need half of a GPU or more, and are said to fit", [one for one in large if one.fit == "fits"])


def named(title: str, wrong: list[Judgement]) -> None:
    """Prints the runs that are judged wrongly, those of one layout in a line."""
    print(f"\n{len(wrong)} runs that {title}")
    alike = defaultdict(list)
    for one in wrong:
        alike[one.words, f"{100 * one.part:.0f} % of {one.price.gpu_memory_gib:.0f} GB" if one.price else ""].append(
            one
        )
    for (words, part), some in alike.items():
        print(f"{part:16} {words}: {', '.join(one.run for one in some)}")


def worst(seconds: np.ndarray, count: int) -> None:
    """Prints the rows that are predicted worst, one for each model, GPU and source."""
    print("\nworst rows")
    seen = set()
    order = sorted(range(len(planned())), key=lambda nth: -abs(np.log(seconds[nth] / planned()[nth].seconds)))
    for nth in order:
        one = planned()[nth]
        if one.alike in seen or len(seen) >= count:
            continue
        seen.add(one.alike)
        parts = one.price.parts
        largest = sorted(parts.items(), key=lambda part: -part[1])[:3]
        shares = ", ".join(f"{name} {100 * time / sum(parts.values()):.0f} %" for name, time in largest)
        error = 100 * (seconds[nth] / one.seconds - 1)
        print(f"{error:+5.0f} %  {one.row.id}  {one.words}: {one.seconds:.2f} s ({shares})")


def write(jobs: int) -> None:
    """Fits to all rows and without each source, and writes constants, intervals and folds."""
    best = fit()
    sources = sorted({one.source for one in planned()} - set(CHECKS))
    with multiprocessing.Pool(jobs) as pool:
        without = dict(pool.map(_fold, [(source, best) for source in sources], chunksize=1))
    text = (STEP / "constants.toml").read_text()
    shipped, ranges = values(best), [values(one) for one in without.values()]
    for name, value in shipped.items():
        lows_and_highs = [one[name] for one in ranges]
        numbers = f"value = {value:.4g}\nlow = {min(lows_and_highs):.4g}\nhigh = {max(lows_and_highs):.4g}\n"
        text = re.sub(rf'(name = "{re.escape(name)}"\n)value = .*\nlow = .*\nhigh = .*\n', rf"\g<1>{numbers}", text)
    (STEP / "constants.toml").write_text(text)
    lines = ["# Constants that were fitted without one source, written by tools/training/steps.py.\n"]
    for source, spreads in sorted(without.items()):
        rows = "".join(f'"{name}" = {value:.6g}\n' for name, value in values(spreads).items())
        lines.append(f'\n[[fold]]\nwithout = "{source}"\n\n[fold.constants]\n{rows}')
    FOLDS.write_text("".join(lines))
    write_intervals(left_out(is_unseen=True))
    write_evidence()


Ends = tuple[float, float]


def logs_of(seconds: np.ndarray, has_experts: bool) -> dict[str, np.ndarray]:
    """Returns logarithms of measured over predicted by source, checks too, of sources with rows enough."""
    logs = defaultdict(list)
    for one, time in zip(planned(), seconds, strict=True):
        if one.has_experts == has_experts:
            logs[one.source].append(np.log(one.seconds / time))
    return {source: np.array(some) for source, some in logs.items() if len(some) >= LEAST_ROWS}


def ends_of(logs: Iterable[np.ndarray], wider: float) -> Ends:
    """Returns the ends of an interval, as logarithms: the means over sources of the 5 % and 95 % quantiles, wider."""
    some = list(logs)
    low, high = (float(np.mean([np.quantile(one, part) for one in some])) for part in (0.05, 0.95))
    return wider * low, wider * high


def share_inside(logs: Mapping[str, np.ndarray], wider: float) -> float:
    """Returns the mean over sources of the share of rows inside the interval that the other sources give."""
    shares = []
    for source, own in logs.items():
        others = [some for other, some in logs.items() if other != source]
        low, high = ends_of(others or [own], wider)
        shares.append(np.mean((low <= own) & (own <= high)))
    return float(np.mean(shares))


def write_intervals(seconds: np.ndarray) -> None:
    """Writes intervals by class: the least that hold 90 % of the rows of a source if the other sources give them.

    Sources are left out with all that was found in their runs, and checks are among them. Models with experts have
    too few sources for that: the 5 % and 95 % quantiles of all their rows.
    """
    text = (STEP / "intervals.toml").read_text()
    for name, has_experts in (("dense", False), ("experts", True)):
        logs = logs_of(seconds, has_experts)
        if len(logs) < LEAST_SOURCES:
            low, high = np.quantile(np.concatenate(list(logs.values())), (0.05, 0.95))
        else:
            wider = next((one for one in np.arange(0.5, 3, 0.05) if share_inside(logs, one) >= 0.9), 3.0)
            low, high = ends_of(logs.values(), wider)
            print(f"{name}: {100 * share_inside(logs, wider):.0f} % inside the interval that other sources give")
        numbers = f"low = {np.exp(low):.2f}\nhigh = {np.exp(high):.2f}\n"
        text = re.sub(rf'(class = "{name}"\n)low = .*\nhigh = .*\n', rf"\g<1>{numbers}", text)
    (STEP / "intervals.toml").write_text(text)


def write_evidence() -> None:
    """Writes what was published: GPUs, precisions, with or without experts; the most GPUs and the longest sequence."""
    most = defaultdict(lambda: [0, 0])
    for one in planned():
        row = most[one.device, one.layout["dtype"], one.has_experts]
        row[:] = max(row[0], one.layout["gpus"]), max(row[1], one.layout["sequence"])
    lines = ["# What published runs are of, written by tools/training/steps.py.\n"]
    for (gpu, dtype, experts), (gpus, sequence) in sorted(most.items()):
        lines.append(f'\n[[evidence]]\ngpu = "{gpu}"\ndtype = "{dtype}"\nexperts = {str(experts).lower()}\n')
        lines.append(f"gpus = {gpus}\nsequence = {sequence}\n")
    (STEP / "evidence.toml").write_text("".join(lines))
    ran = sorted({one.row.software for one in planned()})
    heads = "# Software of which runs were published, written by tools/training/steps.py.\n"
    (STEP / "ran.toml").write_text(heads + "".join(f'\n[[software]]\nname = "{name}"\n' for name in ran))


def coverage(seconds: np.ndarray, *, is_unseen: bool = False) -> None:
    """Prints how many measured times lie in the 90 % interval of the prediction with the source left out."""
    inside = defaultdict(list)
    for one, time in zip(planned(is_unseen=is_unseen), seconds, strict=True):
        price = one.price
        low, high = price.low_s / price.seconds, price.high_s / price.seconds
        inside[one.source].append(low <= one.seconds / time <= high)
    shares = [np.mean(some) for some in inside.values() if len(some) >= LEAST_ROWS]
    print(f"in the 90 % interval: {100 * np.mean(shares):.0f} % of rows (mean of sources), ", end="")
    print(f"{100 * min(shares):.0f} to {100 * max(shares):.0f} % by source")


def main() -> None:
    """Reads the arguments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="fit, and write the tables")
    parser.add_argument("--worst", type=int, nargs="?", const=20, help="print so many of the worst rows")
    parser.add_argument("--jobs", type=int, default=2, help="processes that fit")
    parser.add_argument(
        "--memory", action="store_true", help="print only memory, with the runs that are judged wrongly"
    )
    asked = parser.parse_args()
    if asked.memory:
        return memory(names=True)
    if asked.write:
        write(asked.jobs)
    names = [row["name"] for row in json.loads(training_constants())]
    assert set(PRIORS) | set(AS) <= set(names), "every prior is a row of constants.toml"
    seconds = left_out()
    show("each source left out", seconds)
    line("constants as shipped, in sample", predicted({}))
    line("6ND at 40 % MFU", six_n_d())
    line("one MFU per GPU family and precision, from other sources", one_mfu())
    coverage(seconds)
    unseen = left_out(is_unseen=True)
    line("each source left out, with all that was found in its runs", unseen)
    coverage(unseen, is_unseen=True)
    memory(names=False)
    if asked.worst:
        worst(seconds, asked.worst)


if __name__ == "__main__":
    main()
