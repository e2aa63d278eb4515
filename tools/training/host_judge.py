"""How long does a processor take to issue a step? Published eager steps, which their processor limits, and predictions.

    GPT_FAST=FOLDER LITGPT=FOLDER python tools/training/host_judge.py [NAME:KIND]...

`published_eager.py` has the steps, and names the two repositories. It needs transformers and Megatron-Core, too. Rows
whose GPU alone takes `LIMITS` of the published time or more say nothing of their processor: they are not fitted.
`OPERATOR_S` in `rust/nvcoll-step` is the median of the sources: what is left of the published time after the launches,
for each operator. An error leaves out the source of its row. vTrain: milliseconds of a layer and micro-batch, from the
difference of two models.
"""

import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from nvcoll._nvcoll import WorkStep, fabric
from nvcoll.dryrun.parent.launch import Request
from nvcoll.dryrun.parent.recording import Recording
from nvcoll.dryrun.parent.script import record
from nvcoll.dryrun.wire.host_speed import USUAL
from nvcoll.training import Machine

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tools/training/published_eager.py"
MEGATRON = ROOT / "tests/dryrun/frameworks/scripts/megatron_gpt.py"
LAUNCH_MS, OPERATOR_MS = 2.5e-3, 9.2e-3
LIMITS = 0.8


class Row(NamedTuple):
    """A published step: its name, machine, milliseconds, source, and where the source has them."""

    name: str
    machine: str
    published_ms: float
    source: str
    where: str


ROWS = (
    Row("gpt-fast:7B", "hgx-a100", 1e3 / 25.5, "gpt-fast", "pytorch.org/blog/accelerating-generative-ai-2"),
    Row("litgpt:Llama-2-7b-hf", "hgx-a100", 1e3 / 41.3, "litgpt", "Lightning-AI/litgpt pull request 726"),
    Row("decode:llama2-7b", "hgx-a100", 1e3 / 44.5, "ml-energy", "ml-energy/leaderboard pull request 20"),
    Row("decode:llama2-13b", "hgx-a100", 1e3 / 30.0, "ml-energy", "the same"),
    Row("decode:llama2-7b", "pcie4-8-p2p", 33.4, "transformers-29651", "huggingface/transformers issue 29651"),
    Row("decode:qwen2.5-7b", "hgx-h100", 17.0, "arXiv", "arXiv 2605.30571, from 27 % of the bound by memory"),
    Row("train:opt-sdpa", "l40s-8-p2p", 37.0, "transformers-33298", "huggingface/transformers pull request 33298"),
    Row("train:opt-eager", "l40s-8-p2p", 46.5, "transformers-33298", "the same"),
    Row("train:bert-sdpa", "hgx-a100", 18.0, "transformers-28802", "huggingface/transformers pull request 28802"),
    Row("train:bert-eager", "hgx-a100", 22.0, "transformers-28802", "the same"),
    Row("train:electra-sdpa", "hgx-a100", 24.2, "transformers-37106", "pull request 37106; the GPU is not named"),
    Row("train:electra-eager", "hgx-a100", 31.2, "transformers-37106", "the same"),
    Row("vtrain:4", "hgx-a100", 3.27, "vTrain", "VIA-Research/vTrain, 32 runs of Megatron-LM: TP 4, micro-batch 1"),
)


class Counted(NamedTuple):
    """What a recorded step has, its prediction in milliseconds, and what was measured.

    The prediction: of the GPU alone, with constants, and measured here for a usual processor. ``python_ms`` is what was
    measured, as on a processor of speed 1.
    """

    operators: float
    launches: float
    python_ms: float
    gpu_ms: float
    constants_ms: float
    measured_ms: float


def counted(recorded: Recording, machine: Machine) -> Counted:
    """Counts the work of the processor in a recording, and predicts it."""
    step = json.loads(recorded.step.to_json())
    rank = step["streams"]["ranks"][0]
    work = [one for one in rank["issued"] if one["work"] not in ("record", "stream_wait", "host_wait")]
    launches = sum(one.get("count", 1) * one.get("launches", 1) for one in work if not one.get("by_graph"))
    operators = rank["host"]["launches"]["operators"]
    rank["host"] = "timed"
    gpu = WorkStep.from_json(json.dumps(step))
    measured = recorded.host.in_step(recorded.step, None)
    of = [1e3 * machine.predict(one).seconds for one in (gpu, recorded.step, measured)]
    return Counted(operators, launches, 1e3 * sum(recorded.host.seconds) * recorded.host.speed, *of)


def recorded(script: Path, arguments: Sequence[str], machine: Machine) -> Counted:
    """Runs a step."""
    gpu, size = machine.fabric.gpu_model, machine.gpus
    request = Request(*(str(script), tuple(arguments)), world_size=size, gpu=gpu, is_quiet=True, measures_host=True)
    return counted(record(request), machine)


def of_row(row: Row) -> Counted:
    """Runs the step of a row; of vTrain two models, for a layer and micro-batch."""
    kind, _, name = row.name.partition(":")
    if kind != "vtrain":
        return recorded(SCRIPT, [row.name], Machine(fabric(row.machine), 1))
    arguments = ["--tensor-model-parallel-size", name, "--hidden-size", "2048", "--micro-batches", "4", "--layers"]
    few, many = (recorded(MEGATRON, [*arguments, layers], Machine(fabric(row.machine), int(name))) for layers in "48")
    return Counted(*((more - less) / 16 for less, more in zip(few, many, strict=True)))


def fitted(of: dict[str, list[float]], without: str = "") -> float:
    """Returns the median over the sources."""
    return statistics.median(statistics.geometric_mean(each) for source, each in of.items() if source != without)


def lines(rows: Sequence[Row], found: Sequence[Counted]) -> Iterator[str]:
    """Yields the table, and for both ways the fitted constant and the errors."""
    heads = ("row", "operators", "launches", "published", "GPU alone", "constants", "measured")
    yield f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}"
    for row, one in zip(rows, found, strict=True):
        times = " | ".join(f"{ms:.3g} ms" for ms in (row.published_ms, *one[3:]))
        yield f"| {row.name}, {row.where} | {one.operators:,.0f} | {one.launches:,.0f} | {times} |"
    limited = [(row, one) for row, one in zip(rows, found, strict=True) if one.gpu_ms < LIMITS * row.published_ms]
    for what, now, amount in (
        ("ms for an operator", OPERATOR_MS, [one.operators for _, one in limited]),
        ("the inverse of the usual speed", 1 / USUAL, [one.python_ms for _, one in limited]),
    ):
        of = defaultdict[str, list[float]](list)
        for (row, one), each in zip(limited, amount, strict=True):
            if each <= 0:
                continue  # the processor was not measured
            of[row.source].append((row.published_ms - one.launches * LAUNCH_MS) / each)
        yield f"\n{what}: {fitted(of):.4g} (now {now:.4g}), by source { ({s: round(of[s][0], 4) for s in of}) }"
        errors = defaultdict[str, list[float]](list)
        for (row, one), each in zip(limited, amount, strict=True):
            if each <= 0:
                continue
            host = each * fitted(of, row.source) + one.launches * LAUNCH_MS
            errors[row.source].append(max(one.gpu_ms, host) / row.published_ms - 1)
        means = {source: statistics.mean(each) for source, each in errors.items()}
        yield "left out: " + ", ".join(f"{source} {100 * error:+.0f} %" for source, error in means.items())
        yield f"median of the errors: {100 * statistics.median(map(abs, means.values())):.0f} %"


def main() -> None:
    """Prints the rows that are named, or all."""
    rows = [row for row in ROWS if row.name in sys.argv[1:] or not sys.argv[1:]]
    print("\n".join(lines(rows, [of_row(row) for row in rows])))


if __name__ == "__main__":
    main()
