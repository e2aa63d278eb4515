"""Matrix products of a recording: their precision, bytes, and convolutions as products."""

from __future__ import annotations

import json
import math
from functools import cache
from typing import NotRequired, TypedDict

from nvcoll._nvcoll import training_constants
from nvcoll.dryrun.parent.rows import Product
from nvcoll.dryrun.wire.rank_recording import Op


class Gemm(TypedDict):
    """Arguments of `nvcoll._nvcoll.RankBuilder.gemm`."""

    m: float
    n: float
    k: float
    dtype: str
    batch: NotRequired[float]
    experts: NotRequired[bool]


class Routed(Gemm):
    """The same, of experts of which only some are reached."""

    nbytes: float
    widened: float


TYPES = {0: "fp32", 1: "fp64", 2: "fp16", 3: "int8", 10: "int8", 14: "bf16", 28: "fp8", 29: "fp8", 33: "fp4"}
"""The precision of a product by the cudaDataType of its inputs."""

NBYTES = {0: 4, 1: 8, 2: 2, 3: 1, 10: 4, 14: 2, 28: 1, 29: 1, 33: 0.5}
"""Bytes of an element by cudaDataType."""

WIDTHS = {"float64": 8, "bfloat16": 2, "float16": 2, "int8": 1, "uint8": 1, "mxfp4": 17 / 32}
"""Bytes of an element by the name of its type in torch; other floats of 8 bits have 1, all others 4. Each 32 of mxfp4
have a scale of 8 bits."""


def width(dtype: str) -> float:
    """Returns the bytes of an element by the name of its type in torch."""
    return WIDTHS.get(dtype, 1 if dtype.startswith("float8") else 4)


TF32 = frozenset({77, 75, 74})
"""Compute types of cuBLAS by which fp32 goes through tensor cores: CUBLAS_COMPUTE_32F_FAST_TF32, _16BF, _16F."""


def precision_of(types: int) -> str:
    """Returns the precision of a product from the types of its record (`Kind.GEMM`)."""
    inputs, compute = types & 0xFF, types >> 32
    return "tf32" if inputs == 0 and compute in TF32 else TYPES.get(inputs, "fp32")


def gemm_of(product: Product) -> Gemm:
    """Returns the operation of a record of a product."""
    m, n, k, batch, _, types = product
    return {"m": m, "n": n, "k": k, "dtype": precision_of(types), "batch": max(1, batch)}


def bytes_of(product: Product) -> float:
    """Returns the bytes that a product reads and writes."""
    m, n, k, batch, _, types = product
    inputs, outputs = NBYTES.get(types & 0xFF, 2), NBYTES.get(types >> 8 & 0xFF, 2)
    return max(1, batch) * ((m * k + k * n) * inputs + m * n * outputs)


def _filters(op: Op) -> tuple[int, ...]:
    """Returns the shape of the filters of a convolution: filters, input channels of each, and their points."""
    shapes = [shape for shape, _ in op.inputs[2 if "backward" in op.name else 1 :]]
    return next((shape for shape in shapes if len(shape) >= 3), (1, 1))


def is_convolution(op: Op) -> bool:
    """Says whether an operator is a convolution, or the gradients of one."""
    return "convolution" in op.name and op.flops > 0 and len(op.inputs) > 1


def bytes_of_convolution(op: Op) -> tuple[float, float, float]:
    """Returns the bytes of input, output and filters of a convolution, or of gradient of the output, input, filters."""
    backward = "backward" in op.name
    sizes = [float(math.prod(shape) * width(dtype)) for shape, dtype in op.inputs[: 3 if backward else 2]]
    return sizes[0], sizes[1] if backward else max(0.0, op.bytes - sum(sizes)), sizes[-1]


GRADIENTS = 3
"""Times of the gradients of depthwise convolutions, in those of their bytes: sums over all pixels occupy few SMs.
Chosen: timm's tables of RTX 3090, mobilenetv3_large_100 and convnext_base, both layouts."""


UNPACKS = {"aten::_weight_int4pack_mm": 1.5}
"""Times of products that unpack weights, in those of their bytes. Chosen: Llama-2-70B in gpt-fast's README reads
weights of 4 bits at 1,098 GB/s on A100, whose memory reaches 1,700."""


STORES = ("vllm::unified_kv_cache_update", "vllm::unified_mla_kv_cache_update")
"""Operators that write to the cache what they read."""


def is_depthwise(op: Op) -> bool:
    """Says whether each filter of a convolution reads one channel of several: bytes limit its kernels."""
    return _filters(op)[1] == 1 and any(shape[1] > 1 for shape, _ in op.inputs[:1] if len(shape) >= 3)


def passes_of(op: Op) -> float:
    """Returns the time of an operator's kernels that move its bytes, in that of its bytes."""
    is_gradient = is_convolution(op) and is_depthwise(op) and "backward" in op.name
    return GRADIENTS if is_gradient else 2 if op.name in STORES else UNPACKS.get(op.name, 1)


def convolution(op: Op, launches: int) -> Gemm:
    """Returns a product of the same FLOPs as one launch of a convolution: pixels x filters x weights of a filter."""
    filters = _filters(op)
    n, k = filters[0], max(1, math.prod(filters[1:]))
    dtype = {"bfloat16": "bf16", "float16": "fp16"}.get(op.inputs[0][1] if op.inputs else "", "tf32")
    return {"m": op.flops / launches / (2 * n * k), "n": n, "k": k, "dtype": dtype}


PRECISIONS = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "int8": "int8", "float4_e2m1fn_x2": "fp4"}
"""Precision of products outside of cuBLAS by the name of the type of their first tensor; others have fp8."""


def product_of(op: Op) -> Gemm | None:
    """Returns the product of an operator whose kernel is not of cuBLAS, at the rate of its first tensor; None: none."""
    shapes = [(shape, dtype) for shape, dtype in op.inputs if dtype in PRECISIONS or dtype.startswith("float8")]
    if not op.flops or len(op.inputs) < 2 or not shapes or len(shapes[0][0]) < 2:
        return None
    shape, dtype = shapes[0]
    m, k = math.prod(shape[:-1]), shape[-1]
    return {"m": m, "n": op.flops / (2 * m * k), "k": k, "dtype": PRECISIONS.get(dtype, "fp8")}


GROUPED = ("aten::_grouped_mm", "aten::_scaled_grouped_mm")
"""Operators that multiply the rows of each expert by its weights, in one kernel outside of cuBLAS."""


ROUTED = ("fused_moe_kernel", "_matmul_ogs", "_p_matmul_ogs")
"""Kernels of Triton that multiply rows by the weights of their experts: of vLLM and SGLang, and of gpt-oss."""


@cache
def experts_skew() -> float:
    """Returns how unevenly tokens choose experts: the variance of their popularity over the square of its mean."""
    return next(float(row["value"]) for row in json.loads(training_constants()) if row["name"] == "experts_skew")


def _routed(op: Op, holders: int) -> Routed:
    """Returns the products of (tokens, k) and (experts, n, k) into (tokens, experts of a token, elements).

    SGLang's are of one dimension less if they are not the last: (tokens, experts of a token) comes behind them.
    Experts are drawn independently, as unevenly as the planner says, of all holders: of few tokens the weights of some
    are not read.
    """
    (one, dtype), (weights, kept), (result, _) = op.inputs[:3]
    (tokens, of_token), made = (result if len(result) == 3 else op.inputs[3][0])[:2], result[-1]
    experts, n, k = weights
    skew = experts_skew()
    first, drawn = of_token / holders, of_token / (experts * holders)
    reached = first + (experts - first) * (1 - (1 + skew * drawn * (tokens - 1)) ** (-1 / skew))
    rows = tokens * of_token / holders
    read = reached * n * k * width(kept)
    moved = read + (min(math.prod(one), rows * k) + rows * made) * width(dtype)
    precision, widened = PRECISIONS.get(dtype, "fp8"), read if width(kept) < width(dtype) / 2 else 0
    of_expert: Gemm = {"m": rows / reached, "n": n, "k": k, "batch": reached, "dtype": precision, "experts": True}
    return {**of_expert, "nbytes": moved, "widened": widened}


def is_routed(op: Op) -> bool:
    """Says whether an operator is a kernel of a server that multiplies the rows of each expert by its weights."""
    dims = [len(shape) for shape, _ in op.inputs]
    return op.name in ROUTED and (dims[1:3] == [3, 3] or dims[1:4] == [3, 2, 2])


def bytes_between(product: Op, following: Op, around: Op) -> float:
    """Returns the bytes of the kernel after a product of experts: it reads the result, and writes rows of another.

    Args:
        product: the product.
        following: the next product of experts: the rows are its input, if it has a row for each result.
        around: the operator around both, else: it sums the results of each token.
    """
    result, dtype = product.inputs[2]
    into = following if following.inputs and following.inputs[0][0][0] == math.prod(result[:-1]) else around
    return (math.prod(result) + math.prod(into.inputs[0][0])) * width(dtype)


def grouped(op: Op, holders: int = 1) -> Gemm | Routed | None:
    """Returns the products of experts, assumed to be equal, which some ranks share; None: the operator makes none.

    Its tensors are (rows, k) and (experts, k, n); or (experts, m, k) and (k, rows); or, for gradients of weights,
    (m, rows) and (rows, n). A third tensor has the last row of each expert.
    """
    if is_routed(op):
        return _routed(op, holders)
    if op.name not in GROUPED or len(op.inputs) < 2:
        return None
    (one, dtype), (other, _) = op.inputs[:2]
    ends = [shape for shape, kind in op.inputs[2:] if kind == "int32" and len(shape) == 1]
    experts = one[0] if len(one) == 3 else other[0] if len(other) == 3 else ends[0][0] if ends else 1
    m, k, n = float(one[-2]), float(one[-1]), float(other[-1])
    if len(one) == 2 and len(other) == 3:
        m /= experts
    elif len(one) == 3 and len(other) == 2:
        n /= experts
    elif len(one) == 2:
        k /= experts
    return {"m": m, "n": n, "k": k, "batch": experts, "dtype": PRECISIONS.get(dtype, "fp8"), "experts": True}
