//! Calls of cuBLAS that are launches in the log: vectors, matrix times vector, batched factorizations, copies.
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;

use super::{Pointer, INVALID_VALUE, LIBRARIES, NOT_INITIALIZED, SUCCESS};
use crate::handles::named;
use crate::log::{self, Kind};
use crate::memory::data::Copy;
use crate::sparse::succeeds;
use crate::{Handle, Out};

/// Threads of a block of such a launch (chosen).
const THREADS: u64 = 256;

/// Logs a launch over `elements` on the stream of `handle`; returns whether results go to the host, or an error.
fn launch(handle: Handle, name: u32, elements: c_int) -> Result<bool, c_int> {
    let library = LIBRARIES.find(handle).ok_or(NOT_INITIALIZED)?;
    let blocks = u64::try_from(elements).map_err(|_| INVALID_VALUE)?.div_ceil(THREADS).max(1);
    // Relaxed: one thread uses a handle at a time.
    log::push(Kind::Launch, library.stream.load(Ordering::Relaxed), name, [blocks, THREADS, 0]);
    Ok(library.pointer_mode.load(Ordering::Relaxed) == 0)
}

/// Calls that only write device memory; `$size` says which argument is the number of elements.
macro_rules! launches {
    ($($name:ident)*) => { $(
        /// Logs a launch over a vector.
        #[no_mangle]
        extern "C" fn $name(handle: Handle, elements: c_int) -> c_int {
            launch(handle, named!(stringify!($name)), elements).map_or_else(|error| error, |_| SUCCESS)
        }
    )* };
}
launches! {
    cublasSaxpy_v2 cublasDaxpy_v2 cublasCaxpy_v2 cublasZaxpy_v2 cublasScopy_v2 cublasDcopy_v2 cublasCcopy_v2 cublasZcopy_v2
    cublasSswap_v2 cublasDswap_v2 cublasCswap_v2 cublasZswap_v2 cublasSscal_v2 cublasDscal_v2 cublasCscal_v2 cublasZscal_v2
    cublasCsscal_v2 cublasZdscal_v2 cublasSrot_v2 cublasDrot_v2 cublasCrot_v2 cublasZrot_v2 cublasCsrot_v2 cublasZdrot_v2
    cublasSrotm_v2 cublasDrotm_v2
    cublasSger_v2 cublasDger_v2 cublasCgeru_v2 cublasCgerc_v2 cublasZgeru_v2 cublasZgerc_v2
}

/// Batched factorizations that tell the device whether they succeeded.
macro_rules! factorizations {
    ($($name:ident)*) => { $(
        /// Logs a launch over a list of matrices, and tells the device that it succeeded.
        #[no_mangle]
        extern "C" fn $name(
            handle: Handle, _n: c_int, _a: Pointer, _lda: c_int, _pivots: Pointer, info: usize, batch: c_int,
        ) -> c_int {
            succeeds(info, batch);
            launch(handle, named!(stringify!($name)), batch).map_or_else(|error| error, |_| SUCCESS)
        }
    )* };
}
factorizations! { cublasSgetrfBatched cublasDgetrfBatched cublasCgetrfBatched cublasZgetrfBatched }

/// As `launches`, for calls whose second argument is the triangle that is stored.
macro_rules! launches_of_triangles {
    ($($name:ident)*) => { $(
        /// Logs a launch whose number of elements is not the second argument.
        #[no_mangle]
        extern "C" fn $name(handle: Handle) -> c_int {
            launch(handle, named!(stringify!($name)), 0).map_or_else(|error| error, |_| SUCCESS)
        }
    )* };
}
launches_of_triangles! {
    cublasSsymv_v2 cublasDsymv_v2 cublasCsymv_v2 cublasZsymv_v2 cublasChemv_v2 cublasZhemv_v2
    cublasSsyr_v2 cublasDsyr_v2 cublasCsyr_v2 cublasZsyr_v2 cublasCher_v2 cublasZher_v2
    cublasSsyr2_v2 cublasDsyr2_v2 cublasCsyr2_v2 cublasZsyr2_v2 cublasCher2_v2 cublasZher2_v2
    cublasStrmv_v2 cublasDtrmv_v2 cublasCtrmv_v2 cublasZtrmv_v2 cublasStrsv_v2 cublasDtrsv_v2 cublasCtrsv_v2 cublasZtrsv_v2
}

/// Writes a zero to the host if results go there.
fn result<T: Default>(launched: Result<bool, c_int>, out: Out<'_, T>) -> c_int {
    match (launched, out) {
        (Err(error), _) => error,
        (Ok(_), None) => INVALID_VALUE,
        (Ok(to_host), Some(out)) => {
            if to_host {
                out.write(T::default());
            }
            SUCCESS
        }
    }
}

/// Calls with a result for the host or the device after one vector.
macro_rules! of_one_vector {
    ($($type:ty: $($name:ident)*;)*) => { $($(
        /// Logs a launch over a vector; a result for the host is 0.
        #[no_mangle]
        extern "C" fn $name(
            handle: Handle, elements: c_int, _x: Pointer, _stride: c_int, out: Option<&mut MaybeUninit<$type>>,
        ) -> c_int {
            result(launch(handle, named!(stringify!($name)), elements), out)
        }
    )*)* };
}
of_one_vector! {
    f32: cublasSnrm2_v2 cublasScnrm2_v2 cublasSasum_v2 cublasScasum_v2;
    f64: cublasDnrm2_v2 cublasDznrm2_v2 cublasDasum_v2 cublasDzasum_v2;
    c_int: cublasIsamax_v2 cublasIdamax_v2 cublasIcamax_v2 cublasIzamax_v2;
    c_int: cublasIsamin_v2 cublasIdamin_v2 cublasIcamin_v2 cublasIzamin_v2;
}

/// Calls with a result for the host or the device after two vectors.
macro_rules! of_two_vectors {
    ($($type:ty: $($name:ident)*;)*) => { $($(
        /// Logs a launch over two vectors; a result for the host is 0.
        #[no_mangle]
        extern "C" fn $name(
            handle: Handle, elements: c_int, _x: Pointer, _stride_x: c_int, _y: Pointer, _stride_y: c_int,
            out: Option<&mut MaybeUninit<$type>>,
        ) -> c_int {
            result(launch(handle, named!(stringify!($name)), elements), out)
        }
    )*)* };
}
of_two_vectors! {
    f32: cublasSdot_v2;
    f64: cublasDdot_v2;
    [f32; 2]: cublasCdotu_v2 cublasCdotc_v2;
    [f64; 2]: cublasZdotu_v2 cublasZdotc_v2;
}

/// Logs a dot product of given types; a result for the host is a zero of its type.
#[no_mangle]
extern "C" fn cublasDotEx(
    handle: Handle,
    elements: c_int,
    _x: Pointer,
    _x_type: c_int,
    _stride_x: c_int,
    _y: Pointer,
    _y_type: c_int,
    _stride_y: c_int,
    out: Option<&mut MaybeUninit<[u8; 2]>>,
    out_type: c_int,
) -> c_int {
    let launched = launch(handle, named!("cublasDotEx"), elements);
    let halves = match out_type {
        2 | 14 => 1,
        0 => 2,
        1 | 4 => 4,
        5 => 8,
        _ => return INVALID_VALUE,
    };
    let Some(out) = out else { return INVALID_VALUE };
    if launched == Ok(true) {
        // SAFETY: the result is a number of `out_type` in the host's memory, by cuBLAS's interface: so many halves of 32 bits.
        unsafe { std::ptr::write_bytes(out.as_mut_ptr(), 0, halves) };
    }
    launched.map_or_else(|error| error, |_| SUCCESS)
}

/// Batched factorizations and solutions that report an invalid argument to the host: none.
macro_rules! with_info {
    ($(($($arg:ident)*) $($name:ident)*;)*) => { $(with_info!(@ ($($arg)*) $($name)*);)* };
    (@ ($($arg:ident)*) $first:ident $($rest:ident)*) => {
        /// Logs a launch over a list of matrices, and tells the host that no argument was invalid.
        #[no_mangle]
        extern "C" fn $first(handle: Handle, $($arg: usize,)* info: Out<'_, c_int>) -> c_int {
            $(let _ = $arg;)*
            let launched = launch(handle, named!(stringify!($first)), 0);
            match info {
                Some(info) => { info.write(0); }
                None => return INVALID_VALUE,
            }
            launched.map_or_else(|error| error, |_| SUCCESS)
        }
        with_info!(@ ($($arg)*) $($rest)*);
    };
    (@ ($($arg:ident)*)) => {};
}
with_info! {
    (m n a lda tau) cublasSgeqrfBatched cublasDgeqrfBatched cublasCgeqrfBatched cublasZgeqrfBatched;
    (trans n columns a lda pivots b ldb) cublasSgetrsBatched cublasDgetrsBatched cublasCgetrsBatched cublasZgetrsBatched;
    (trans m n columns a lda c ldc) cublasSgelsBatched cublasDgelsBatched cublasCgelsBatched cublasZgelsBatched;
}

/// Logs and does a copy of columns between the host and the device.
fn copy(columns: [c_int; 3], from: (usize, c_int), to: (usize, c_int), stream: Handle) -> c_int {
    let sizes = (columns.map(usize::try_from), usize::try_from(from.1), usize::try_from(to.1));
    let ([Ok(rows), Ok(columns), Ok(element)], Ok(lda), Ok(ldb)) = sizes else { return INVALID_VALUE };
    let pitch = |leading: usize| leading.saturating_mul(element);
    let width = pitch(rows);
    let copy = Copy { to: to.0, to_pitch: pitch(ldb), from: from.0, from_pitch: pitch(lda), width, height: columns };
    let Ok(bytes) = copy.bytes() else { return INVALID_VALUE };
    log::push(Kind::Copy, stream, 0, [bytes as u64, copy.direction()]);
    // SAFETY: the host's matrix has the size that the arguments say, by cuBLAS's interface; `bytes` accepted the copy.
    unsafe { copy.run(bytes) };
    SUCCESS
}

/// Copies of matrices and vectors.
macro_rules! copies {
    ($($matrix:ident $vector:ident)*) => { $(
        /// Copies a matrix between the host and the device.
        #[no_mangle]
        extern "C" fn $matrix(
            rows: c_int, columns: c_int, element: c_int, from: usize, lda: c_int, to: usize, ldb: c_int, stream: Handle,
        ) -> c_int {
            copy([rows, columns, element], (from, lda), (to, ldb), stream)
        }
        /// Copies a vector between the host and the device.
        #[no_mangle]
        extern "C" fn $vector(
            elements: c_int, element: c_int, from: usize, stride: c_int, to: usize, stride_to: c_int, stream: Handle,
        ) -> c_int {
            copy([1, elements, element], (from, stride), (to, stride_to), stream)
        }
    )* };
}
copies! { cublasSetMatrixAsync cublasSetVectorAsync cublasGetMatrixAsync cublasGetVectorAsync }
