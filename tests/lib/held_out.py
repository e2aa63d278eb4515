"""Public measurements of healthy systems, and what is predicted by constants that were fitted without each."""

from functools import cache
from pathlib import Path

import judging
import nvcoll_estimate

DATA = Path(__file__).parents[2] / "data" / "nccl-tests"


@cache
def rows():
    return judging.healthy(judging.read(DATA))


@cache
def left_out():
    folds = nvcoll_estimate.folds(DATA / "folds.toml")
    return nvcoll_estimate.judge(nvcoll_estimate.calls(rows()), lambda system: folds[system.family])
