"""How planned iterations of model servers agree with those that the server makes in a dry run; prints the table.

    python tests/lib/agreement.py

Recorded ones are files of `tests/serving/recorded`: vLLM 0.33.0, eight layers of each model, eight requests of 2,048
tokens, CUDA graphs. Each was made on a machine that has vLLM, with the model's config.json in a folder of its name::

    nvcoll dryrun --serve --no-cache -n TP --on hgx-h100 --save MODEL-tpTP.json.gz --requests 8x2048 \
        vllm serve MODEL --tensor-parallel-size TP

Bytes are those of kernels. The processor's time is left out: of eight layers it is larger than the GPU's.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from nvcoll.dryrun.parent.recording import Recording
from nvcoll.serving.options import asked
from nvcoll.training.models import models
from nvcoll.training.planning import Machine

FAMILIES = {
    **{"llama3-8b": "bf16", "qwen3-8b": "bf16", "qwen3-30b-a3b": "bf16"},
    **{"deepseek-v2-lite": "bf16", "gpt-oss-20b": "mxfp4"},
}
"""The models, and the formats of their weights."""

EVEN = {"experts_skew": 1e-9, "widened_weights": 1.284}
"""What recorded ones were counted with: experts were drawn alike then."""

RECORDED = Path(__file__).parents[1] / "serving" / "recorded"
ON = "hgx-h100"


@dataclass(frozen=True)
class Counted:
    """What the kernels of an iteration of one rank do."""

    flops: float
    nbytes: float
    kernels: float
    calls: list[tuple[str, float]]
    seconds: float

    @classmethod
    def of(cls, step, machine):
        """Counts a step, and prices it on a machine."""
        ops, found = _ops(step), machine.predict(step)
        calls = [(op["pattern"], op["bytes"]) for op in ops if op["work"] == "collective" for _ in range(_count(op))]
        kernels = sum(_count(op) * op.get("launches", 1) for op in ops if _nbytes(op) is not None)
        nbytes = sum(_count(op) * (_nbytes(op) or 0.0) for op in ops)
        seconds = found.seconds - found.parts.get("host", 0.0)
        return cls(step.flops() / step.gpus, nbytes, kernels, sorted(calls), seconds)


def _ops(step):
    return json.loads(step.to_json())["streams"]["ranks"][0]["issued"]


def _count(op):
    return round(op.get("count", 1))


def _nbytes(op):
    """The bytes that a kernel reads and writes; None: the operation is none."""
    if op["work"] == "copy":
        return 2 * op["bytes"] if op["direction"] == "d2d" else None
    if op["work"] == "gemm" and "bytes" not in op:
        return 2 * op.get("batch", 1) * (op["m"] * op["k"] + op["k"] * op["n"] + op["m"] * op["n"])
    return op.get("bytes", 0.0) if op["work"] in ("gemm", "attention", "move") else None


def planned(name, tp, step, machine, layers):
    """Returns the planned iteration of the same batch as a recorded one."""
    seen = [op for op in _ops(step) if op["work"] == "attention"]
    widest = max(seen, key=lambda op: op["keys"])  # a layer without a window
    sequences, tokens = widest["sequences"], widest["sequences"] * widest["queries"]
    pairs = tokens * widest["keys"]
    batch = {"decodes": sequences, "cached": pairs - sequences}
    if tokens > sequences:
        batch = {"prompts": sequences, "tokens": tokens, "pairs": pairs}
    quiet = {"iteration_us": 0, "sequence_us": 0}
    model = {**models()[name], "layers": layers}
    request = {**asked(model, {"precision": FAMILIES[name], "overrides": quiet}), "layout": {"tensor": tp}}
    return machine.pricer.iteration(json.dumps(request), json.dumps(batch), EVEN)


def compared(recording, name, tp, layers):
    """Yields, for each iteration of a recording: its words, what it does, and what the planned one does."""
    machine = Machine(ON, tp)
    for one in (recording, *recording.also):
        step = one.step
        both = (Counted.of(each, machine) for each in (step, planned(name, tp, step, machine, layers)))
        yield one.facts["served"]["words"], *both


def recordings():
    """Yields the model, ranks and recording of each file."""
    for file in sorted(RECORDED.glob("*-tp*.json.gz")):
        name, _, tp = file.name.removesuffix(".json.gz").rpartition("-tp")
        yield name, int(tp), Recording.load(file)


def layers_of(name):
    """Returns the layers of a model that was recorded."""
    return json.loads((RECORDED / "models" / f"{name}.json").read_text())["num_hidden_layers"]


def main():
    """Prints the table."""
    columns = [f"{kind}: {what}" for kind in ("decode", "prefill") for what in ("FLOPs", "bytes", "kernels", "time")]
    print(f"| model | TP | {' | '.join(columns)} |\n|{'---|' * (2 + len(columns))}")
    for name, tp, recording in recordings():
        cells = [models()[name]["title"], str(tp)]
        for _, own, plan in compared(recording, name, tp, layers_of(name)):
            off = [f"{100 * (getattr(plan, what) / getattr(own, what) - 1):+.1f} %" for what in ("flops", "nbytes")]
            times = f"{plan.seconds * 1e3:.3g}, {own.seconds * 1e3:.3g} ms"
            cells += [*off, f"{plan.kernels:.0f}, {own.kernels:.0f}", times]
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
