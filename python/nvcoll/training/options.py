"""The options of a planned step, once: keywords of `plan` and `sweep`, options of ``nvcoll plan``, words of files.

``rust/nvcoll-step/src/options.rs`` makes layouts of them. What `nvcoll.training.sweep` finds has its layout in the same
words, so ``plan(model, on=machine, **best.layout)`` plans it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple, TypedDict, get_args

Fields = Mapping[str, Any]
"""The fields of a model or of software, by name."""

Dtype = Literal["bf16", "fp16", "fp8", "fp4", "tf32"]
Schedule = Literal["1f1b", "gpipe", "interleaved", "zero-bubble-1p", "zero-bubble-2p", "dualpipe"]
Order = Literal["tp-cp-dp-pp", "tp-cp-pp-dp"]
Recompute = Literal["none", "selective", "full"]
FrozenFormat = Literal["nf4", "nf4-dq", "int8"]
Optimizer = Literal["adamw", "adamw-8bit", "paged-adamw", "paged-adamw-8bit", "adafactor", "lion", "sgd", "muon"]

GLOBAL_BATCH: Final = 256
"""The sequences of a step by default. Chosen: 2 million tokens of 8,192."""

SOFTWARE: Final = "megatron-core"
"""The software by default."""


class Help(NamedTuple):
    """What ``--help`` says of an option, and the least value; an option without is of Python and of files alone."""

    text: str
    least: int | None = None


class PlanOptions(TypedDict, total=False):
    """What to plan, besides model and machine; what is absent has its default."""

    global_batch: Annotated[int, Help(f"Sequences of a step. Default: {GLOBAL_BATCH}.", 1)]
    micro_batch: Annotated[int, Help("Sequences of a micro-batch on one rank. Default: 1.", 1)]
    sequence: Annotated[int | None, Help("Tokens of a sequence. Default: the model's.", 1)]
    tp: Annotated[int, Help("Tensor-parallel ranks. Default: 1.", 1)]
    pp: Annotated[int, Help("Stages of the pipeline. Default: 1.", 1)]
    vp: Annotated[int, Help("Chunks of each stage (virtual stages). Default: 1.", 1)]
    cp: Annotated[int, Help("Context-parallel ranks. Default: 1.", 1)]
    ep: Annotated[int, Help("Expert-parallel ranks. Default: 1.", 1)]
    dp: Annotated[int | None, Help("Data-parallel ranks. Default: all GPUs that TP, PP and CP leave.", 1)]
    zero: Annotated[int, Help("ZeRO stage, 0 to 3: shards optimizer (1), gradients (2), parameters (3). Default: 1.")]
    shard_ranks: Annotated[int | None, Help("Ranks that share one sharded copy (HSDP). Default: all.", 1)]
    recompute: Annotated[Recompute | Mapping[str, float], Help("Activation recomputation; selective: attention only.")]
    dtype: Annotated[Dtype, Help("Precision of matrix products. Default: bf16.")]
    schedule: Annotated[Schedule | None, Help("Schedule of the pipeline. Default: 1f1b, or interleaved with --vp.")]
    order: Annotated[Order, Help("Order of ranks, innermost first. Default: tp-cp-dp-pp.")]
    software: Annotated[str | Fields, Help(f"The framework; --list names them. Default: {SOFTWARE}.")]
    lora: Annotated[int, Help("Rank of LoRA adapters on a frozen base. Default: all parameters are trained.", 1)]
    lora_targets: Annotated[str, Help("Modules with adapters: all, attention, mlp, or as q,v,down. Default: all.")]
    dora: Annotated[bool, Help("Adapters with magnitudes (DoRA).")]
    quantize: Annotated[FrozenFormat, Help("Format of the frozen base; nf4-dq: double quantisation. Default: bf16.")]
    optimizer: Annotated[Optimizer, Help("The optimizer. Default: adamw.")]
    pure_bf16: Annotated[bool, Help("Parameters, gradients and optimizer in bf16, without a master copy in fp32.")]
    optimizer_in_backward: Annotated[bool, Help("Run the optimizer in the backward pass, gradient by gradient.")]
    offload: Annotated[str, Help("What waits in RAM: optimizer, parameters, activations, with commas.")]
    loss_chunks: Annotated[int, Help("Chunks of tokens for which logits exist one after the other. Default: 1.", 1)]
    document: Annotated[int, Help("Tokens of a document in a packed sequence, within which attention stays.", 1)]
    filled: Annotated[float, Help("Part of a padded sequence that tokens fill. Default: 1.", 0)]
    frozen: Annotated[int, Help("First layers that are frozen, with the embedding. Default: none.", 1)]
    mtp: Annotated[int, Help("Layers of multi-token prediction behind the last layer. Default: none.", 1)]
    imbalance: Annotated[float, Help("Tokens of the fullest expert-parallel rank, in means. Default: 1.", 1)]
    sequence_parallel: bool
    overrides: Fields


SCHEDULES: Final = get_args(Schedule)

RECIPE: Final = (
    *("lora", "lora_targets", "dora", "quantize", "optimizer", "pure_bf16", "optimizer_in_backward", "offload"),
    *("loss_chunks", "document", "filled", "frozen", "mtp", "imbalance"),
)
"""The words of what is trained and where its state is kept, which a sweep leaves as they are."""

RECOMPUTE: Final[Mapping[str, Recompute]] = {name: name for name in get_args(Recompute)}
"""What can be computed again, by its name."""

PARTS_OF_LAYERS: Final = ("gemm", "attention", "elementwise")
"""The parts of a layer that can be computed again in part."""
