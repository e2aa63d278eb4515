//! cuBLAS: every matrix product in the log with its exact shape, everything else as a launch.
//!
//! ```text
//! gemm, batched, strided, grouped  kind 2: m, n, k, batch, transposes, types, compute type
//! gemv                             the same with n = 1
//! trsm, trmm, syrk, herk, ...      the same; k is such that 2 m n k are the operations that the call needs
//! axpy, dot, nrm2, ger, ...        kind 1: a launch under the name of the call
//! ```
//!
//! Matrices are column-major here, as cuBLAS has them: a product that torch calls (M, N) has m = N and n = M.
//! Results that a call hands to the host (`dot`, `nrm2`, `iamax` in pointer mode "host") are 0: there is no data.
//! An entry point that declares fewer arguments than cuBLAS passes ignores the rest: on x86-64 the caller removes them.
//! Names, argument orders and numbers of enums are those of NVIDIA's documentation, *cuBLAS*, sections 2 and 3.
mod launches;
mod lt;
mod products;
mod solves;
#[cfg(test)]
mod tests;

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

pub(crate) use products::Product;

use crate::gpu::gpu;
use crate::handles::Handles;
use crate::{set, Handle, Out};

/// Success and the errors of `cublasStatus_t` that are reported.
const SUCCESS: c_int = 0;
const NOT_INITIALIZED: c_int = 1;
const INVALID_VALUE: c_int = 7;

/// A pointer that is never followed.
type Pointer = *const c_void;

/// What a handle of cuBLAS or cuBLASLt remembers. One thread uses a handle at a time, so Relaxed suffices.
#[derive(Default)]
struct Library {
    stream: AtomicUsize,
    math_mode: AtomicI32,
    pointer_mode: AtomicI32,
    atomics_mode: AtomicI32,
    sms: AtomicI32,
}

static LIBRARIES: Handles<Library> = Handles::new();

/// The status of an answer to an out-parameter.
fn told<T>(out: Out<'_, T>, value: T) -> c_int {
    set(out, value).map_or(INVALID_VALUE, |()| SUCCESS)
}

/// Writes a new handle.
#[no_mangle]
pub(super) extern "C" fn cublasCreate_v2(out: Out<'_, Handle>) -> c_int {
    match out {
        Some(_) => told(out, LIBRARIES.insert(Library::default())),
        None => INVALID_VALUE,
    }
}

/// Forgets a handle.
#[no_mangle]
pub(super) extern "C" fn cublasDestroy_v2(handle: Handle) -> c_int {
    LIBRARIES.remove(handle).map_or(NOT_INITIALIZED, |_| SUCCESS)
}

/// Settings of a handle: entry points that write one field, and those that read it.
macro_rules! settings {
    ($($field:ident: $set:ident $($read:ident)?;)*) => { $(
        /// Sets a field of a handle.
        #[no_mangle]
        extern "C" fn $set(handle: Handle, value: c_int) -> c_int {
            // Relaxed: see `Library`.
            LIBRARIES.find(handle).map_or(NOT_INITIALIZED, |library| {
                library.$field.store(value, Ordering::Relaxed);
                SUCCESS
            })
        }
        $(
            /// Reads a field of a handle.
            #[no_mangle]
            extern "C" fn $read(handle: Handle, out: Out<'_, c_int>) -> c_int {
                // Relaxed: see `Library`.
                LIBRARIES.find(handle).map_or(NOT_INITIALIZED, |library| told(out, library.$field.load(Ordering::Relaxed)))
            }
        )?
    )* };
}
settings! {
    math_mode: cublasSetMathMode cublasGetMathMode;
    pointer_mode: cublasSetPointerMode_v2 cublasGetPointerMode_v2;
    atomics_mode: cublasSetAtomicsMode cublasGetAtomicsMode;
    sms: cublasSetSmCountTarget cublasGetSmCountTarget;
}

/// Sets the stream of a handle.
#[no_mangle]
extern "C" fn cublasSetStream_v2(handle: Handle, stream: Handle) -> c_int {
    LIBRARIES.find(handle).map_or(NOT_INITIALIZED, |library| {
        library.stream.store(stream, Ordering::Relaxed); // Relaxed: see `Library`
        SUCCESS
    })
}

/// Reads the stream of a handle.
#[no_mangle]
extern "C" fn cublasGetStream_v2(handle: Handle, out: Out<'_, Handle>) -> c_int {
    // Relaxed: see `Library`.
    LIBRARIES.find(handle).map_or(NOT_INITIALIZED, |library| told(out, library.stream.load(Ordering::Relaxed)))
}

/// Accepts a workspace, which is never written.
#[no_mangle]
extern "C" fn cublasSetWorkspace_v2(handle: Handle, _at: Handle, _bytes: usize) -> c_int {
    LIBRARIES.find(handle).map_or(NOT_INITIALIZED, |_| SUCCESS)
}

/// The version: 13.4 or 12.9, as cuBLAS codes it.
fn version() -> c_int {
    if gpu().cuda == 12 {
        120_901
    } else {
        130_401
    }
}

/// Writes the version.
#[no_mangle]
extern "C" fn cublasGetVersion_v2(_handle: Handle, out: Out<'_, c_int>) -> c_int {
    told(out, version())
}

/// Writes the major (0), minor (1) or patch (2) number of the version.
#[no_mangle]
extern "C" fn cublasGetProperty(which: c_int, out: Out<'_, c_int>) -> c_int {
    match which {
        0 => told(out, version() / 10_000),
        1 => told(out, version() / 100 % 100),
        2 => told(out, version() % 100),
        _ => INVALID_VALUE,
    }
}

/// The name of a status.
#[no_mangle]
extern "C" fn cublasGetStatusString(status: c_int) -> *const c_char {
    let text = match status {
        SUCCESS => c"success",
        NOT_INITIALIZED => c"the library was not initialized",
        INVALID_VALUE => c"an unsupported value or parameter was passed to the function",
        _ => c"unknown status of cuBLAS",
    };
    text.as_ptr()
}
