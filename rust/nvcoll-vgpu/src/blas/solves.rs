//! Products and solutions of triangular, symmetric and Hermitian matrices, and rank-k updates.
//!
//! The log knows products m x n x k, which take 2 m n k operations. A call here takes these numbers (Golub and Van Loan, *Matrix
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
use super::answer;
use super::products::plain;
use crate::entry_points::{int, logged};

fn long(word: usize) -> i64 {
    int(word).into()
}

/// The side of the square matrix: `side` is 0 on the left.
fn square(side: usize, m: usize, n: usize) -> i64 {
    long(if int(side) == 0 { m } else { n })
}

fn half(size: i64) -> i64 {
    (size + 1) / 2
}

logged! { answer:
    cublasStrsm_v2 cublasDtrsm_v2 cublasCtrsm_v2 cublasZtrsm_v2 cublasStrmm_v2 cublasDtrmm_v2 cublasCtrmm_v2 cublasZtrmm_v2
        [handle side uplo trans diag m n]() =>
        |name| plain(name, handle, [long(m), long(n), half(square(side, m, n)), 1], [0, 0]);
    cublasStrsmBatched cublasDtrsmBatched cublasCtrsmBatched cublasZtrsmBatched
        [handle side uplo trans diag m n alpha a lda b ldb batch]() =>
        |name| plain(name, handle, [long(m), long(n), half(square(side, m, n)), long(batch)], [0, 0]);
    cublasSsymm_v2 cublasDsymm_v2 cublasCsymm_v2 cublasZsymm_v2 cublasChemm_v2 cublasZhemm_v2[handle side uplo m n]() =>
        |name| plain(name, handle, [long(m), long(n), square(side, m, n), 1], [0, 0]);
    cublasSsyrk_v2 cublasDsyrk_v2 cublasCsyrk_v2 cublasZsyrk_v2 cublasCherk_v2 cublasZherk_v2[handle uplo trans n k]() =>
        |name| plain(name, handle, [long(n), half(long(n)), long(k), 1], [trans, 0]);
    cublasSsyr2k_v2 cublasDsyr2k_v2 cublasCsyr2k_v2 cublasZsyr2k_v2 cublasCher2k_v2 cublasZher2k_v2[handle uplo trans n k]() =>
        |name| plain(name, handle, [long(n), long(n) + 1, long(k), 1], [trans, 0]);
}
