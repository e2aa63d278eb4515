//! Calls of cuBLAS that are launches in the log: vectors, matrix times vector, batched factorizations, copies.
use std::ffi::c_int;

use super::{answer, LIBRARIES};
use crate::arguments::Room;
use crate::entry_points::{functions, int, logged, Name};
use crate::log::{self, RecordKind};
use crate::memory::data::Copy;
use crate::sparse::succeeds;
use crate::{runtime, set, Answer, Failure, Handle, Out};

/// Threads of a block of such a launch (chosen).
const THREADS: u64 = 256;

/// Logs a launch over `elements` on the stream of `handle`; returns whether results go to the host.
fn launch(name: Name, handle: Handle, elements: c_int) -> Result<bool, Failure> {
    let library = LIBRARIES.find(handle)?;
    let blocks = u64::try_from(elements).map_err(|_| Failure::INVALID_VALUE)?.div_ceil(THREADS).max(1);
    log::push(RecordKind::Launch, library.stream, name.number, [blocks, THREADS, 0]);
    Ok(library.pointer_mode == 0)
}

/// Logs a launch whose result is a number of `bytes`; for the host it is a zero.
fn result(name: Name, handle: Handle, elements: c_int, out: Room<u8>, bytes: usize) -> Answer {
    let to_host = launch(name, handle, elements)?;
    match out.is_null() {
        false if to_host => out.write(&vec![0; bytes]),
        false => Ok(()),
        true => Err(Failure::INVALID_VALUE),
    }
}

/// Bytes of a result by the letter behind `cublas`.
fn bytes_of(name: Name) -> usize {
    match name.text.as_bytes()[6] {
        b'D' | b'C' => 8,
        b'Z' => 16,
        _ => 4,
    }
}

logged! { answer:
    cublasSaxpy_v2 cublasDaxpy_v2 cublasCaxpy_v2 cublasZaxpy_v2 cublasScopy_v2 cublasDcopy_v2 cublasCcopy_v2 cublasZcopy_v2
    cublasSswap_v2 cublasDswap_v2 cublasCswap_v2 cublasZswap_v2 cublasSscal_v2 cublasDscal_v2 cublasCscal_v2 cublasZscal_v2
    cublasCsscal_v2 cublasZdscal_v2 cublasSrot_v2 cublasDrot_v2 cublasCrot_v2 cublasZrot_v2 cublasCsrot_v2 cublasZdrot_v2
    cublasSrotm_v2 cublasDrotm_v2
    cublasSger_v2 cublasDger_v2 cublasCgeru_v2 cublasCgerc_v2 cublasZgeru_v2 cublasZgerc_v2
        (handle: Handle, elements: c_int) => |name| launch(name, handle, elements).map(drop);
    // The second argument is the triangle that is stored.
    cublasSsymv_v2 cublasDsymv_v2 cublasCsymv_v2 cublasZsymv_v2 cublasChemv_v2 cublasZhemv_v2
    cublasSsyr_v2 cublasDsyr_v2 cublasCsyr_v2 cublasZsyr_v2 cublasCher_v2 cublasZher_v2
    cublasSsyr2_v2 cublasDsyr2_v2 cublasCsyr2_v2 cublasZsyr2_v2 cublasCher2_v2 cublasZher2_v2
    cublasStrmv_v2 cublasDtrmv_v2 cublasCtrmv_v2 cublasZtrmv_v2 cublasStrsv_v2 cublasDtrsv_v2 cublasCtrsv_v2 cublasZtrsv_v2
        (handle: Handle) => |name| launch(name, handle, 0).map(drop);
    cublasSnrm2_v2 cublasScnrm2_v2 cublasSasum_v2 cublasScasum_v2 cublasDnrm2_v2 cublasDznrm2_v2 cublasDasum_v2 cublasDzasum_v2
    cublasIsamax_v2 cublasIdamax_v2 cublasIcamax_v2 cublasIzamax_v2 cublasIsamin_v2 cublasIdamin_v2 cublasIcamin_v2
    cublasIzamin_v2[handle n x stride](out: Room<u8>) => |name| result(name, handle, int(n), out, bytes_of(name));
    cublasSdot_v2 cublasDdot_v2 cublasCdotu_v2 cublasCdotc_v2 cublasZdotu_v2 cublasZdotc_v2[handle n x stride_x y stride_y]
        (out: Room<u8>) => |name| result(name, handle, int(n), out, bytes_of(name));
    cublasDotEx[handle n x x_type stride_x y y_type stride_y](out: Room<u8>, out_type: c_int) => |name| match out_type {
        2 | 14 => result(name, handle, int(n), out, 2),
        0 => result(name, handle, int(n), out, 4),
        1 | 4 => result(name, handle, int(n), out, 8),
        5 => result(name, handle, int(n), out, 16),
        _ => Err(Failure::INVALID_VALUE),
    };
    // Batched factorizations that write to the device whether they succeeded, and others that write to the host that no argument was
    // invalid.
    cublasSgetrfBatched cublasDgetrfBatched cublasCgetrfBatched cublasZgetrfBatched[handle n a lda pivots info batch]() =>
        |name| {
        succeeds(info, int(batch));
        launch(name, handle, int(batch)).map(drop)
    };
    cublasSgeqrfBatched cublasDgeqrfBatched cublasCgeqrfBatched cublasZgeqrfBatched[handle m n a lda tau](info: Out<c_int>) =>
        |name| launch(name, handle, 0).and_then(|_| set(info, 0));
    cublasSgetrsBatched cublasDgetrsBatched cublasCgetrsBatched cublasZgetrsBatched cublasSgelsBatched cublasDgelsBatched
    cublasCgelsBatched cublasZgelsBatched[handle trans a2 a3 a4 a5 a6 a7 a8](info: Out<c_int>) =>
        |name| launch(name, handle, 0).and_then(|_| set(info, 0));
}

/// Logs and does a copy of columns of elements between the host and the device; distances from column to column count elements.
fn copy([rows, columns, element]: [c_int; 3], from: (usize, c_int), to: (usize, c_int), stream: Handle) -> Answer {
    let size = |number: c_int| usize::try_from(number).map_err(|_| Failure::INVALID_VALUE);
    let element = size(element)?;
    let bytes = |elements: c_int| size(elements).map(|elements| elements.saturating_mul(element));
    let (to_pitch, from_pitch, width) = (bytes(to.1)?, bytes(from.1)?, bytes(rows)?);
    let what = Copy { to: to.0, to_pitch, from: from.0, from_pitch, width, height: size(columns)? };
    // SAFETY: the host's matrix has the size that the arguments say, by cuBLAS's interface.
    unsafe { runtime::copy(what, stream) }
}

functions! { answer:
    cublasSetMatrixAsync cublasGetMatrixAsync(rows: c_int, columns: c_int, element: c_int, from: usize, lda: c_int, to: usize,
        ldb: c_int, stream: Handle) => copy([rows, columns, element], (from, lda), (to, ldb), stream);
    cublasSetVectorAsync cublasGetVectorAsync(elements: c_int, element: c_int, from: usize, stride: c_int, to: usize,
        stride_to: c_int, stream: Handle) => copy([1, elements, element], (from, stride), (to, stride_to), stream);
}
