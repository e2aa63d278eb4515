"""A planned step and the recorded step of a real script agree: one model, two makers, one pricer.

The recordings are those of examples/llama_fsdp2.py. Two things of PyTorch 2.15 are not in the profile of FSDP2: it
takes cuDNN's attention on H100, and `torch.utils.checkpoint` stops early: what a backward pass computes again ends
before the last product of a layer, whose result nobody needs.
"""

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from nvcoll import training
from nvcoll.dryrun.parent.recording import Recording

RECORDINGS = Path(__file__).parents[2] / "docs" / "recordings"

CASES = {
    "llama3-8b-fsdp2": ("llama3-8b", "hgx-h100x8+ib-ndr-8", 64, "none"),
    "llama3-70b-fsdp2": ("llama3-70b", "hgx-h100x64+ib-ndr-8", 512, "full"),
}
"""Recordings: the model, the machine, its GPUs, and what the backward pass computes again."""


@cache
def planned(name: str) -> training.StepPrediction:
    model, machine, gpus, recompute = CASES[name]
    how = {"zero": 3, "dp": gpus, "global_batch": gpus, "sequence": 8192, "recompute": recompute}
    return training.plan(model, on=machine, software="fsdp2", overrides={"attention": "cudnn"}, **how)


@cache
def recorded(name: str) -> training.StepPrediction:
    step = Recording.load(RECORDINGS / f"{name}.json.gz").step
    return training.Machine(CASES[name][1]).predict(step)


def products(op: dict[str, Any]) -> float:
    """FLOPs of matrix products."""
    return 2 * op["m"] * op["n"] * op["k"] * op.get("count", 1) * op.get("batch", 1) if op["work"] == "gemm" else 0.0


def planned_products(step: dict[str, Any]) -> float:
    """FLOPs of the matrix products of a rank in a step without pipeline, with the early stop of checkpoints."""
    found = 0.0
    for run in step["layers"]["roles"][0]["chunks"][0]:
        block = step["layers"]["blocks"][run["block"]]
        forward = [products(op) for op in block["forward"] if op["work"] == "gemm"]
        backward = sum(map(products, [*block["backward"], *block["weights"]]))
        again = block["recompute"]["gemm"] * sum(forward[:-1])
        found += run["repeat"] * (sum(forward) + again + backward)
    return found * step["layers"]["pipeline"]["micro_batches"]


def every_product(step: dict[str, Any]) -> float:
    """FLOPs of the matrix products as planned, without the early stop."""
    runs = step["layers"]["roles"][0]["chunks"][0]
    again = sum(
        run["repeat"] * products([op for op in block["forward"] if op["work"] == "gemm"][-1])
        for run in runs
        if (block := step["layers"]["blocks"][run["block"]])["recompute"]["gemm"]
    )
    return planned_products(step) + again * step["layers"]["pipeline"]["micro_batches"]


def moved(prediction: training.StepPrediction, repeats: dict[str, int]) -> Counter[str]:
    """Bytes of a rank's collectives, by kind."""
    found: Counter[str] = Counter()
    for one in prediction.collectives:
        found[one.name.split()[-1]] += one.bytes * one.count * repeats.get(one.of, 1)
    return found


@pytest.mark.parametrize("name", CASES)
def test_the_flops_of_matrix_products_agree_within_5_percent(name):
    ops = json.loads(recorded(name).step.to_json())["streams"]["ranks"][0]["issued"]
    plan = planned_products(json.loads(planned(name).step.to_json()))
    assert sum(map(products, ops)) == pytest.approx(plan, rel=0.05)


@pytest.mark.parametrize("name", CASES)
def test_the_bytes_of_collectives_agree_within_5_percent(name):
    step = json.loads(planned(name).step.to_json())
    repeats = {run["block"]: run["repeat"] for run in step["layers"]["roles"][0]["chunks"][0]}
    plan = moved(planned(name), repeats)
    found = moved(recorded(name), {})
    for kind in ("all_gather", "reduce_scatter"):
        assert found[kind] == pytest.approx(plan[kind], rel=0.05), kind


@pytest.mark.parametrize("name", CASES)
def test_the_predicted_times_agree_within_3_percent(name):
    plan, found = planned(name), recorded(name)
    step = json.loads(plan.step.to_json())
    stopped = every_product(step) - planned_products(step)
    early_s = stopped * found.parts["gemm"] / planned_products(step)
    assert found.seconds == pytest.approx(plan.seconds - early_s, rel=0.03)


@pytest.mark.parametrize("name", CASES)
def test_the_memory_of_a_plan_is_that_of_tensors_within_a_fifth(name):
    def in_tensors(one: training.StepPrediction) -> float:
        return sum(size for part, size in one.memory[0].lines.items() if part != "reserved")

    assert in_tensors(recorded(name)) == pytest.approx(in_tensors(planned(name)), rel=0.20)
