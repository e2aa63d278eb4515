"""How many launches has a layer in a dry run of a framework, and how many does the planner assume?

    python tools/training/launches.py [--count CASE]

A launch is a kernel, a product, a copy or a memset that the processor issues; collectives are apart. The table compares
`data/training-steps/launches.csv` (its README explains it) with `software.toml`. `--count "megatron llama te"` counts a
case again, in a minute: steps with 2 and 6 layers, and 1 and 2 micro-batches, and the differences between them.
"""

import argparse
import csv
import tomllib
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np

from nvcoll._nvcoll import gpus
from nvcoll.dryrun.parent.launch import Request
from nvcoll.dryrun.parent.script import recordings_of
from nvcoll.dryrun.wire.host_speed import USUAL
from nvcoll.dryrun.wire.virtual_gpu import Kind

ROOT = Path(__file__).parents[2]
ROWS, STEPS = ROOT / "data/training-steps/launches.csv", ROOT / "tools/training/launches_steps.py"
SOFTWARE = ROOT / "rust/nvcoll-step/src/data/software.toml"
LAUNCHES = (Kind.LAUNCH, Kind.GEMM, Kind.COPY, Kind.FILL)
FEW, MANY = 2, 6


def counted(case: list[str], layers: int, micro_batches: int) -> dict[str, np.ndarray]:
    """Returns launches, and microseconds of a usual processor, of the passes and of what follows the last of them."""
    script, words = str(STEPS), (case[0], str(layers), str(micro_batches), *case[1:])
    gpu = next(each for each in gpus() if each.name == "h100-sxm")
    request = Request(script, words, gpu=gpu, is_quiet=True, measures_host=True)
    (recorded,), (run,) = recordings_of(request)
    records, ops = recorded.records, np.array([op.is_backward for op in recorded.ops])
    known = np.maximum.accumulate(np.where(records["op"] > 0, np.arange(len(records)), 0))  # the last with an operator
    is_backward = ops[records["op"][known]]
    is_step = np.arange(len(records)) > np.flatnonzero(is_backward).max()
    is_launch = np.isin(records["kind"], LAUNCHES) & ~((records["kind"] == Kind.COPY) & (records["args"][:, 1] == 0))
    us = np.array(run.gaps or [np.nan] * len(records)) * 1e6 * run.host_speed / USUAL
    of = {"forward": ~is_backward & ~is_step, "backward": is_backward, "step": is_step}
    return {name: np.array([is_launch[each].sum(), us[each].sum()]) for name, each in of.items()}


def parts(case: list[str]) -> Iterator[str]:
    """Yields the parts of a case: of a micro-batch after the first one, and of the step."""
    of = {key: counted(case, *key) for key in product((FEW, MANY), (1, 2))}
    for name in ("forward", "backward"):
        few, many = (of[layers, 2][name][0] - of[layers, 1][name][0] for layers in (FEW, MANY))
        layer, us = (many - few) / (MANY - FEW), (of[MANY, 2][name][1] - of[FEW, 2][name][1]) / 2 / (MANY - FEW)
        yield f"layer {name}: {layer:g} launches, {us:.0f} us\nmicro-batch {name}: {few - FEW * layer:g} launches"
    few, many = (of[layers, 1]["step"][0] for layers in (FEW, MANY))
    more = (many - few) / (MANY - FEW)
    yield f"step: {few - FEW * more:g} launches\nstep, each layer: {more:g} launches"


def lines() -> Iterator[str]:
    """Yields the table of what was counted, and of what the planner assumes."""
    assumed = {row["name"]: row for row in tomllib.loads(SOFTWARE.read_text())["software"]}
    yield f"| framework | variant | part | counted | us | the planner assumes |\n|{'---|' * 6}"
    for row in csv.DictReader(ROWS.read_text().splitlines()):
        field = {"layer forward": "launches_forward", "layer backward": "launches_backward"}.get(row["part"])
        values = [f"{name}: {assumed[name].get(field, '-')}" for name in row["software"].split()] if field else []
        cells = f"{row['framework']} {row['version']}", row["variant"], row["part"], row["launches"], row["usual_us"]
        yield f"| {' | '.join((*cells, ', '.join(values) or '-'))} |"


def main() -> None:
    """Prints the table, or counts a case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", metavar="CASE", help="function and words of launches_steps.py")
    case = parser.parse_args().count or ""
    print("\n".join(parts(case.split()) if case else lines()))


if __name__ == "__main__":
    main()
