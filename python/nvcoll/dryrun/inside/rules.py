"""Properties of an operator, looked up once, from its schema."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from nvcoll.dryrun.inside import private
from nvcoll.dryrun.inside.tensors import tensors_of

Args = Sequence[Any]
"""Arguments of an operator."""
Kwargs = dict[str, Any]
"""Arguments of an operator by name."""
NEW = ("empty", "new_empty")
"""Beginnings of names of operators whose results are uninitialized."""
NO_DATA = (
    *("record_stream", "resize_", "_resize", "set_", "is_pinned", "_assert_", "sym_"),
    *("_sparse_coo_", "_sparse_compressed_"),
)
"""Beginnings of names of operators that write no elements."""
NO_VALUES = ("zeros_like", "ones_like", "full_like", "rand", "new_zeros", "new_ones", "new_full")
"""Beginnings of names of operators that read shapes of tensors, and no values."""
FILLS = ("zero_", "fill_", "uniform_", "normal_", "random_", "bernoulli_.float")
"""Beginnings of names of operators that write a whole tensor without reading it."""
PLACES = (
    *("zero", "ones", "full", "eye", "new_zeros", "new_ones", "new_full", "fill", "clone", "copy_", "_to_copy"),
    *("tril", "triu", "where", "scatter", "masked_fill", "index", "_index_put", "gather", "cat", "stack"),
    *("sum", "cumsum", "mean", "prod", "amax", "amin", "mm", "bmm"),
)
"""Beginnings of names of other operators than pointwise ones by which masks, tables and distances are made."""
WRITES = ("copy_", "_foreach_copy_", "_foreach_zero_")
"""Beginnings of names of other operators that do not read what they write."""
CHOICES = ("topk", "argmax", "argmin", "max.dim", "min.dim", "sort", "argsort", "multinomial", "histc")
"""Operators that choose among values, or count them."""
READS_BACK = (
    "allclose",
    "isin",
    "histc",
    *("_linalg_", "linalg_", "cholesky", "lu_", "_lu_", "geqrf", "ormqr", "orgqr", "triangular_solve"),
    *("_cholesky", "masked_scatter_backward", "_embedding_bag_backward", "_to_sparse"),
)
"""Beginnings of names of operators whose kernels read a status or a count of the GPU, and decide by it."""

PRODUCTS = ("_mm", "gemm", "gemv_4bit", "_mixed_dtypes_linear")
"""Ends of names of operators whose kernels multiply, without a formula of torch: most have quantised weights."""

READ_TWICE = {"batch_norm": 1, "group_norm": 1, "norm_backward": 2}
"""The number of first tensors that kernels read twice, for statistics and for results, by the end of the name."""
CHANNELS_FIRST = 4
"""How often cuDNN reads them for batch norms if channels of images come first. Chosen: timm's tables for both layouts
differ by as much (RTX 3090, resnet18 and resnet50), without the copies for convolutions."""
SELECTS = (
    *("embedding", "index", "index_select", "gather", "take", "nll_loss_forward", "nll_loss2d_forward"),
    *("index_put_", "index_add_", "index_copy_", "scatter_", "scatter_add_", "scatter_reduce_"),
)
"""Operators that read or write of their first tensor no more than what the largest other tensor has."""


ALL: Mapping[int, int] = {}
"""No tensor is read in part."""


def bytes_of(tensor: torch.Tensor) -> int:
    """Returns the bytes of the elements in memory: all of an expanded dimension are one."""
    sizes = (size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
    return tensor.element_size() * math.prod(sizes) if tensor.numel() else 0


UNREAD = (
    *(
        "nll_loss_backward",
        "nll_loss2d_backward",
        "max_pool2d_with_indices_backward",
        "max_pool3d_with_indices_backward",
    ),
    *("avg_pool2d_backward", "avg_pool3d_backward", "_adaptive_avg_pool2d_backward", "adaptive_max_pool2d_backward"),
)
"""Operators that need of their second tensor, the input of the forward pass, the shape alone."""


def _backward_of_convolution(*args: Any, **_: object) -> int:
    """Returns FLOPs of gradients of input and weights, each as of the forward pass. torch's formula ignores groups."""
    gradient, images, filters, transposed, wanted = (args[at] for at in (0, 1, 2, 7, 10))
    points = (images if transposed else gradient).numel()
    return int(2 * points * math.prod(filters.shape[1:]) * sum(wanted[:2]))


class Rule:
    """One operator.

    Args:
        op: the operator, one overload.
    """

    def __init__(self, op: private.Operator) -> None:
        self.op = op
        self.handler: Callable[..., object] | None = None
        """A function that is called in its place (`Data.handlers`)."""
        name: Callable[[], str] = op.name
        self.name = name()
        """`aten::mm`, with the overload: `aten::add_.Tensor`."""
        self.shown = self.name.split(".")[0]
        """`aten::add_`."""
        schema = op._schema
        bare = self.name.split("::")[1]
        self.is_collective = op.namespace in ("c10d", "_c10d_functional")
        self.is_view = bool(op.is_view) or bare.startswith(("detach", "alias", "_unsafe_view"))
        self.leaves_data = self.is_view or bare.startswith(NO_DATA)
        """It writes no elements: results keep their contents."""
        self.is_from_host = bare.startswith("lift")
        """Its tensor was just filled by the host, as by `torch.tensor`."""
        self.is_new = bare.startswith(NEW)
        """Its results are uninitialized."""
        self.reads_no_values = op.namespace == "aten" and bare.startswith(NO_VALUES)
        self.fills = op.namespace == "aten" and bare.startswith(FILLS)
        self.zeroes = op.namespace == "aten" and bare.startswith(("zero", "new_zeros"))
        self.is_mutable = bool(schema.is_mutable)
        self.is_pointwise = torch.Tag.pointwise in op.tags
        self.places = op.namespace == "aten" and (self.is_pointwise or bare.startswith(PLACES))
        """Its large results have values if all that it reads has."""
        self.is_random = torch.Tag.nondeterministic_seeded in op.tags
        self.reads_back = op.namespace == "aten" and bare.startswith(READS_BACK)
        self.is_composite = op.has_kernel_for_dispatch_key(private.COMPOSITE)
        """It has no kernel of its own: autograd takes it apart, but not inside of another operator."""
        self.shape_is_data = torch.Tag.dynamic_output_shape in op.tags and not self.reads_back
        self.chooses = op.namespace == "aten" and bare.startswith(CHOICES)
        self.picks = self.chooses and bare.startswith(("topk", "arg", "multinomial"))
        """It is called for its indices."""
        self.counts = op.namespace == "aten" and bare.startswith("histc")
        self._flops = private.flop_registry.get(op.overloadpacket)
        if self.shown == "aten::convolution_backward":
            self._flops = _backward_of_convolution
        self.has_flops = self._flops is not None
        self._multiplies = not self.has_flops and self.shown.endswith(PRODUCTS)
        self._at = {each.name: i for i, each in enumerate(schema.arguments)}
        self._reads_twice = next((count for end, count in READ_TWICE.items() if self.shown.endswith(end)), 0)
        self.attends = not self._at.keys().isdisjoint(("query", "q"))
        """It may be attention."""
        self._looks_up = op.namespace != "aten" and "embedding" in bare
        self._selects = op.namespace == "aten" and self.shown.removeprefix("aten::") in SELECTS
        self._leaves_unread = op.namespace == "aten" and self.shown.removeprefix("aten::") in UNREAD
        self._rewrites = self.shown.endswith("_") and not self.fills and not bare.startswith(WRITES)
        self._mutated = [
            (i, each.name)
            for i, each in enumerate(schema.arguments)
            if each.alias_info is not None and each.alias_info.is_write
        ]

    def tensors_for(self, args: Args) -> Args:
        """Returns arguments whose numbers in the place of tensors are tensors, as kernels take them."""
        takes = [isinstance(each.type, torch.TensorType) for each in self.op._schema.arguments]
        return [
            torch.tensor(each) if is_tensor and isinstance(each, int | float | complex) else each
            for each, is_tensor in zip(args, takes, strict=False)
        ]

    def mutated(self, args: Args, kwargs: Kwargs, but: str = "") -> list[torch.Tensor]:
        """Returns the tensors among the arguments that the operator writes, except those of one name."""
        found: list[torch.Tensor] = []
        for i, name in self._mutated:
            if name == but:
                continue
            each = args[i] if i < len(args) else kwargs.get(name)
            if isinstance(each, torch.Tensor):
                found.append(each)
            elif isinstance(each, list | tuple):
                for inner in each:
                    found += inner if isinstance(inner, list | tuple) else [inner]
        return [each for each in found if isinstance(each, torch.Tensor)]

    def bytes_of(
        self,
        args: Args,
        kwargs: Kwargs,
        inputs: list[torch.Tensor],
        of: list[torch.Tensor],
        seen: Mapping[int, int] = ALL,
    ) -> int:
        """Returns the bytes that the kernels of a call read and write, of some tensors; `seen` has those of parts."""
        sizes = {id(each): seen.get(id(each), bytes_of(each)) for each in of}
        if self._leaves_unread:
            sizes[id(inputs[1])] = 0
        if self._looks_up and len(sizes) > 1:
            written = {id(each) for each in self.mutated(args, kwargs)}
            table = max((each for each in inputs if id(each) not in written), key=bytes_of, default=None)
            if table is not None and id(table) in sizes:
                sizes[id(table)] = min(sizes.pop(id(table)), max(sizes.values()))
        if self._selects and inputs and (first := sizes.pop(id(inputs[0]), 0)):
            sizes[id(inputs[0])] = min(first, max(sizes.values(), default=first))
        twice = self.mutated(args, kwargs, but="grads") if self._rewrites else []
        if self.flag("training", args, kwargs, default=True):
            is_slow = "batch_norm" in self.shown and inputs and inputs[0].dim() > 2 and inputs[0].stride(1) != 1
            twice += inputs[: self._reads_twice] * (CHANNELS_FIRST - 1 if is_slow else 1)
        return sum(sizes.values()) + sum(sizes.get(id(each), 0) for each in twice)

    def read_of(self, args: Args, kwargs: Kwargs, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """Returns the inputs, of a product without a formula but for those that it writes: they may come first."""
        written = {id(each) for each in self.mutated(args, kwargs)} if self._multiplies else set()
        return [each for each in inputs if id(each) not in written]

    def flops_of(self, args: Args, kwargs: Kwargs, result: object) -> int:
        """Returns FLOPs of a call as torch counts them; 0 if it has no formula for it, and it is no product."""
        if self._multiplies:
            given = self.read_of(args, kwargs, tensors_of(args))
            found = (self.mutated(args, kwargs) or tensors_of(result))[:1] if given else []
            return sum(2 * each.numel() * given[0].shape[-1] for each in found)
        if self._flops is None:
            return 0
        try:
            return int(self._flops(*args, **kwargs, out_val=result))
        except Exception:  # formulas expect the arguments that torch's own functions pass
            return 0

    def named(self, args: Args, kwargs: Kwargs) -> Kwargs:
        """Returns arguments by their names."""
        return dict(zip(self._at, args, strict=False)) | kwargs

    def flag(self, name: str, args: Args, kwargs: Kwargs, default: bool = False) -> bool:
        """Returns an argument that says yes or no."""
        at = self._at.get(name, len(args))
        return bool(args[at] if at < len(args) else kwargs.get(name, default))
