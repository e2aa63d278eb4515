"""``nvcoll validate``: replays public measurements, and says how far each predictor is off."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nvcoll import InvalidArgument, intervals, nccl_estimate, pytorch_estimate, simulated_estimate
from nvcoll import validate as judging
from nvcoll.cli.output import Output

SHIPPED = Path("data") / "nccl-tests"
"""Where a checkout has the table. It is not in the wheel."""


def _table(given: Path | None, option: str, name: str) -> Path:
    """Returns the file that was given, or that of the checkout in which one is."""
    path = SHIPPED / name if given is None else given
    if not path.is_file():
        what = f"{path} is not here" if given is None else f"there is no file {path}"
        raise InvalidArgument(f"{what}: run this in a checkout of nvcoll, or pass --{option} FILE")
    return path


def validate(
    measurements: Annotated[Path | None, typer.Option(help="Rows, as data/nccl-tests/measurements.csv.")] = None,
    systems: Annotated[Path | None, typer.Option(help="Machines, as data/nccl-tests/systems.csv.")] = None,
    worst: Annotated[int, typer.Option(help="How many of the worst rows of a predictor are printed.", min=0)] = 10,
) -> None:
    """Prints how far predictions are from public measurements of healthy machines."""
    tables = _table(systems, "systems", "systems.csv"), _table(measurements, "measurements", "measurements.csv")
    rows = judging.healthy(judging.read_tables(*tables))
    calls = simulated_estimate.calls(rows)
    predictors = {"simulated, fitted on all": simulated_estimate.judge(calls, lambda _: {})}
    if (left_out := tables[0].parent / "folds.toml").is_file():
        folds = simulated_estimate.folds(left_out)
        known = [call for call in calls if call.system.family in folds]
        predictors = {"simulated, left out": simulated_estimate.judge(known, lambda s: folds[s.family])} | predictors
    predictors["NCCL's own estimate"] = judging.judge(rows, nccl_estimate.predictor(rows))
    estimator = pytorch_estimate.predictor()
    if estimator is not None:
        predictors["PyTorch's estimator"] = judging.judge(rows, estimator)
    console = Output()
    judging.report(rows, predictors, console, worst)
    intervals.report(next(iter(predictors.values())), console)
    print(f"{len(rows)} healthy rows of {len({row.system.system_id for row in rows})} systems")
    for name, judged in predictors.items():
        print(f"{name}: {len(judged)} rows; nothing is said of the others")
    if estimator is None:
        print("PyTorch's estimator: torch is not installed here, or has another estimator than torch 2.15")
