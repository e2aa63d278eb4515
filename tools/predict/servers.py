"""Fits the kernels of model servers for all_reduce, and prints their errors with each model of GPU left out.

    python tools/predict/servers.py                  prints the tables of the documentation
    python tools/predict/servers.py --write          fits, and writes server_kernels.toml and folds.toml first
    python tools/predict/servers.py --tables FOLDER  reads aiconfigurator's tables (needs pyarrow), and writes the rows

The closed form is that of `rust/nvcoll-fabric/src/predict/served.rs`; a test holds both to the same times. Least
squares of log(predicted / measured) with a soft L1 loss: each kernel of each model of GPU weighs the same. A fit
without a model of GPU predicts its rows; the interval of a kernel comes from the errors of these predictions
(`intervals.quantile`).

A fit needs scipy, and minutes on one core.
"""

from __future__ import annotations

import argparse
import csv
import math
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

import nvcoll

from intervals import Residual, quantile

ROOT = Path(__file__).parents[2]
DATA = ROOT / "data" / "server-all-reduce"
ROWS = DATA / "measurements.csv"
PREDICT = ROOT / "rust" / "nvcoll-fabric" / "src" / "predict"

LEAST_BYTES = 1024
"""Chosen: smaller calls take the same time."""

GPUS = {
    "a100_sxm": "hgx-a100",
    "h100_sxm": "hgx-h100",
    "h200_sxm": "hgx-h200",
    "b200_sxm": "hgx-b200",
    "b300_sxm": "hgx-b300",
    "gb200": "gb200-4",
    "gb300": "gb300-4",
    "l40s": "l40s-4-p2p",
    "rtx_pro_6000_server": "rtxpro6000-server-4-p2p",
}
"""The machine of each model of GPU in the tables."""

TABLES = {
    ("vllm", "0.24.0"): ("h100_sxm", "h200_sxm", "b200_sxm", "b300_sxm", "gb300", "rtx_pro_6000_server"),
    ("vllm", "0.19.0"): ("h100_sxm", "h200_sxm", "b200_sxm", "b300_sxm", "gb300"),
    ("vllm", "0.27.0"): ("gb300",),
    ("vllm", "0.14.0"): ("a100_sxm", "gb200", "l40s"),
    ("sglang", "0.5.14"): tuple(gpu for gpu in GPUS if gpu != "a100_sxm"),
    ("sglang", "0.5.10"): tuple(gpu for gpu in GPUS if gpu != "rtx_pro_6000_server"),
    ("trtllm", "1.3.0rc20"): ("h100_sxm", "h200_sxm", "b200_sxm", "b300_sxm", "gb200", "gb300"),
    ("trtllm", "1.3.0rc10"): ("h100_sxm", "h200_sxm", "b200_sxm", "b300_sxm", "gb200", "gb300"),
}
"""The tables that are used. The README of the data has the reasons for which others are not."""

FORMS = {
    "one_shot": "one_shot",
    "two_shot": "two_shot",
    "symm_two_shot": "two_shot",
    "symm_multicast": "multicast",
    "jit_one_shot": "one_shot",
    "jit_two_shot": "two_shot",
    "lamport_one_shot": "one_shot",
    "lamport_two_shot": "two_shot",
}

START = {"one_shot": 4.0, "two_shot": 8.0, "multicast": 8.0}
"""Priors of start_us in microseconds by form; round numbers."""

IN_FLIGHT = ("one_shot", "two_shot")
"""Kernels of 36 blocks: what these keep in flight limits their rate."""

AGES = {80: "ampere", 89: "ada", 90: "hopper", 100: "blackwell", 103: "blackwell", 120: "blackwell"}

COPIED, MULTIPLES = 4.0, {"symm_two_shot": 4, "symm_multicast": 4}

HEAD = """\
# The kernels of model servers for all_reduce. Written by tools/predict/servers.py from data/server-all-reduce.
#
# Start-up times are those of Hopper over NVLink, times the scale of the generation; PCIe has one scale. served.rs has
# the formula.
# measured: the models of GPUs with rows, by link and generation."""


@dataclass(frozen=True)
class Row:
    """A measured call."""

    fabric: str
    server: str
    version: str
    ranks: int
    kernel: str
    nbytes: int
    time_us: float


def read(path: Path = ROWS) -> list[Row]:
    """Reads the rows from LEAST_BYTES on."""
    with path.open(encoding="utf-8", newline="") as file:
        found = [
            Row(
                one["fabric"],
                one["server"],
                one["version"],
                int(one["ranks"]),
                one["kernel"],
                int(one["nbytes"]),
                float(one["time_us"]),
            )
            for one in csv.DictReader(file)
        ]
    return [row for row in found if row.nbytes >= LEAST_BYTES]


@cache
def machine(fabric: str, ranks: int) -> nvcoll.Fabric:
    """Returns the machine whose first ranks take part."""
    return nvcoll.fabric(fabric).among(range(ranks))


@cache
def rules() -> list[dict]:
    """Reads the rules of servers."""
    return tomllib.loads((PREDICT / "servers.toml").read_text(encoding="utf-8"))["rule"]


def kernel(server: str, sm: int, is_nvlink: bool, ranks: int, nbytes: int) -> str:
    """Returns what a rule of `servers.toml` chooses."""
    link = "nvlink" if is_nvlink else "pcie"
    fits = (rule for rule in rules() if (rule["server"], rule["link"]) == (server, link) and sm in rule.get("sm", [sm]))
    for limit in next(fits, {"ranks": {}})["ranks"].get(str(ranks), []):
        name, sign, number, unit = limit.split()
        last = int(number) * {"KiB": 1 << 10, "MiB": 1 << 20}[unit] - (sign == "<")
        if nbytes <= last:
            return name
    return "NCCL"


def import_tables(folder: Path) -> None:
    """Writes the rows of kernels of servers, in CUDA graphs: the median of each size."""
    import pyarrow.parquet

    found = []
    for (server, version), gpus in TABLES.items():
        for gpu in gpus:
            path = folder / gpu / "comm" / server / version / "custom_allreduce_perf.parquet"
            calls: dict[tuple[int, int], list[float]] = defaultdict(list)
            for one in pyarrow.parquet.read_table(path).to_pylist():
                if not one["kernel_source"].endswith("eager"):
                    calls[one["num_gpus"], 2 * one["message_size"]].append(1e3 * one["latency"])
            whole = nvcoll.fabric(GPUS[gpu])
            for (ranks, nbytes), times in sorted(calls.items()):
                if ranks > whole.world_size:
                    continue
                # SGLang before 0.5.12 has vLLM's kernels, by the rule without symmetric memory.
                rule, sm = ("vllm", 80) if version == "0.5.10" else (server, whole.gpu_model.sm or 0)
                chosen = kernel(rule, sm, whole.gpu_model.nvlink is not None, ranks, nbytes)
                if chosen != "NCCL":
                    found.append([GPUS[gpu], server, version, ranks, chosen, nbytes, f"{np.median(times):.4g}"])
    with ROWS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["fabric", "server", "version", "ranks", "kernel", "nbytes", "time_us"])
        writer.writerows(sorted(found, key=lambda one: (*one[:4], one[5])))


def mean(values: Iterable[float]) -> float:
    """Returns the geometric mean."""
    return math.exp(float(np.mean([math.log(value) for value in values])))


class Problem:
    """Rows as arrays, and the closed form over them."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        self.fabrics = np.array([row.fabric for row in rows])
        self.kernels = np.array([row.kernel for row in rows])
        self.ranks = np.array([row.ranks for row in rows], float)
        self.nbytes = np.array([row.nbytes for row in rows], float)
        self.logs = np.log([row.time_us for row in rows])
        machines = [machine(row.fabric, row.ranks) for row in rows]
        self.line = np.array([one.port_rates()[0] for one in machines])
        self.memory = np.array([one.gpu_model.memory_gbps for one in machines])
        self.is_pcie = np.array([one.gpu_model.nvlink is None for one in machines])
        self.ages = np.array([AGES[one.gpu_model.sm or 0] for one in machines])
        cells = list(zip(self.fabrics, self.kernels, strict=True))
        counts = {cell: cells.count(cell) for cell in set(cells)}
        self.weights = np.array([1 / math.sqrt(counts[cell]) for cell in cells])

    def without(self, fabric: str) -> Problem:
        """Returns the rows of other models of GPUs."""
        return Problem([row for row in self.rows if row.fabric != fabric])

    def times(self, constants: Mapping[str, float]) -> np.ndarray:
        """Returns the predicted microseconds of all rows."""
        other = mean(value for name, value in constants.items() if name.startswith("scale."))
        scale = np.array([constants.get(f"scale.{age}", other) for age in self.ages])
        scale = np.where(self.is_pcie, constants["pcie_scale"], scale)
        found = np.zeros(len(self.rows))
        for name, form in FORMS.items():
            mine = self.kernels == name
            if not mine.any():
                continue
            of = {key: constants.get(f"{name}.{key}") for key in ("start_us", "per_peer_us", "hidden_us", "part")}
            peers, ranks, nbytes, mult = self.ranks[mine] - 1, self.ranks[mine], self.nbytes[mine], scale[mine]
            rate = self.line[mine] * np.where(self.is_pcie[mine], constants["pcie_part"], of["part"])
            if name in IN_FLIGHT:
                streams = peers if form == "one_shot" else 1.0
                rate = np.minimum(rate, streams * constants[f"{name}.flight_gbps"] / mult)
            load = {"one_shot": peers, "two_shot": 2 * peers / ranks, "multicast": 1 + 1 / ranks}[form]
            moving = np.maximum(load * nbytes / rate / 1e3 - mult * (of["hidden_us"] or 0.0), 0.0)
            copied = COPIED * nbytes / self.memory[mine] / 1e3 if name in MULTIPLES else 0.0
            found[mine] = mult * (of["start_us"] + of["per_peer_us"] * (peers - 1)) + copied + moving
        return found

    def priors(self) -> dict[str, float]:
        """Returns the constants that the rows fix, with round numbers as values; Hopper's scale is 1."""
        found = {f"scale.{age}": 1.0 for age in sorted(set(self.ages[~self.is_pcie]) | {"hopper"})}
        found |= {"pcie_scale": 1.0, "pcie_part": 0.6}
        for name, form in FORMS.items():
            found |= {f"{name}.start_us": START[form], f"{name}.per_peer_us": 0.2, f"{name}.part": 0.6}
            if form == "two_shot":
                found[f"{name}.hidden_us"] = 3.0
            if name in IN_FLIGHT:
                found[f"{name}.flight_gbps"] = 300.0
        return found

    def fit(self, start: Mapping[str, float]) -> dict[str, float]:
        """Fits the constants."""
        from scipy.optimize import least_squares

        names = [name for name in self.priors() if name != "scale.hopper"]
        prior = np.log([self.priors()[name] for name in names])

        def residuals(logs: np.ndarray) -> np.ndarray:
            constants = {"scale.hopper": 1.0} | dict(zip(names, np.exp(logs), strict=True))
            errors = 3.0 * self.weights * (np.log(self.times(constants)) - self.logs)
            return np.concatenate([errors, 0.02 * (logs - prior)])

        begin = np.log([start.get(name, 1.0) for name in names])
        found = least_squares(residuals, begin, loss="soft_l1", f_scale=0.15, max_nfev=60)
        return {"scale.hopper": 1.0} | {name: float(value) for name, value in zip(names, np.exp(found.x), strict=True)}


Constants = Mapping[str, float]


def fits(problem: Problem) -> tuple[Constants, dict[str, Constants]]:
    """Fits all rows, and the rows without each model of GPU."""
    shipped = problem.fit(problem.priors())
    return shipped, {fabric: problem.without(fabric).fit(shipped) for fabric in sorted(set(problem.fabrics))}


def folds() -> dict[str, Constants]:
    """Reads the constants without each model of GPU."""
    read: dict[str, Constants] = tomllib.loads((DATA / "folds.toml").read_text(encoding="utf-8"))
    return read


def shipped_kernels() -> dict[str, float]:
    """Reads the constants that are shipped."""
    table = tomllib.loads((PREDICT / "server_kernels.toml").read_text(encoding="utf-8"))
    found = {name: table[name] for name in ("pcie_scale", "pcie_part")}
    found |= {f"scale.{age}": value for age, value in table["scale"].items()}
    keys = ("start_us", "per_peer_us", "hidden_us", "part", "flight_gbps")
    return found | {f"{name}.{key}": row[key] for name, row in table["kernel"].items() for key in keys if key in row}


class Judged(NamedTuple):
    """A row, its time as predicted without its model of GPU, and the factor of the interval from the other models."""

    row: Row
    time_us: float
    factor: float

    @property
    def error(self) -> float:
        """The error as a share of the measured time."""
        return self.time_us / self.row.time_us - 1

    @property
    def is_inside(self) -> bool:
        """Whether the interval has the measured time."""
        return abs(math.log(self.row.time_us / self.time_us)) <= math.log(self.factor)


def left_out_times(problem: Problem, without: Mapping[str, Constants]) -> np.ndarray:
    """Predicts each row by the fit without its model of GPU."""
    times = {fabric: problem.times(constants) for fabric, constants in without.items()}
    return np.array([times[fabric][at] for at, fabric in enumerate(problem.fabrics)])


def factor(problem: Problem, times: np.ndarray, kernel: str, *, is_pcie: bool, without: str | None = None) -> float:
    """Returns the factor of a kernel's interval over a link, from the models of GPUs but one."""
    known: list[Residual] = [
        (row.fabric, row.fabric, abs(math.log(row.time_us / time)))
        for at, (row, time) in enumerate(zip(problem.rows, times, strict=True))
        if row.kernel == kernel and row.fabric != without and problem.is_pcie[at] == is_pcie
    ]
    return math.exp(quantile(known))


def judge(problem: Problem, without: Mapping[str, Constants]) -> list[Judged]:
    """Judges each row without its model of GPU."""
    times = left_out_times(problem, without)
    of_cell = cache(lambda kernel, fabric, is_pcie: factor(problem, times, kernel, is_pcie=is_pcie, without=fabric))
    found = zip(problem.rows, times, problem.is_pcie.tolist(), strict=True)
    return [Judged(row, float(time), of_cell(row.kernel, row.fabric, is_pcie)) for row, time, is_pcie in found]


def table(judged: Iterable[Judged], by: Callable[[Row], str], head: str) -> str:
    """Writes the errors of groups of rows as Markdown."""
    groups: dict[str, list[Judged]] = defaultdict(list)
    for one in judged:
        groups[by(one.row)].append(one)
        groups["all"].append(one)
    lines = [f"| {head} | rows | median error | 90th percentile | in the interval |", "|---|---|---|---|---|"]
    for name in sorted(groups, key=lambda name: (name == "all", name)):
        median, most = (100 * float(np.quantile([abs(one.error) for one in groups[name]], part)) for part in (0.5, 0.9))
        inside = 100 * float(np.mean([one.is_inside for one in groups[name]]))
        lines.append(f"| {name} | {len(groups[name])} | {median:.1f} % | {most:.0f} % | {inside:.0f} % |")
    return "\n".join(lines)


def worst(judged: Iterable[Judged], most: int) -> str:
    """Writes the rows that are furthest off as Markdown."""
    ranked = sorted(judged, key=lambda one: -abs(math.log(one.time_us / one.row.time_us)))
    lines = ["| machine | server | GPUs | kernel | bytes | measured | predicted |", "|---|---|---|---|---|---|---|"]
    for row, time, _ in ranked[:most]:
        what = f"| {row.fabric} | {row.server} {row.version} | {row.ranks} | {row.kernel} | {row.nbytes:,} "
        lines.append(f"{what}| {row.time_us:.1f} us | {time:.1f} us |")
    return "\n".join(lines)


def tables(judged: Sequence[Judged], most: int = 10) -> list[str]:
    """Returns the tables of the documentation."""
    by_machine = table(judged, lambda row: row.fabric, "machine, left out")
    return [by_machine, table(judged, lambda row: row.kernel, "kernel"), worst(judged, most)]


def rounded(value: float) -> float:
    """Rounds to four digits."""
    return float(f"{value:.4g}")


def write(problem: Problem, shipped: Constants, without: Mapping[str, Constants]) -> None:
    """Writes server_kernels.toml and folds.toml."""
    scales = {name: value for name, value in shipped.items() if name.startswith("scale.")}
    times = left_out_times(problem, without)
    lines = [HEAD, "", *(f"{name} = {rounded(shipped[name])}" for name in ("pcie_scale", "pcie_part"))]
    lines += [f"pcie_factor = {rounded(factor(problem, times, 'one_shot', is_pcie=True))}"]
    lines += [f"other_scale = {rounded(mean(scales.values()))}", "", "[scale]"]
    lines += [f"{name.removeprefix('scale.')} = {rounded(value)}" for name, value in scales.items()]
    for name, form in FORMS.items():
        lines += ["", f"[kernel.{name}]", f'form = "{form}"']
        keys = ("start_us", "per_peer_us", "hidden_us", "part", "flight_gbps")
        lines += [f"{key} = {rounded(shipped[f'{name}.{key}'])}" for key in keys if f"{name}.{key}" in shipped]
        lines += [f"copied = {COPIED}"] if name in MULTIPLES else []
        lines += [
            f"multiple = {MULTIPLES.get(name, 16)}",
            f"factor = {rounded(factor(problem, times, name, is_pcie=False))}",
        ]
        seen: dict[str, set[str]] = defaultdict(set)
        for at in np.flatnonzero(problem.kernels == name):
            link = "pcie" if problem.is_pcie[at] else "nvlink"
            seen[f"{link} {problem.ages[at]}"].add(problem.fabrics[at])
        measured = ", ".join(f'"{link}" = {len(fabrics)}' for link, fabrics in sorted(seen.items()))
        lines.append(f"measured = {{ {measured} }}")
    (PREDICT / "server_kernels.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    lines = ["# The constants that were fitted without each model of GPU. tools/predict/servers.py wrote this."]
    for fabric, constants in without.items():
        lines += ["", f"[{fabric}]", *(f'"{name}" = {rounded(value)}' for name, value in constants.items())]
    (DATA / "folds.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    """Imports, or fits, or judges."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tables", type=Path, help="aiconfigurator_core/systems/data of its wheel")
    parser.add_argument("--write", action="store_true", help="fits, and writes server_kernels.toml and folds.toml")
    parser.add_argument("--worst", type=int, default=10, help="the number of worst rows")
    asked = parser.parse_args()
    if asked.tables:
        import_tables(asked.tables)
        return
    problem = Problem(read())
    if asked.write:
        write(problem, *fits(problem))
    for name, value in shipped_kernels().items():
        over = [constants[name] for constants in folds().values() if name in constants]
        print(f"{name:32} {value:8} ({min(over)} to {max(over)})")
    print("\n\n".join(["", *tables(judge(problem, folds()), asked.worst)]))


if __name__ == "__main__":
    main()
