"""Finds the tensors of kernels of torch.compile, Triton and extensions; the virtual GPU sees only their name and grid.

Times of kernels on a virtual GPU mean nothing, so autotuning takes the first choice.
"""

from __future__ import annotations

import importlib.util
import math
import re
import sys
from collections.abc import Callable, Mapping
from functools import cache, wraps
from importlib.machinery import ExtensionFileLoader
from types import ModuleType
from typing import Any

import torch

from nvcoll.dryrun.inside import private
from nvcoll.dryrun.inside.data import Data
from nvcoll.dryrun.inside.gpu import Gpu
from nvcoll.dryrun.inside.imports import OnFirstUse
from nvcoll.dryrun.inside.ops import Operators, Shapes
from nvcoll.dryrun.inside.rules import ALL, bytes_of
from nvcoll.dryrun.inside.seen import TABLES, WHOLE, Seen, seen_of
from nvcoll.dryrun.inside.tensors import tensors_of

TRIGGER = "torch._inductor.compile_fx"
"""The module that torch imports when it compiles for the first time."""


RECORDS = ("PyCapsule", "pybind11_detail_function_record")
"""Beginnings of names of what pybind11's functions are bound to, before its version 3 and since."""

OWN = ("torch", "functorch", "triton")
"""Packages whose functions make operators, or kernels that have rows."""

Run = Callable[..., object]
"""The method that launches a kernel."""


def install(recorder: Operators, data: Data) -> None:
    """Prepares Triton, and torch.compile when it is used."""
    sys.meta_path.insert(0, OnFirstUse(TRIGGER, lambda: _install(recorder, data)))
    if importlib.util.find_spec("triton") is not None:
        _install_triton(recorder, data)

    def around(execute: Run) -> Run:
        def executed(this: Any, module: ModuleType) -> None:
            execute(this, module)
            extend(module, recorder, data)

        return executed

    private.wrap(ExtensionFileLoader, "exec_module", around)


def extend(module: ModuleType, recorder: Operators, data: Data) -> None:
    """Makes functions of an extension, bound by pybind11, kernels of whose tensors only the bytes are known."""
    for name, each in list(vars(module).items()):
        record = type(getattr(each, "__self__", None)).__name__
        if record.startswith(RECORDS) and module.__name__.partition(".")[0] not in OWN:
            private.replace(module, name, kernel_of(each, f"{module.__name__}::{each.__name__}", recorder, data))


def kernel_of(function: Run, name: str, recorder: Operators, data: Data) -> Run:
    """Returns a function as a kernel of whose tensors only the bytes are known; an operator that calls it has a row."""

    @wraps(function)
    def recorded(*args: object, **kwargs: object) -> object:
        tensors = tensors_of(args, kwargs)
        if recorder.is_within or not any(each.is_cuda for each in tensors):
            return function(*args, **kwargs)
        with recorder.kernel(name, tensors, is_bound=True):
            result = function(*args, **kwargs)
            tensors += tensors_of(result)
        data.forget_fresh(tensors)
        return result

    return recorded


def stand_in(gpu: Gpu, recorder: Operators, data: Data, name: str) -> Run:
    """Returns a function that launches a kernel by its name, in the place of one whose code is not there."""

    def launched(*args: object, **kwargs: object) -> None:
        tensors = tensors_of(args, kwargs)
        with recorder.kernel(name, tensors, Seen(read=_rows(tensors)), is_bound=True):
            gpu.launch(name, torch.cuda.current_stream().cuda_stream)
        data.forget_fresh(tensors)

    return launched


def _rows(tensors: list[torch.Tensor]) -> dict[int, int]:
    """Returns the bytes of tensors with more rows than there are indices: of as many rows as indices."""
    most = max((len(each) for each in tensors if each.dim() == 1 and not each.is_floating_point()), default=0)
    longer = [each for each in tensors if most and each.dim() > 1 and len(each) > most]
    return {id(each): most * bytes_of(each) // len(each) for each in longer}


def _install_triton(recorder: Operators, data: Data) -> None:
    def around(run: Run) -> Run:
        def recorded(this: Any, *args: object, **kwargs: object) -> object:
            tensors = tensors_of(args, kwargs)
            data.forget_fresh(tensors)
            named = {name.removesuffix("_ptr"): each for name, each in zip(this.arg_names, args, strict=False)}
            seen = seen_of(named, data) if not TABLES.isdisjoint(named) else WHOLE
            if "embedding" in this.__name__:
                seen = Seen(read=_rows(tensors))
            experts = _experts(named) if this.__name__.endswith("_matmul_ogs") else ()
            with recorder.kernel(this.__name__, tensors, seen, not (seen.pairs or experts), experts):
                return run(this, *args, **kwargs)

        return recorded

    private.take_first_configuration()
    private.wrap(private.triton_function(), "run", around)


def _experts(named: Mapping[str, Any]) -> Shapes:
    """Returns the products of triton_kernels, which gpt-oss has, as of vLLM's kernel (`parent.products`).

    Its weights are packed for the GPU: sizes are arguments. Each row has a gathered index, or is one before.
    """
    rows, weights, made = named["XPtr"], named["WPtr"], named["YPtr"]
    gathered, of_token = named["GatherIndx"], named["N_EXPTS_ACT"]
    tokens = (rows.shape[-2] if gathered is None else len(gathered)) // of_token
    kept = "mxfp4" if weights.dtype is torch.uint8 else str(weights.dtype).removeprefix("torch.")
    dtype = str(rows.dtype).removeprefix("torch.")
    sizes = len(weights), named["N"], named["K"]
    return (tuple(rows.shape), dtype), (sizes, kept), ((tokens, of_token, made.shape[-1]), dtype)


def _install(recorder: Operators, data: Data) -> None:
    def around(run: Run) -> Run:
        def recorded(this: Any, *args: object, **kwargs: object) -> object:
            tensors = [each for each in args if isinstance(each, torch.Tensor)]
            names = getattr(this.fn, "arg_names", ())
            called = {id(each): name for name, each in zip(names, args, strict=False)}
            written = [each for each in tensors if "out_ptr" in called.get(id(each), "")]
            data.forget([each for each in written if each.is_cuda])
            name = this.inductor_meta.get("kernel_name") or "triton"
            pairs, is_own = _pairs(name, tensors, data), this.heuristic_type.name == "USER_AUTOTUNE"
            sizes: list[Any] = [
                args[at] if at < len(args) else 0 for at, arg in enumerate(names) if arg.endswith("numel")
            ]
            work = math.prod(sizes) if sizes else 0
            plain = {
                id(each): plain_loads(getattr(this.fn, "src", ""), arg) for arg, each in zip(names, args, strict=False)
            }
            read = bytes_read(name, tensors, written, work, plain)
            with recorder.kernel(name, tensors, Seen((), pairs, pairs > 0, read), is_bound=is_own):
                return run(this, *args, **kwargs)

        return recorded

    private.take_first_choice()
    private.wrap(private.autotuner(), "run", around)


@cache
def plain_loads(source: str, pointer: str) -> int:
    """Returns at how many addresses each element of a kernel's work reads a tensor, whatever its masks; at least 1.

    Loads behind a mask of their own are the branches of a concatenation: each element takes one of them.
    """
    loads = re.findall(rf"tl\.load\({pointer} \+ \((.*)\), (?:None|(?:\w*mask)(?: & \w*mask)*)[,)]", source)
    return max(1, len(set(loads)))


def bytes_read(
    name: str, tensors: list[torch.Tensor], written: list[torch.Tensor], work: int = 0, plain: Mapping[int, int] = ALL
) -> dict[int, int]:
    """Returns the bytes that a kernel reads of large tensors, if it reads parts.

    Each element of its work reads one at each address; of a kernel that is pointwise it is one that it writes. A table
    is read a row for each integer.

    Args:
        name: the kernel's name.
        tensors: its tensors.
        written: the results among them.
        work: the elements of its work.
        plain: for each tensor the addresses at which an element of the work reads it.
    """
    results = {id(each) for each in written}
    rows = max((each.numel() for each in tensors if not each.is_floating_point()), default=sys.maxsize)
    tables = [each for each in tensors if each.dim() == 2 and len(each) > rows and id(each) not in results]
    looked_up = {id(each): rows * each.shape[1] for each in tables}
    if "embedding" in name and not name.startswith("triton_poi"):
        return {id(each): looked_up[id(each)] * each.element_size() for each in tables}
    most = sum(each.numel() for each in written) if name.startswith("triton_poi") else work
    found = {}
    for each in tensors if most else ():
        read = min(most * plain.get(id(each), 1), looked_up.get(id(each), sys.maxsize))
        if read < each.numel():
            found[id(each)] = read * each.element_size()
    return found


def _pairs(name: str, tensors: list[torch.Tensor], data: Data) -> int:
    """Returns twice the pairs of a query and a key that a kernel of FlexAttention sees; 0: not known.

    A mask is tensors: how many blocks of keys it cuts for each block of queries, and which; how many it leaves whole,
    and which. In the backward pass also for each block of keys. Half of a block that is cut counts as seen.
    """
    whole = [each for each in tensors if each.dtype is torch.int32]
    counts, tables = ([each for each in whole if each.dim() == dims] for dims in (3, 4))
    if "flex_attention" not in name or not counts or not tables or any(map(data.is_unknown, counts)):
        return 0
    ways = 2 if "backward" in name else 1
    blocks = sum(int(data.mirror(each).sum()) * (1 if i < ways else 2) for i, each in enumerate(counts)) / ways
    queries, keys = (max(each.shape[1:3]) for each in tensors[:2])
    return int(blocks * queries * keys / tables[0].numel())
