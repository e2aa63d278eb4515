//! cuBLAS: every matrix product in the log with its exact shape, everything else as a launch.
//!
//! ```text
//! gemm, batched, strided           kind 2: m, n, k, batch, transposes, types, compute type
//! gemv                             the same with n = 1
//! trsm, trmm, syrk, herk, ...      the same; k is such that 2 m n k are the operations that the call needs
//! axpy, dot, nrm2, ger, ...        kind 1: a launch under the name of the call
//! ```
//!
//! Matrices are column-major here, as cuBLAS has them: a product that torch calls (M, N) has m = N and n = M.
//! Results that a call hands to the host (`dot`, `nrm2`, `iamax` in pointer mode "host") are 0: there is no data.
//! Names, argument orders and numbers of enums are from NVIDIA's documentation, *cuBLAS*, sections 2 and 3.
mod launches;
mod lt;
mod products;
mod solves;
#[cfg(test)]
mod tests;

use std::ffi::c_int;

pub(crate) use products::{MatrixProduct, COMPUTE_32F, COMPUTE_64F, COMPUTE_TF32};

use crate::entry_points::{functions, number};
use crate::gpu::gpu;
use crate::handles::Handles;
use crate::{set, Answer, Failure, Handle, Out, Status};

/// What a handle of cuBLAS or cuBLASLt remembers.
#[derive(Clone, Copy, Default)]
struct Library {
    stream: Handle,
    math_mode: c_int,
    pointer_mode: c_int,
}

static LIBRARIES: Handles<Library> = Handles::new();

/// `cublasStatus_t`: not initialized, invalid value.
fn answer(body: impl FnOnce() -> Answer) -> Status {
    number(body(), 1, 7)
}

/// The version: 13.4 or 12.9, as cuBLAS codes it.
fn version() -> c_int {
    [130_401, 120_901][usize::from(gpu().cuda == 12)]
}

functions! { answer:
    cublasCreate_v2 cublasLtCreate(out: Out<Handle>) => LIBRARIES.make(out, Library::default());
    cublasDestroy_v2 cublasLtDestroy(handle: Handle) => LIBRARIES.remove(handle);
    cublasSetStream_v2(handle: Handle, stream: Handle) => LIBRARIES.change(handle, |library| library.stream = stream);
    cublasGetStream_v2(handle: Handle, out: Out<Handle>) => set(out, LIBRARIES.find(handle)?.stream);
    cublasSetMathMode(handle: Handle, mode: c_int) => LIBRARIES.change(handle, |library| library.math_mode = mode);
    cublasGetMathMode(handle: Handle, out: Out<c_int>) => set(out, LIBRARIES.find(handle)?.math_mode);
    cublasSetPointerMode_v2(handle: Handle, mode: c_int) => LIBRARIES.change(handle, |library| library.pointer_mode = mode);
    cublasGetPointerMode_v2(handle: Handle, out: Out<c_int>) => set(out, LIBRARIES.find(handle)?.pointer_mode);
    // A workspace is never written, and all multiprocessors are as good as some.
    cublasSetWorkspace_v2 cublasSetSmCountTarget(handle: Handle) => LIBRARIES.find(handle).map(drop);
    cublasGetVersion_v2(_handle: Handle, out: Out<c_int>) => set(out, version());
    // The major (0), minor (1) or patch (2) number of the version.
    cublasGetProperty(which: c_int, out: Out<c_int>) => match which {
        0 => set(out, version() / 10_000),
        1 => set(out, version() / 100 % 100),
        2 => set(out, version() % 100),
        _ => Err(Failure::INVALID_VALUE),
    };
}
