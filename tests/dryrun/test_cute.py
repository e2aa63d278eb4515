"""Kernels in CuTe's DSL: a package that has the names of NVIDIA's compiler, and host code as it compiles it."""

from dryrun_children import PATIENT, children, of_kind

from nvcoll.dryrun.wire.virtual_gpu import Kind

__all__ = ["children"]

pytestmark = PATIENT

LIBRARIES = """
def get_prefix_dsl_libs(prefix):
    return None if prefix == "NONE" else "runtime.so"
"""

COMPILED = """
import ctypes
import os
from cutlass.base_dsl.env_manager import get_prefix_dsl_libs

runtime = ctypes.CDLL(get_prefix_dsl_libs("CUTE_DSL").split(os.pathsep)[0])
place = ctypes.POINTER(ctypes.c_size_t)
load = ctypes.CFUNCTYPE(ctypes.c_int, place)(lambda library: runtime._cudaLibraryLoadData(library, None))


class Launch(ctypes.Structure):
    _fields_ = [("dims", ctypes.c_uint * 6), ("shared", ctypes.c_size_t), ("stream", ctypes.c_size_t)]


class TVMFFIJitCompiledFunction:
    function_name = "normalized"

    def __init__(self):
        self.library = ctypes.c_size_t()

    def __call__(self, *args):
        assert runtime.cuda_dialect_init_library_once(ctypes.byref(self.library), load, None, None) == 0
        kernel, launch = ctypes.c_size_t(), Launch((4, 1, 1, 32, 1, 1), 0, 0)
        assert runtime._cudaLibraryGetKernel(ctypes.byref(kernel), self.library, b"rmsnorm_kernel") == 0
        assert runtime._cudaLaunchKernelEx(ctypes.byref(launch), kernel, None) == 0


class TVMFFIJitCompiledFunctionWithKwargs(TVMFFIJitCompiledFunction):
    def __call__(self, *args, **kwargs):
        return super().__call__(*args)
"""

NORMALIZES = """
import torch
from cutlass.base_dsl.env_manager import get_prefix_dsl_libs
from cutlass.cutlass_dsl.tvm_ffi_provider import TVMFFIJitCompiledFunctionWithKwargs

print("libraries", get_prefix_dsl_libs("CUTE_DSL").split("/")[-1], get_prefix_dsl_libs("NONE").split("/")[-1])
normalized = TVMFFIJitCompiledFunctionWithKwargs()
layer = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.SGD(layer.parameters())
for _ in range(3):
    x, y = torch.randn(2, 1024, 1024, device="cuda")
    normalized(x, y, 1024, eps=1e-6)
    layer(y).sum().backward()
    optimizer.step()
"""


def test_kernels_launch_on_the_virtual_gpu_with_the_bytes_of_their_tensors(children, tmp_path):
    files = {"__init__": "", "base_dsl/__init__": "", "base_dsl/env_manager": LIBRARIES}
    files |= {"cutlass_dsl/__init__": "", "cutlass_dsl/tvm_ffi_provider": COMPILED}
    for name, text in files.items():
        file = tmp_path / "cutlass" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "normalizes.py").write_text(NORMALIZES)
    [(out, run, recording)] = children.run(tmp_path / "normalizes.py")
    assert run.status == "counted", out
    assert "libraries libnvcoll_vgpu.so:runtime.so libnvcoll_vgpu.so" in out
    [(number, found)] = [each for each in enumerate(recording.ops) if each[1].name == "normalized"]
    assert found.bytes == 2 * 1024 * 1024 * 4 and found.is_bound
    [launch] = [each for each in of_kind(recording, Kind.LAUNCH) if each["op"] == number]
    assert recording.names[launch["name"]] == "rmsnorm_kernel"
