"""Fits the constants of `Fabric.predict` and prints their held-out errors.

    python tools/predict/fit.py            fits, and prints the errors
    python tools/predict/fit.py --trust    judges the constants as they are shipped, and writes trust.toml only
    python tools/predict/fit.py --write    fits, and writes constants.toml, trust.toml and data/nccl-tests/folds.toml

Least squares of log(predicted / measured) with a soft L1 loss, so that single odd systems do not pull. A system
weighs as much as any other in each band. Priors are NCCL's published constants or round numbers, with spread enough
that rows overrule them; those of the switch, of staging, of channels, of sends and of launching are round numbers that
the table suggested. Constants of one node are fitted to rows of one node first, those of networks then to rows of
several nodes.
The folds do not test the structure of the model, which was chosen on the same table. The fit to all rows is shipped.
A fit without each family gives the ranges of constants and the held-out errors.

Needs scipy. Minutes on one core; `--jobs` fits in several processes.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

import judging
import nvcoll_estimate
from intervals import KINDS, Widths, bands, kind, with_intervals
from judging import Judged, Prediction

ROOT = Path(__file__).parents[2]
DATA = ROOT / "data" / "nccl-tests"
PREDICT = ROOT / "rust" / "nvcoll-fabric" / "src" / "predict"

PRIORS = {
    "efficiency.nvlink2": (0.83, 0.05),
    "efficiency.nvlink3": (0.8, 0.05),
    "efficiency.nvlink4": (0.84, 0.05),
    "efficiency.nvlink5": (0.8, 0.05),
    "efficiency.xgmi3": (0.7, 0.1),
    "efficiency.pcie": (0.72, 0.15),
    "staged.both_ways": (0.45, 0.1),
    "staged.one_way": (0.7, 0.15),
    "start_us.ampere": (6.6, 0.4),
    "start_us.ada": (6.6, 0.4),
    "start_us.hopper": (6.6, 0.4),
    "start_us.blackwell": (6.6, 0.4),
    "spread_us.ampere": (0.3, 0.5),
    "spread_us.hopper": (0.3, 0.5),
    "spread_us.blackwell": (0.3, 0.5),
    "channel_us.volta": (1.5, 0.5),
    "channel_us.ampere": (1.3, 0.5),
    "startup_us.ampere": (12.0, 0.4),
    "startup_us.hopper": (12.0, 0.4),
    "startup_us.blackwell": (12.0, 0.4),
    "ll_gbps.ampere": (110.0, 0.4),
    "ll_gbps.hopper": (180.0, 0.4),
    "ll_gbps.blackwell": (350.0, 0.4),
    "ll_channel_gbps.ampere": (11.0, 0.4),
    "ll_channel_gbps.hopper": (14.0, 0.4),
    "ll_channel_gbps.blackwell": (15.0, 0.4),
    "ll128_channel_gbps.ampere": (8.0, 0.5),
    "ll128_channel_gbps.hopper": (14.0, 0.5),
    "ll128_channel_gbps.blackwell": (22.0, 0.5),
    "last_step.channel_gbps.ampere": (25.0, 0.4),
    "last_step.channel_gbps.hopper": (38.0, 0.4),
    "last_step.channel_gbps.blackwell": (36.0, 0.4),
    "ramp.us": (80.0, 0.4),
    "ramp.part": (0.15, 0.4),
    "hop_us.ll.nvlink.ampere": (0.9, 0.5),
    "hop_us.ll.nvlink.hopper": (0.8, 0.5),
    "hop_us.ll.nvlink.blackwell": (1.2, 0.5),
    "hop_us.simple.nvlink.ampere": (4.5, 0.5),
    "hop_us.simple.nvlink.hopper": (3.4, 0.5),
    "hop_us.simple.nvlink.blackwell": (6.0, 0.5),
    "hop_us.ll.staged": (1.5, 0.4),
    "nvls.hopper": (0.74, 0.1),
    "nvls.blackwell": (0.62, 0.1),
    "nvls.chunk_us": (0.6, 0.3),
    "nvls.fill_loops": (1.6, 0.4),
    "nvls.start_us.hopper": (14.0, 0.4),
    "nvls.start_us.blackwell": (25.0, 0.4),
    "launch.single_process_us": (7.0, 0.5),
    "launch.per_gpu_us": (3.8, 0.3),
    "launch.per_peer_us": (0.9, 0.05),
    "launch.framework_us": (13.0, 0.4),
    "network.ring": (0.85, 0.15),
    "network.tree": (0.92, 0.1),
    "network.nvlstree": (0.91, 0.1),
    "network.tree_inner": (1.05, 0.05),
    "network.ring_startup_us": (50.0, 0.7),
    "network.hop_us.ib": (1.0, 1.0),
    "network.hop_us.slingshot": (1.0, 1.0),
    "network.hop_us.roce": (1.0, 1.0),
    "network.hop_us.efa": (50.0, 0.7),
    "network.hop_us.tcp": (45.0, 0.7),
    "network.tree_ll_gbps": (20.0, 1.0),
    "network.ring_ll_channel_gbps": (8.0, 1.0),
    "network.sends": (0.85, 0.1),
    "network.nvlstree_loops": (0.7, 0.5),
    "network.channel_gbps": (20.0, 0.3),
    "network.message_us": (4.0, 0.7),
    "send.start_us.ampere": (1.2, 0.4),
    "send.start_us.hopper": (1.2, 0.4),
    "send.start_us.blackwell": (1.2, 0.4),
    "send.chunk_us.ampere": (25.0, 0.5),
    "send.chunk_us.hopper": (15.0, 0.5),
    "send.chunk_us.blackwell": (10.0, 0.5),
    "send.channel_gbps.ampere": (12.0, 0.4),
    "send.channel_gbps.hopper": (18.0, 0.4),
    "send.channel_gbps.blackwell": (21.0, 0.2),
    "send.ll_channel_gbps.ampere": (4.0, 0.4),
    "send.ll_channel_gbps.hopper": (5.5, 0.4),
    "send.ll_channel_gbps.blackwell": (5.5, 0.4),
    "send.part.ampere": (0.92, 0.1),
    "send.part.hopper": (0.9, 0.1),
    "send.part.blackwell": (0.94, 0.1),
}
"""Prior of each fitted constant: its value, and the spread of its logarithm."""

TIES = {
    "send.channel_gbps.volta": "send.channel_gbps.ampere",
    "last_step.channel_gbps.ada": "last_step.channel_gbps.hopper",
}
"""Constants without measurements, and the constants whose values they have."""

WEIGHTS = dict(zip(bands(), (1.0, 0.7, 1.5, 6.0), strict=True))
"""Weights of bands: large sizes are measured best."""

UNEXPLAINED = {
    "amd_multinode": bands()[:-1],
    "mnnvl_multi_rack": bands()[:-1],
    "multinode_efa": bands()[1:2],
    "multinode_slingshot": bands()[1:3],
}
"""Bands of classes that are left out of the fit, not of the errors. Calls of the first two take up to 6 times the
prediction. EFA: calls of 64 KiB to 1 MiB are predicted with LL, which its plugin calls unsafe. Slingshot: its messages
wait for the receiver, by rules that no description has.
"""

ODD_FAMILIES = {"thomaslie"}
"""Families that are left out of the fit, not of the errors: GPUs and cards that reach each other through host bridges
and sockets, of which the processor passes on half as much as others.
"""

TRUST_HEAD = """\
# What the table of measurements says of the closed forms. Written by tools/predict/fit.py.
#
# A cell is a class of systems, all_reduce or other collectives, and a band of sizes: <= 64 KiB, to 1 MiB, to 128 MiB,
# above.
#
# systems  the systems of the cell with healthy rows, per band
# nodes    the least and the largest number of nodes of these systems
# limits   what joins the GPUs of their nodes, and what takes most of the time of their calls
# factor   90 % of measurements lie between the time over it and the time times it; systems weigh equal, and each was
#          predicted by constants that were fitted without its family
#
# A band in which fewer than five systems of the class were measured is not validated. It borrows the wider factor of
# its scope (one node, a rack, several nodes), in which classes weigh equal, and of other collectives of its class. A
# band of fewer than nine systems is at least as wide as its scope."""

PRIOR_WEIGHT, SOFT, STEP = 0.3, 0.05, 1e-3
"""Weight of a prior relative to a system; error at which the loss turns from squares to absolute values; the step of
slopes, in logarithms."""


class Problem:
    """Rows to which constants are fitted."""

    def __init__(self, rows: Sequence[judging.Row]) -> None:
        self.groups = nvcoll_estimate.calls(rows)
        self.names = list(PRIORS)
        self.logs = [np.log([row.time_us for row in group.rows]) for group in self.groups]
        counts: dict[tuple[str, bool, str], int] = defaultdict(int)
        for group in self.groups:
            for row in group.rows:
                counts[cell(row)] += 1
        self.weights = [
            np.array([weight(row) / math.sqrt(counts[cell(row)]) for row in group.rows]) for group in self.groups
        ]
        self.prior = np.log([PRIORS[name][0] for name in self.names])
        self.spread = np.array([PRIORS[name][1] for name in self.names])
        self.acting = self._acting()

    def _acting(self) -> list[set[int]]:
        """Finds, for each group, the constants on which its times depend, at the priors and beside them."""
        found: list[set[int]] = [set() for _ in self.groups]
        for nudge in (-0.2, 0.0, 0.2):
            start = self.prior + nudge * self.spread
            base = [group.times(self.constants(start)) for group in self.groups]
            for name in range(len(self.names)):
                moved = start.copy()
                moved[name] += 0.3
                constants = self.constants(moved)
                for at, group in enumerate(self.groups):
                    if group.times(constants) != base[at]:
                        found[at].add(name)
        return found

    def constants(self, logs: np.ndarray) -> dict[str, float]:
        """Names values."""
        values = dict(zip(self.names, map(float, np.exp(logs)), strict=True))
        return values | {name: values[other] for name, other in TIES.items()}

    def fit(self, logs: np.ndarray, without: str | None, rounds: tuple[int, int]) -> np.ndarray:
        """Fits what belongs to one node, then what belongs to networks."""
        for is_network, most in zip((False, True), rounds, strict=True):
            members = [
                at
                for at, group in enumerate(self.groups)
                if (group.system.scope == "several nodes") == is_network and group.system.family != without
            ]
            others = sum((group.system.scope == "several nodes") == is_network for group in self.groups) > len(members)
            if without and not is_network and not others:
                continue  # no row of one node is left out
            free = np.array([at for at, name in enumerate(self.names) if is_of_networks(name) == is_network])
            logs = self._fit(logs, free, members, most)
        return logs

    def _fit(self, start: np.ndarray, free: np.ndarray, members: Sequence[int], most: int) -> np.ndarray:
        rows = np.cumsum([0, *(len(self.logs[at]) for at in members)])

        def errors(values: np.ndarray, at: int) -> np.ndarray:
            logs = start.copy()
            logs[free] = values
            return self.weights[at] * (np.log(self.groups[at].times(self.constants(logs))) - self.logs[at])

        def residuals(values: np.ndarray) -> np.ndarray:
            priors = PRIOR_WEIGHT * (values - self.prior[free]) / self.spread[free]
            return np.concatenate([*(errors(values, at) for at in members), priors])

        def slopes(values: np.ndarray) -> np.ndarray:
            """Differences of the groups on whose times a constant acts."""
            base = residuals(values)
            found = np.zeros((len(base), len(free)))
            for column, name in enumerate(free):
                moved = values.copy()
                moved[column] += STEP
                for place, at in enumerate(members):
                    if name in self.acting[at]:
                        part = slice(rows[place], rows[place + 1])
                        found[part, column] = (errors(moved, at) - base[part]) / STEP
                found[rows[-1] + column, column] = PRIOR_WEIGHT / self.spread[name]
            return found

        found = least_squares(residuals, start[free], jac=slopes, loss="soft_l1", f_scale=SOFT, max_nfev=most)
        fitted = start.copy()
        fitted[free] = found.x
        return fitted


def is_of_networks(name: str) -> bool:
    """Says whether a constant is fitted to rows of several nodes."""
    return "network" in name


def cell(row: judging.Row) -> tuple[str, bool, str]:
    """Returns the key of the rows that share the weight of a system."""
    return row.system.system_id, row.collective == "all_reduce", row.band


def weight(row: judging.Row) -> float:
    """Returns the weight of a row by its band."""
    is_odd = row.system.family in ODD_FAMILIES or row.band in UNEXPLAINED.get(row.system.fabric_class, ())
    return 0.0 if is_odd else WEIGHTS[row.band]


def judged(problem: Problem, of_family: Mapping[str, Mapping[str, float]]) -> list[Judged]:
    """Predicts every row by the constants of its family."""
    return [
        Judged(row, Prediction(time))
        for group in problem.groups
        for row, time in zip(group.rows, group.times(of_family[group.system.family]), strict=True)
    ]


def summary(found: Sequence[Judged]) -> str:
    """Writes the short table."""
    lines = []
    for key, one in judging.cells(with_intervals(found), judging.by_scope).items():
        covered = "" if one.coverage is None else f"  in {one.coverage * 100:.0f} %"
        figures = f"{one.median * 100:6.1f} {one.p90 * 100:6.1f} {one.bias * 100:+6.1f}{covered}"
        lines.append("{:32} {:11} {:15} {:3d} ".format(*key, one.systems) + figures)
    return "\n".join(lines)


def rounded(value: float) -> float:
    """Rounds to four digits."""
    return float(f"{value:.4g}")


def write_constants(shipped: Mapping[str, float], of_family: Mapping[str, Mapping[str, float]]) -> None:
    """Writes values and ranges into constants.toml and keeps its other lines."""
    path = PREDICT / "constants.toml"
    text = path.read_text(encoding="utf-8")
    for name, value in shipped.items():
        over = [values[name] for values in of_family.values()] + [value]
        numbers = {"value": value, "low": min(over), "high": max(over)}
        start = text.index(f'name = "{name}"')
        end = text.index("source", start)
        row = text[start:end]
        for key, number in numbers.items():
            row = re.sub(rf"^{key} = .*$", f"{key} = {rounded(number)!r}", row, flags=re.MULTILINE)
        text = text[:start] + row + text[end:]
    path.write_text(text, encoding="utf-8")


def write_folds(shipped: Mapping[str, float], of_family: Mapping[str, Mapping[str, float]]) -> None:
    """Writes, for each family, the constants that differ without it."""
    lines = ["# For each family of systems, the constants that were fitted without it, where they differ from the"]
    lines += [
        "# shipped ones. `python tools/predict/validate.py` judges its rows by them. tools/predict/fit.py wrote this."
    ]
    for family, values in sorted(of_family.items()):
        lines += ["", "[[fold]]", f'family = "{family}"', "[fold.constants]"]
        differs = {name: rounded(value) for name, value in values.items() if rounded(value) != rounded(shipped[name])}
        lines += [f'"{name}" = {value!r}' for name, value in differs.items()]
    (DATA / "folds.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


Measured = dict[tuple[str, str, str], tuple[set[int], set[str]]]
"""Of a cell: the numbers of nodes of its systems, and the limits of their calls."""


def measured(groups: Sequence[nvcoll_estimate.Calls]) -> Measured:
    """Finds the numbers of nodes and the limits that rows of each cell have."""
    found: Measured = defaultdict(lambda: (set(), set()))
    for group in groups:
        for row, limit in zip(group.rows, group.trial.limits(), strict=True):
            nodes, limits = found[group.system.fabric_class, kind(row.collective), row.band]
            nodes.add(group.trial.nodes)
            limits.add(limit)
    return found


def write_trust(found: Sequence[Judged], groups: Sequence[nvcoll_estimate.Calls]) -> None:
    """Writes the factors of intervals, and what was measured of the systems on which they stand."""
    path = PREDICT / "trust.toml"
    widths, lines, seen = Widths.of(found), [TRUST_HEAD], measured(groups)
    classes = {item.row.system.fabric_class: item.row.system.scope for item in found}
    for name, scope in sorted(classes.items()):
        for of in KINDS:
            cells = [seen[name, of, band] for band in bands()]
            factors = [round(widths.factor(name, scope, of, band), 3) for band in bands()]
            systems = [widths.systems.get((name, of, band), 0) for band in bands()]
            nodes = [[min(counts), max(counts)] if counts else [0, 0] for counts, _ in cells]
            lines += ["", "[[class]]", f'name = "{name}"', f'collective = "{of}"', f"systems = {systems}"]
            lines += [f"nodes = {nodes}", "limits = ["]
            lines += [f"  {json.dumps(sorted(limits))}," for _, limits in cells]
            lines += ["]", f"factor = {factors}"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def without_each(problem: Problem, logs: np.ndarray, rounds: tuple[int, int], jobs: int) -> dict[str, dict[str, float]]:
    """Fits without each family. Processes take families in turn and inherit the problem."""
    families = sorted({group.system.family for group in problem.groups})
    context = multiprocessing.get_context("fork")
    found = context.SimpleQueue()

    def some(first: int) -> None:
        found.put({one: problem.constants(problem.fit(logs, one, rounds)) for one in families[first::jobs]})

    workers = [context.Process(target=some, args=(first,)) for first in range(jobs)]
    for worker in workers:
        worker.start()
    parts = [found.get() for _ in workers]
    return {family: values for part in parts for family, values in part.items()}


def main() -> None:
    """Fits, judges and, if asked, writes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the tables")
    parser.add_argument("--trust", action="store_true", help="write trust.toml only, with the constants as shipped")
    parser.add_argument("--jobs", type=int, default=1, help="processes that fit")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: to see whether an effect helps")
    arguments = parser.parse_args()
    problem = Problem(judging.healthy(judging.read(DATA)))
    if arguments.trust:
        folds = nvcoll_estimate.folds(DATA / "folds.toml")
        found = judged(problem, folds)
        print(summary(found))
        for group in problem.groups:
            group.times({})
        write_trust(found, problem.groups)
        return
    all_rounds, fold_rounds = ((20, 15), (5, 4)) if arguments.quick else ((80, 50), (14, 10))
    logs = problem.fit(problem.prior.copy(), None, all_rounds)
    shipped = problem.constants(logs)
    of_family = without_each(problem, logs, fold_rounds, arguments.jobs)
    everything = dict.fromkeys(of_family, shipped)
    for title, constants in (("fitted on all", everything), ("left out", of_family)):
        print(title)
        print(summary(judged(problem, constants)), flush=True)
    for name, value in shipped.items():
        low, high = (end((values[name], family) for family, values in of_family.items()) for end in (min, max))
        print(f"{name:28} {value:9.4g}   {low[0]:9.4g} ({low[1]}) .. {high[0]:9.4g} ({high[1]})")
    if arguments.write:
        write_constants(shipped, of_family)
        write_folds(shipped, of_family)
        for group in problem.groups:
            group.times(shipped)
        write_trust(judged(problem, of_family), problem.groups)


if __name__ == "__main__":
    main()
