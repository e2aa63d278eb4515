"""Finds the tensors of kernels that torch.compile and Triton made; the virtual GPU sees only their name and grid.

Times of kernels on a virtual GPU mean nothing, so autotuning takes the first choice.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from typing import Any

import torch

from nvcoll.dryrun.inside import private
from nvcoll.dryrun.inside.data import Data
from nvcoll.dryrun.inside.ops import Operators
from nvcoll.dryrun.inside.tensors import tensors_of

TRIGGER = "torch._inductor.compile_fx"
"""The module that torch imports when it compiles for the first time."""


Run = Callable[..., object]
"""The method that launches a kernel."""


class OnFirstUse(MetaPathFinder):
    """Calls a function before a module is first imported: importing it now might cost seconds."""

    def __init__(self, module: str, install: Callable[[], None]) -> None:
        self._module, self._install = module, install

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        """Finds nothing; calls the function before the module is looked for."""
        if fullname == self._module:
            sys.meta_path.remove(self)
            self._install()


def install(recorder: Operators, data: Data) -> None:
    """Prepares Triton, and torch.compile when it is used."""
    sys.meta_path.insert(0, OnFirstUse(TRIGGER, lambda: _install(recorder, data)))
    if importlib.util.find_spec("triton") is not None:
        _install_triton(recorder, data)


def _install_triton(recorder: Operators, data: Data) -> None:
    def around(run: Run) -> Run:
        def recorded(this: Any, *args: object, **kwargs: object) -> object:
            tensors = tensors_of(args, kwargs)
            data.forget_fresh(tensors)
            with recorder.kernel(this.__name__, tensors):
                return run(this, *args, **kwargs)

        return recorded

    private.take_first_configuration()
    private.wrap(private.triton_function(), "run", around)


def _install(recorder: Operators, data: Data) -> None:
    def around(run: Run) -> Run:
        def recorded(this: Any, *args: object, **kwargs: object) -> object:
            tensors = [each for each in args if isinstance(each, torch.Tensor)]
            names = getattr(this.fn, "arg_names", ())
            written = [each for name, each in zip(names, args, strict=False) if "out_ptr" in name]
            data.forget([each for each in written if isinstance(each, torch.Tensor) and each.is_cuda])
            name = this.inductor_meta.get("kernel_name") or "triton"
            with recorder.kernel(name, tensors, _flex_attention_flops(name, tensors)):
                return run(this, *args, **kwargs)

        return recorded

    private.take_first_choice()
    private.wrap(private.autotuner(), "run", around)


def _flex_attention_flops(name: str, tensors: list[torch.Tensor]) -> int:
    """Returns FLOPs of a kernel of FlexAttention, counted as causal: its mask is a function inside of the kernel."""
    if "flex_attention" not in name or len(tensors) < 2 or not tensors[0].dim() == tensors[1].dim() == 4:
        return 0
    batch, one, two, width = tensors[0].shape  # heads and tokens in either order
    flops = int(2 * batch * one * two * max(tensors[1].shape[1:3]) * width)
    return flops * 5 // 2 if "backward" in name else flops
