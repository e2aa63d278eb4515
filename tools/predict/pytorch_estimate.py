"""What PyTorch's compiler believes that a collective takes: ``torch/_inductor/comm_analysis.py``, as a predictor.

It is a port of NCCL's own formula for rings and trees, with guesses in place of a topology: the generation of the GPU,
NVLink or not, GPUs per node. It asks the machine on which it runs for these; here they are answered from the table of
measurements, and nothing else is changed: it takes the trays of a rack for nodes with a network between them, and one
network port per GPU. It says nothing of other collectives than four, of AMD, and of an interval.

Sizes are those of NCCL's formula: all ranks together for gathers and the like.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from judging import Prediction, Row, System

COLLECTIVES = {
    "all_reduce": "ALL_REDUCE",
    "all_gather": "ALL_GATHER",
    "reduce_scatter": "REDUCE_SCATTER",
    "all_to_all": "ALL_TO_ALL",
}
"""How PyTorch calls a collective."""

GENERATIONS = (
    ("VOLTA", ("V100", "T4", "RTX 20")),
    ("AMPERE", ("A100", "RTX 30", "RTX 40")),
    ("HOPPER", ("H100", "H200", "GH200", "H20")),
    ("BLACKWELL", ("B200", "B300", "GB200", "GB300", "GB10", "RTX 50")),
)
"""PyTorch's generations, and the GPUs of the table that it takes for them by compute capability (8.x is AMPERE)."""


def generation(gpu: str) -> str | None:
    """Returns PyTorch's generation of a GPU, the one with the longest name that fits; nothing if it knows none."""
    fits = [(len(name), which) for which, names in GENERATIONS for name in names if name in gpu]
    return max(fits)[1] if fits else None


def predictor() -> Callable[[Row], Prediction | None] | None:
    """Returns the predictor; nothing if torch is not installed, or has another estimator than torch 2.15."""
    try:
        from torch._inductor import comm_analysis
    except ImportError:
        return None
    if not hasattr(comm_analysis, "estimate_nccl_collective_runtime_impl"):
        return None

    def predict(row: Row) -> Prediction | None:
        which = generation(row.system.facts["gpu"])
        if which is None or row.collective not in COLLECTIVES:
            return None
        with _on(comm_analysis, row.system, which):
            collective = comm_analysis.NCCL_COLL[COLLECTIVES[row.collective]]
            estimate = comm_analysis.estimate_nccl_collective_runtime_impl
            milliseconds: float = estimate(row.nbytes, row.system.n_gpus, collective)
        return Prediction(milliseconds * 1e3) if milliseconds > 0 else None

    return predict


def _on(comm_analysis: Any, system: System, which: str) -> ExitStack:
    """Answers what PyTorch asks its machine from the facts of a system."""
    gpu = comm_analysis.NVIDIA_GPU_TYPE[which]
    stack = ExitStack()
    for place, name, answer in (
        (comm_analysis, "get_gpu_type", gpu),
        (comm_analysis, "_has_nvlink", bool(system.facts["nvlink_gen"])),
        (comm_analysis.torch.cuda, "is_available", True),
        (comm_analysis.torch.cuda, "device_count", system.n_gpus // system.n_nodes),
    ):
        stack.enter_context(_answering(place, name, answer))
    return stack


@contextmanager
def _answering(place: Any, name: str, answer: object) -> Iterator[None]:
    """Has a function of a module give one answer, for a while."""
    before = getattr(place, name)
    setattr(place, name, lambda *_, **__: answer)
    try:
        yield
    finally:
        setattr(place, name, before)
