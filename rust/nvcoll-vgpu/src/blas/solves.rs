//! Products and solutions of triangular, symmetric and Hermitian matrices, and rank-k updates.
//!
//! The log knows products m x n x k, which take 2 m n k operations. A call here takes so many (Golub and Van Loan, *Matrix
//! Computations*; s is the side of the square matrix: m on the left, n on the right):
//!
//! | call | operations | logged |
//! |---|---|---|
//! | trsm, trmm | m n s | m, n, s / 2 |
//! | symm, hemm | 2 m n s | m, n, s |
//! | syrk, herk | n (n + 1) k | n, (n + 1) / 2, k |
//! | syr2k, her2k | 2 n (n + 1) k | n, n + 1, k |
//!
//! Halves are rounded up.
use std::ffi::c_int;

use super::products::{plain, C_32F, C_64F, R_32F, R_64F};
use super::Pointer;
use crate::handles::named;
use crate::Handle;

/// The side of the square matrix: `side` is 0 on the left.
fn square(side: c_int, m: c_int, n: c_int) -> i64 {
    i64::from(if side == 0 { m } else { n })
}

/// Triangular products and solutions.
macro_rules! triangular {
    ($($dtype:ident: $($name:ident)*;)*) => { $($(
        /// Logs a triangular product or solution as a product of as many operations.
        #[no_mangle]
        pub(super) extern "C" fn $name(
            handle: Handle, side: c_int, _uplo: c_int, _trans: c_int, _diag: c_int, m: c_int, n: c_int,
        ) -> c_int {
            let half = (square(side, m, n) + 1) / 2;
            plain(named!(stringify!($name)), [m.into(), n.into(), half, 1], [0, 0], $dtype).on(handle)
        }
    )*)* };
}
triangular! {
    R_32F: cublasStrsm_v2 cublasStrmm_v2;
    R_64F: cublasDtrsm_v2 cublasDtrmm_v2;
    C_32F: cublasCtrsm_v2 cublasCtrmm_v2;
    C_64F: cublasZtrsm_v2 cublasZtrmm_v2;
}

/// Triangular solutions of lists of matrices.
macro_rules! batched {
    ($($dtype:ident: $name:ident;)*) => { $(
        /// Logs triangular solutions as products of as many operations.
        #[no_mangle]
        pub(super) extern "C" fn $name(
            handle: Handle, side: c_int, _uplo: c_int, _trans: c_int, _diag: c_int, m: c_int, n: c_int,
            _alpha: Pointer, _a: Pointer, _lda: c_int, _b: Pointer, _ldb: c_int, batch: c_int,
        ) -> c_int {
            let half = (square(side, m, n) + 1) / 2;
            plain(named!(stringify!($name)), [m.into(), n.into(), half, batch.into()], [0, 0], $dtype).on(handle)
        }
    )* };
}
batched! {
    R_32F: cublasStrsmBatched;
    R_64F: cublasDtrsmBatched;
    C_32F: cublasCtrsmBatched;
    C_64F: cublasZtrsmBatched;
}

/// Symmetric and Hermitian products.
macro_rules! symmetric {
    ($($dtype:ident: $($name:ident)*;)*) => { $($(
        /// Logs a symmetric or Hermitian product.
        #[no_mangle]
        pub(super) extern "C" fn $name(handle: Handle, side: c_int, _uplo: c_int, m: c_int, n: c_int) -> c_int {
            plain(named!(stringify!($name)), [m.into(), n.into(), square(side, m, n), 1], [0, 0], $dtype).on(handle)
        }
    )*)* };
}
symmetric! {
    R_32F: cublasSsymm_v2;
    R_64F: cublasDsymm_v2;
    C_32F: cublasCsymm_v2 cublasChemm_v2;
    C_64F: cublasZsymm_v2 cublasZhemm_v2;
}

/// Updates of rank k and 2 k.
macro_rules! updates {
    ($($dtype:ident: $($once:ident)* / $($twice:ident)*;)*) => { $(
        $(
            /// Logs an update of rank k as a product of as many operations.
            #[no_mangle]
            pub(super) extern "C" fn $once(handle: Handle, _uplo: c_int, trans: c_int, n: c_int, k: c_int) -> c_int {
                let half = (i64::from(n) + 1) / 2;
                plain(named!(stringify!($once)), [n.into(), half, k.into(), 1], [trans, 0], $dtype).on(handle)
            }
        )*
        $(
            /// Logs an update of rank 2 k as a product of as many operations.
            #[no_mangle]
            pub(super) extern "C" fn $twice(handle: Handle, _uplo: c_int, trans: c_int, n: c_int, k: c_int) -> c_int {
                plain(named!(stringify!($twice)), [n.into(), i64::from(n) + 1, k.into(), 1], [trans, 0], $dtype).on(handle)
            }
        )*
    )* };
}
updates! {
    R_32F: cublasSsyrk_v2 / cublasSsyr2k_v2;
    R_64F: cublasDsyrk_v2 / cublasDsyr2k_v2;
    C_32F: cublasCsyrk_v2 cublasCherk_v2 / cublasCsyr2k_v2 cublasCher2k_v2;
    C_64F: cublasZsyrk_v2 cublasZherk_v2 / cublasZsyr2k_v2 cublasZher2k_v2;
}
