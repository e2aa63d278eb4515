"""Replays public measurements and prints how far each predictor is off.

    python tools/predict/validate.py
    python tools/predict/validate.py --systems FILE --measurements FILE --worst 20

The predictors are `Fabric.predict` (with constants that were fitted to all systems, and with constants that were fitted
without the family of the system), NCCL's own estimate, and PyTorch's where torch 2.15 is installed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from nvcoll import InvalidArgument

import intervals
import judging
import nccl_estimate
import nvcoll_estimate
import pytorch_estimate

DATA = Path(__file__).parents[2] / "data" / "nccl-tests"


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--measurements", type=Path, default=DATA / "measurements.csv", help="table of measured times")
    parser.add_argument("--systems", type=Path, default=DATA / "systems.csv", help="table of the measured systems")
    parser.add_argument("--worst", type=int, default=10, help="how many of a predictor's worst rows are printed")
    return parser.parse_args(given)


def report(systems: Path, measurements: Path, worst: int) -> None:
    """Judges every predictor on the healthy rows of two tables."""
    for path in (systems, measurements):
        if not path.is_file():
            raise InvalidArgument(f"there is no file {path}: pass a table as data/nccl-tests/{path.name}")
    rows = judging.healthy(judging.read_tables(systems, measurements))
    calls = nvcoll_estimate.calls(rows)
    predictors = {"nvcoll, fitted on all": nvcoll_estimate.judge(calls, lambda _: {})}
    if (left_out := systems.parent / "folds.toml").is_file():
        folds = nvcoll_estimate.folds(left_out)
        known = [call for call in calls if call.system.family in folds]
        predictors = {"nvcoll, left out": nvcoll_estimate.judge(known, lambda s: folds[s.family])} | predictors
    predictors["NCCL's own estimate"] = judging.judge(rows, nccl_estimate.predictor(rows))
    estimator = pytorch_estimate.predictor()
    if estimator is not None:
        predictors["PyTorch's estimator"] = judging.judge(rows, estimator)
    console = Console(width=1000, highlight=False)
    judging.report(rows, predictors, console, worst)
    intervals.report(next(iter(predictors.values())), console)
    print(f"{len(rows)} healthy rows of {len({row.system.system_id for row in rows})} systems")
    for name, judged in predictors.items():
        print(f"{name}: {len(judged)} rows; nothing is said of the others")
    if estimator is None:
        print("PyTorch's estimator: torch is not installed here, or has another estimator than torch 2.15")


def main(given: Sequence[str] | None = None) -> None:
    """Reports, or says in one line what is wrong with the tables."""
    asked = arguments(given)
    try:
        report(asked.systems, asked.measurements, asked.worst)
    except InvalidArgument as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
