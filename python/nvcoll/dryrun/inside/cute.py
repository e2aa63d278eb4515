"""Kernels in CuTe's DSL: their host code finds the virtual GPU before NVIDIA's runtime, which has a CUDA of its own.

Of their tensors the bytes are known.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from nvcoll.dryrun.inside import private
from nvcoll.dryrun.inside.compiled import kernel_of
from nvcoll.dryrun.inside.data import Data
from nvcoll.dryrun.inside.imports import AfterImport
from nvcoll.dryrun.inside.ops import Operators

LIBRARY = Path(__file__).parents[1] / "libnvcoll_vgpu.so"
"""The virtual GPU, which is preloaded; it has the functions of `libcute_dsl_runtime.so`."""


def install(recorder: Operators, data: Data) -> None:
    """Names the virtual GPU first among the libraries of kernels that CuTe compiles, and gives the kernels rows."""

    def around(find: Callable[[str], str | None]) -> Callable[[str], str]:
        return lambda prefix: os.pathsep.join(filter(None, (str(LIBRARY), find(prefix))))

    def recording(call: Callable[..., object]) -> Callable[..., object]:
        def recorded(this: Any, *args: object, **kwargs: object) -> object:
            return kernel_of(partial(call, this), this.function_name, recorder, data)(*args, **kwargs)

        return recorded

    def name_first(module: Any) -> None:
        private.wrap(module, "get_prefix_dsl_libs", around)

    def record(module: Any) -> None:
        for made in (module.TVMFFIJitCompiledFunction, module.TVMFFIJitCompiledFunctionWithKwargs):
            private.wrap(made, "__call__", recording)

    sys.meta_path.insert(0, AfterImport("cutlass.base_dsl.env_manager", name_first))
    sys.meta_path.insert(0, AfterImport("cutlass.cutlass_dsl.tvm_ffi_provider", record))
