//! Matrix products of cuBLAS: plain, strided and batched.
use std::ffi::c_int;

use super::{answer, LIBRARIES};
use crate::entry_points::{int, logged, Name};
use crate::log::{self, RecordKind};
use crate::{Answer, Failure, Handle};

/// Types of matrices: `cudaDataType_t`.
const R_32F: c_int = 0;
const R_64F: c_int = 1;
const R_16F: c_int = 2;
const C_32F: c_int = 4;
const C_64F: c_int = 5;

/// Compute types: `cublasComputeType_t`.
const COMPUTE_16F: c_int = 64;
pub(crate) const COMPUTE_32F: c_int = 68;
pub(crate) const COMPUTE_64F: c_int = 70;
pub(crate) const COMPUTE_TF32: c_int = 77;
/// The math mode that allows TF32: `CUBLAS_TF32_TENSOR_OP_MATH`.
pub(super) const MATH_TF32: c_int = 3;

/// A matrix product as the log has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatrixProduct {
    pub(crate) name: u32,
    /// m, n, k, batch.
    pub(crate) sizes: [i64; 4],
    /// `cublasOperation_t` of A and B: 0 as it is.
    pub(crate) operations: [c_int; 2],
    /// Of A and of C.
    pub(crate) types: [c_int; 2],
    pub(crate) epilogue: c_int,
    pub(crate) compute: c_int,
}

impl MatrixProduct {
    /// Logs the product.
    ///
    /// # Errors
    /// [`Failure::INVALID_VALUE`] for negative sizes.
    pub(crate) fn log(&self, stream: Handle) -> Answer {
        if self.sizes.iter().any(|size| *size < 0) {
            return Err(Failure::INVALID_VALUE);
        }
        let [m, n, k, batch] = self.sizes.map(|size| size as u64);
        let transposes = 2 * u64::from(self.operations[0] != 0) + u64::from(self.operations[1] != 0);
        let [a, c, compute] = [self.types[0], self.types[1], self.compute].map(|value| value as u64 & 0xff);
        let types = a | c << 8 | (self.epilogue as u64 & 0xffff) << 16 | compute << 32;
        log::push(RecordKind::Gemm, stream, self.name, [m, n, k, batch, transposes, types]);
        Ok(())
    }

    /// Logs the product on the stream of `handle`; a handle that allows TF32 makes it of single precision.
    fn on(mut self, handle: Handle) -> Answer {
        let library = LIBRARIES.find(handle)?;
        let tf32 = library.math_mode & 0xf == MATH_TF32;
        if tf32 && self.compute == COMPUTE_32F && matches!(self.types[0], R_32F | C_32F) {
            self.compute = COMPUTE_TF32;
        }
        self.log(library.stream)
    }
}

/// Sizes of a product that words pass.
fn sizes(words: [usize; 4]) -> [i64; 4] {
    words.map(|word| int(word).into())
}

/// Logs a product without an epilogue; `types` has the types of A and C, and the compute type.
fn typed(name: Name, handle: Handle, sizes: [i64; 4], operations: [usize; 2], types: [usize; 3]) -> Answer {
    let [a, c, compute] = types.map(int);
    let operations = operations.map(int);
    MatrixProduct { name: name.number, sizes, operations, types: [a, c], epilogue: 0, compute }.on(handle)
}

/// Logs a product of the type that the letter behind `cublas` says.
pub(super) fn plain(name: Name, handle: Handle, sizes: [i64; 4], operations: [usize; 2]) -> Answer {
    let (dtype, compute) = match name.text.as_bytes()[6] {
        b'D' => (R_64F, COMPUTE_64F),
        b'H' => (R_16F, COMPUTE_16F),
        b'C' => (C_32F, COMPUTE_32F),
        b'Z' => (C_64F, COMPUTE_64F),
        _ => (R_32F, COMPUTE_32F),
    };
    let operations = operations.map(int);
    MatrixProduct { name: name.number, sizes, operations, types: [dtype; 2], epilogue: 0, compute }.on(handle)
}

logged! { answer:
    cublasSgemm_v2 cublasDgemm_v2 cublasCgemm_v2 cublasZgemm_v2 cublasHgemm[handle op_a op_b m n k]() =>
        |name| plain(name, handle, sizes([m, n, k, 1]), [op_a, op_b]);
    cublasSgemmStridedBatched cublasDgemmStridedBatched cublasCgemmStridedBatched cublasZgemmStridedBatched
        cublasHgemmStridedBatched[handle op_a op_b m n k alpha a lda stride_a b ldb stride_b beta c ldc stride_c batch]() =>
        |name| plain(name, handle, sizes([m, n, k, batch]), [op_a, op_b]);
    cublasSgemmBatched cublasDgemmBatched cublasCgemmBatched cublasZgemmBatched cublasHgemmBatched
        [handle op_a op_b m n k alpha a lda b ldb beta c ldc batch]() =>
        |name| plain(name, handle, sizes([m, n, k, batch]), [op_a, op_b]);
    // The product of an m x n matrix, or of its transpose, with a vector.
    cublasSgemv_v2 cublasDgemv_v2 cublasCgemv_v2 cublasZgemv_v2[handle op_a m n]() => |name| {
        let (m, k) = if int(op_a) == 0 { (m, n) } else { (n, m) };
        plain(name, handle, sizes([m, 1, k, 1]), [op_a, 0])
    };
    cublasSgemmEx[handle op_a op_b m n k alpha a a_type lda b b_type ldb beta c c_type]() =>
        |name| typed(name, handle, sizes([m, n, k, 1]), [op_a, op_b], [a_type, c_type, COMPUTE_32F as usize]);
    cublasGemmEx[handle op_a op_b m n k alpha a a_type lda b b_type ldb beta c c_type ldc compute]() =>
        |name| typed(name, handle, sizes([m, n, k, 1]), [op_a, op_b], [a_type, c_type, compute]);
    cublasGemmStridedBatchedEx[handle op_a op_b m n k alpha a a_type lda stride_a b b_type ldb stride_b beta c c_type ldc stride_c
        batch compute]() => |name| typed(name, handle, sizes([m, n, k, batch]), [op_a, op_b], [a_type, c_type, compute]);
    cublasGemmBatchedEx[handle op_a op_b m n k alpha a a_type lda b b_type ldb beta c c_type ldc batch compute]() =>
        |name| typed(name, handle, sizes([m, n, k, batch]), [op_a, op_b], [a_type, c_type, compute]);
}
