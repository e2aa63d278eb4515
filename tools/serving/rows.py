"""Judges predictions of model servers on published rows, and fits their constants.

    python tools/serving/rows.py              prints errors in sample, with what is shipped
    python tools/serving/rows.py --leave-out  fits without each model, GPU, server, source, and prints errors on these
    python tools/serving/rows.py --write      fits, writes model_servers.toml, constants.toml, serving_intervals.toml

A fit is least squares of log(predicted / published) with a soft L1 loss, of the time of a token and, with a third of
its weight, of the first token. Each model, GPU, server and precision has as many rows in it. Needs scipy; minutes.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import random
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from nvcoll._nvcoll import ServingPrediction
from nvcoll.serving.options import asked
from nvcoll.training.models import models
from nvcoll.training.planning import Machine

ROOT = Path(__file__).parents[2]
ROWS = ROOT / "data" / "serving" / "rows.csv"
STEP = ROOT / "rust" / "nvcoll-step" / "src" / "data"

MODELS = {
    "meta-llama/Llama-3.1-8B-Instruct": "llama3.1-8b",
    "meta-llama/Llama-3.1-70B": "llama3.1-70b",
    "meta-llama/Llama-3.1-405B": "llama3.1-405b",
    "Qwen/Qwen3-235B-A22B-FP8": "qwen3-235b-a22b",
    "Qwen/Qwen3-30B-A3B": "qwen3-30b-a3b",
    "Qwen/Qwen3.5-397B-A17B": "qwen3.5-397b-a17b",
    "deepseek-ai/DeepSeek-R1": "deepseek-v3",
    "deepseek-ai/DeepSeek-V3": "deepseek-v3",
    "openai/gpt-oss-120b": "gpt-oss-120b",
    "llama-2-7b": "llama2-7b",
    "llama-2-70b": "llama2-70b",
    "mixtral-8x7b": "mixtral-8x7b",
}
"""Our names of models. Others have layers that nvcoll does not know."""

MACHINES = {"h100_sxm": "hgx-h100", "h200_sxm": "hgx-h200", "b200_sxm": "hgx-b200", "a100_40gb": "hgx-a100"}
"""The machine of each GPU. GB200: layouts of its rows are not known."""

PRECISIONS = {"bf16": "bf16", "fp8": "fp8", "fp4": "nvfp4", "int4": "int4"}

RANDOM_LENGTHS = 0.9
"""InferenceX draws lengths from 0.8 to 1 times those that it names."""

UNLIMITED = 2000
"""Requests at once where all are sent at once."""

UNFITTED = ("qwen3.5-397b-a17b",)
"""Models that judge, in no fit."""

AT_CLIENTS = "512"
"""Requests at once of rows of which most waited at the client."""

SAMPLE = 200
"""Rows of a fit. Chosen: minutes."""

LEAST = 20
"""Rows that a group must have to be left out."""

CONSTANTS = {
    "widened_weights": 1.5,
    "experts_skew": 0.5,
}
SERVERS = ("vllm", "sglang", "trtllm")
FIELDS = {
    "sequence_us": [3.0] * 3,
    "iteration_us": [300.0, 1000.0, 300.0],
    "frontend_ms": [25.0, 40.0, 30.0],
    "launch_us": [10.0, 70.0, 60.0],
}
"""What is fitted, with expected values: constants of all servers, and fields of each."""

PULL = 0.1
"""How much a fit is drawn to expected values: a third of an error of one row for a factor of 30. Chosen."""


@dataclass(frozen=True)
class Row:
    """A published row, and what it asks."""

    model: str
    gpu: str
    server: str
    precision: str
    source: str
    gpus: int
    request: Mapping[str, Any]
    ttft_s: float | None
    tpot_s: float | None
    tokens_per_second: float | None

    @property
    def kind(self) -> tuple[str, ...]:
        """Rows of one kind share the weight of the kind."""
        return self.model, self.gpu, self.server, self.precision


def rows() -> Iterator[Row]:
    """Yields the rows that nvcoll can express; of those with drafted tokens the acceptance is not published."""
    with ROWS.open() as file:
        for one in csv.DictReader(file):
            is_known = one["model"] in MODELS and one["gpu"] in MACHINES and one["precision"]
            is_whole = int(one["tp"]) <= 8 and not one["speculative"] and one["concurrency"] != AT_CLIENTS
            if is_known and is_whole:
                yield _row(one)


def _row(one: Mapping[str, str]) -> Row:
    model, server, is_drawn = MODELS[one["model"]], one["framework"], one["source"] == "InferenceX"
    scale = RANDOM_LENGTHS if is_drawn else 1.0
    precision = "mxfp4" if model.startswith("gpt-oss") and one["precision"] == "fp4" else PRECISIONS[one["precision"]]
    has_experts = "experts" in models()[model]
    rate = float(one["rate"]) if one["rate"] else None
    how = {"input": scale * float(one["input"]), "output": scale * float(one["output"]), "precision": precision}
    how |= {"server": server, "cache": one["cache"] or "bf16", "rate": rate}
    how |= {} if rate else {"concurrency": float(one["concurrency"] or UNLIMITED)}
    request = asked(model, how)  # type: ignore[arg-type]
    request["load"]["spread"] = 0.11 if is_drawn else 0.0
    told = {name: float(one[name]) for name in ("chunk", "wait_iterations") if one[name]}
    request["software"] = {**request["software"], **told}
    expert = {"expert": int(one["ep"]), "attention_copies": int(one["dp_attention"])} if has_experts else {}
    request["layout"] = {"tensor": int(one["tp"]), **expert}

    def seconds(text: str) -> float | None:
        return float(text) / 1e3 if text else None

    rate_of_all = float(one["tokens_per_second"]) if one["tokens_per_second"] and not one["tpot_ms"] else None
    first = None if server == "sglang" and not one["version"] else seconds(one["ttft_ms"])
    kind = model, one["gpu"], server, precision, one["source"]
    return Row(*kind, int(one["tp"]), request, first, seconds(one["tpot_ms"]), rate_of_all)


@cache
def machine(gpu: str, gpus: int) -> Machine:
    """Returns the machine of some GPUs."""
    return Machine(MACHINES[gpu], gpus)


@dataclass(frozen=True)
class Fitted:
    """What a fit found."""

    constants: Mapping[str, float]
    fields: Mapping[str, Mapping[str, float]]

    @classmethod
    def of(cls, logs: Sequence[float]) -> Fitted:
        """Reads the logarithms of all values, in the order of `expected`."""
        values = [math.exp(one) for one in logs]
        constants = dict(zip(CONSTANTS, values, strict=False))
        rest = iter(values[len(CONSTANTS) :])
        fields: dict[str, dict[str, float]] = {server: {} for server in SERVERS}
        for name in FIELDS:
            for server in SERVERS:
                fields[server][name] = next(rest)
        return cls(constants, fields)


def expected() -> list[float]:
    """Returns the logarithms of the expected values."""
    return [math.log(one) for one in [*CONSTANTS.values(), *(value for values in FIELDS.values() for value in values)]]


def predicted(some: Sequence[Row], fitted: Fitted | None = None) -> list[ServingPrediction | None]:
    """Predicts rows, with what is shipped or with what a fit found; None: the layout has no room."""
    places: dict[tuple[str, int], list[int]] = defaultdict(list)
    for place, one in enumerate(some):
        places[one.gpu, one.gpus].append(place)
    found: list[ServingPrediction | None] = [None] * len(some)
    for (gpu, gpus), at in places.items():
        texts = []
        for place in at:
            request = some[place].request
            fields = fitted.fields[some[place].server] if fitted else {}
            texts.append(json.dumps({**request, "software": {**request["software"], **fields}}))
        answers = machine(gpu, gpus).pricer.serve(texts, dict(fitted.constants) if fitted else None)
        for place, (answer, _) in zip(at, answers, strict=True):
            found[place] = answer
    return found


def errors(some: Sequence[Row], found: Iterable[ServingPrediction | None]) -> dict[str, list[tuple[Row, float]]]:
    """Returns predicted over published, by what was published."""
    ratios: dict[str, list[tuple[Row, float]]] = {"token": [], "first token": [], "tokens per second": []}
    for row, one in zip(some, found, strict=True):
        if one is None:
            continue
        of_all = one.tokens_per_second * one.gpus
        pairs = ((one.tpot_s, row.tpot_s), (one.ttft_s, row.ttft_s), (of_all, row.tokens_per_second))
        for ratio, (ours, theirs) in zip(ratios.values(), pairs, strict=True):
            if theirs:
                ratio.append((row, ours / theirs))
    return ratios


def fit(some: Sequence[Row]) -> Fitted:
    """Fits to rows."""
    import numpy as np
    from scipy.optimize import least_squares

    drawn, begin = sample(some), expected()

    def residuals(logs: Sequence[float]) -> Any:
        found = errors(drawn, predicted(drawn, Fitted.of(logs)))
        weights = {"token": 1.0, "first token": 0.3, "tokens per second": 1.0}
        wrong = [weights[what] * math.log(ratio) for what, all_ in found.items() for _, ratio in all_]
        return np.array([*wrong, *(PULL * (one - other) for one, other in zip(logs, begin, strict=True))])

    return Fitted.of(least_squares(residuals, begin, loss="soft_l1", f_scale=0.15, max_nfev=8, diff_step=0.05).x)


def sample(some: Sequence[Row]) -> list[Row]:
    """Draws rows, as many of each kind as there are."""
    by_kind: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for one in some:
        if one.tpot_s and one.model not in UNFITTED:
            by_kind[one.kind].append(one)
    drawing = random.Random(1)
    for kind in by_kind.values():
        drawing.shuffle(kind)
    longest = max(map(len, by_kind.values()))
    turns = [kind[nth] for nth in range(longest) for kind in by_kind.values() if nth < len(kind)]
    return turns[:SAMPLE]


def words(ratios: Sequence[float]) -> str:
    """Summarises predicted over published."""
    if not ratios:
        return f"{'none':>6}"
    wrong = [abs(one - 1) for one in ratios]
    within = sum(one < 0.2 for one in wrong) / len(wrong)
    bias = statistics.median(ratios) - 1
    middle, within = 100 * statistics.median(wrong), 100 * within
    return f"{len(ratios):5} rows, median {middle:5.1f} %, bias {100 * bias:+6.1f} %, within 20 %: {within:3.0f} %"


def table(ratios: Mapping[str, list[tuple[Row, float]]], by: Callable[[Row], object] | None = None) -> None:
    """Prints errors, and those of each group."""
    for what, found in ratios.items():
        print(f"{what:18}", words([ratio for _, ratio in found]))
        groups = defaultdict(list)
        for row, ratio in found:
            groups[by(row) if by else row.kind].append(ratio)
        for group, some in sorted(groups.items(), key=str):
            print(f"    {' '.join(group) if isinstance(group, tuple) else group:45}", words(some))


Ratios = dict[str, list[tuple[Row, float]]]
"""Predicted over published, by what was published."""


def left_out(all_: Sequence[Row], by: Callable[[Row], str]) -> tuple[Ratios, list[Fitted]]:
    """Predicts each group by a fit without it; also returns the fits."""
    ratios: Ratios = defaultdict(list)
    fits = []
    for group in sorted({by(one) for one in all_}):
        others, some = [one for one in all_ if by(one) != group], [one for one in all_ if by(one) == group]
        if sum(bool(one.tpot_s) for one in some) < LEAST or not others:
            continue
        fits.append(fit(others))
        for what, found in errors(some, predicted(some, fits[-1])).items():
            ratios[what] += found
    return ratios, fits


GROUPS: Mapping[str, Callable[[Row], str]] = {
    "model": lambda one: one.model,
    "gpu": lambda one: one.gpu,
    "server": lambda one: one.server,
    "source": lambda one: one.source,
}


def write(fitted: Fitted, folds: Ratios, fits: Sequence[Fitted]) -> None:
    """Writes what a fit found, its range over fits without a model, and intervals that hold nine of ten rows."""
    path = STEP / "constants.toml"
    text = path.read_text()
    for name, value in fitted.constants.items():
        others = [value, *(one.constants[name] for one in fits)]
        head, tail = text.split(f'name = "{name}"\n', 1)
        for key, number in (("value", value), ("low", min(others)), ("high", max(others))):
            tail = re.sub(rf"{key} = \S+", f"{key} = {number:.4g}", tail, count=1)
        text = f'{head}name = "{name}"\n{tail}'
    path.write_text(text)
    path = STEP / "model_servers.toml"
    text = path.read_text()
    for server, fields in fitted.fields.items():
        head, tail = text.split(f'name = "{server}"\n', 1)
        for name, value in fields.items():
            tail = re.sub(rf"{name} = \S+", f"{name} = {value:.4g}", tail, count=1)
        text = f'{head}name = "{server}"\n{tail}'
    path.write_text(text)
    head = "# What published rows took, in what was predicted by constants that had not seen their model."
    lines = [f"{head} Written by tools/serving/rows.py."]
    for what in ("first token", "token", "tokens per second"):
        took = sorted(1 / ratio for _, ratio in folds[what])
        low, high = (took[round(part * (len(took) - 1))] for part in (0.05, 0.95))
        lines += ["", "[[interval]]", f'class = "{what}"', f"low = {low:.2f}", f"high = {high:.2f}"]
        lines += [f'source = "data/serving, {len(took)} rows: 5 % and 95 %"']
    (STEP / "serving_intervals.toml").write_text("\n".join(lines) + "\n")


def main() -> None:
    """Judges, and perhaps fits."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--leave-out", nargs="*", choices=GROUPS, help="what is left out; all by default")
    arguments.add_argument("--write", action="store_true")
    given = arguments.parse_args()
    all_ = list(rows())
    if given.write:
        fitted = fit(all_)
        folds, fits = left_out(all_, GROUPS["model"])
        folds["tokens per second"] = errors(all_, predicted(all_, fitted))["tokens per second"]  # no fit has seen them
        write(fitted, folds, fits)
        return
    if given.leave_out is None:
        table(errors(all_, predicted(all_)))
    for name in given.leave_out or (GROUPS if given.leave_out == [] else ()):
        print(f"left out: {name}")
        table(left_out(all_, GROUPS[name])[0], GROUPS[name])


if __name__ == "__main__":
    main()
