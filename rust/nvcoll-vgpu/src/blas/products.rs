//! Matrix products of cuBLAS: plain, strided, batched and grouped.
use std::ffi::c_int;
use std::sync::atomic::Ordering;

use super::{Pointer, INVALID_VALUE, LIBRARIES, NOT_INITIALIZED, SUCCESS};
use crate::handles::named;
use crate::log::{self, Kind};
use crate::Handle;

/// Types of matrices: `cudaDataType_t`.
pub(super) const R_32F: c_int = 0;
pub(super) const R_64F: c_int = 1;
const R_16F: c_int = 2;
pub(super) const C_32F: c_int = 4;
pub(super) const C_64F: c_int = 5;

/// Compute types: `cublasComputeType_t`.
const COMPUTE_16F: c_int = 64;
const COMPUTE_32F: c_int = 68;
const COMPUTE_64F: c_int = 70;
const COMPUTE_32F_FAST_TF32: c_int = 77;
/// The math mode that allows TF32: `CUBLAS_TF32_TENSOR_OP_MATH`.
pub(super) const MATH_TF32: c_int = 3;

/// A matrix product as the log has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    pub(crate) name: u32,
    pub(crate) m: i64,
    pub(crate) n: i64,
    pub(crate) k: i64,
    pub(crate) batch: i64,
    /// `cublasOperation_t` of A and B: 0 as it is.
    pub(crate) operations: [c_int; 2],
    pub(crate) a_type: c_int,
    pub(crate) c_type: c_int,
    pub(crate) epilogue: c_int,
    pub(crate) compute: c_int,
}

impl Product {
    /// Logs the product; negative sizes are an error.
    pub(crate) fn log(&self, stream: Handle) -> c_int {
        let sizes = [self.m, self.n, self.k, self.batch];
        if sizes.iter().any(|size| *size < 0) {
            return INVALID_VALUE;
        }
        let [m, n, k, batch] = sizes.map(|size| size as u64);
        let transposes = 2 * u64::from(self.operations[0] != 0) + u64::from(self.operations[1] != 0);
        let byte = |value: c_int| value as u64 & 0xff;
        let epilogue = self.epilogue as u64 & 0xffff;
        let types = byte(self.a_type) | byte(self.c_type) << 8 | epilogue << 16 | byte(self.compute) << 32;
        log::push(Kind::Gemm, stream, self.name, [m, n, k, batch, transposes, types]);
        SUCCESS
    }

    /// Logs the product on the stream of `handle`; a handle that allows TF32 makes it of single precision.
    pub(super) fn on(mut self, handle: Handle) -> c_int {
        let Some(library) = LIBRARIES.find(handle) else { return NOT_INITIALIZED };
        // Relaxed: see `Library`.
        let tf32 = library.math_mode.load(Ordering::Relaxed) & 0xf == MATH_TF32;
        if tf32 && self.compute == COMPUTE_32F && matches!(self.a_type, R_32F | C_32F) {
            self.compute = COMPUTE_32F_FAST_TF32;
        }
        self.log(library.stream.load(Ordering::Relaxed))
    }
}

/// The compute type of a product whose call does not say it.
fn compute_of(dtype: c_int) -> c_int {
    match dtype {
        R_16F => COMPUTE_16F,
        R_64F | C_64F => COMPUTE_64F,
        _ => COMPUTE_32F,
    }
}

/// A product of one type, without an epilogue.
pub(super) fn plain(name: u32, sizes: [i64; 4], operations: [c_int; 2], dtype: c_int) -> Product {
    let [m, n, k, batch] = sizes;
    let compute = compute_of(dtype);
    Product { name, m, n, k, batch, operations, a_type: dtype, c_type: dtype, epilogue: 0, compute }
}

/// Products whose call says the types: its arguments in cuBLAS's order, and the number of products.
macro_rules! typed_products {
    ($($name:ident($($arg:ident: $type:ty),*): $a_type:expr, $c_type:expr, $compute:expr, $batch:expr;)*) => { $(
        /// Logs a matrix product.
        #[no_mangle]
        #[allow(unused_variables)]
        pub(super) extern "C" fn $name(
            handle: Handle, transa: c_int, transb: c_int, m: c_int, n: c_int, k: c_int, $($arg: $type),*
        ) -> c_int {
            let sizes = [m, n, k, $batch].map(i64::from);
            let product = plain(named!(stringify!($name)), sizes, [transa, transb], $a_type);
            Product { c_type: $c_type, compute: $compute, ..product }.on(handle)
        }
    )* };
}
typed_products! {
    cublasGemmEx(alpha: Pointer, a: Pointer, a_type: c_int, lda: c_int, b: Pointer, b_type: c_int, ldb: c_int,
        beta: Pointer, c: Pointer, c_type: c_int, ldc: c_int, compute: c_int, algorithm: c_int): a_type, c_type, compute, 1;
    cublasGemmStridedBatchedEx(alpha: Pointer, a: Pointer, a_type: c_int, lda: c_int, stride_a: i64, b: Pointer,
        b_type: c_int, ldb: c_int, stride_b: i64, beta: Pointer, c: Pointer, c_type: c_int, ldc: c_int, stride_c: i64,
        batch: c_int, compute: c_int, algorithm: c_int): a_type, c_type, compute, batch;
    cublasGemmBatchedEx(alpha: Pointer, a: Pointer, a_type: c_int, lda: c_int, b: Pointer, b_type: c_int, ldb: c_int,
        beta: Pointer, c: Pointer, c_type: c_int, ldc: c_int, batch: c_int, compute: c_int, algorithm: c_int): a_type, c_type, compute, batch;
}

/// Logs a product of given types in single precision.
#[no_mangle]
pub(super) extern "C" fn cublasSgemmEx(
    handle: Handle,
    transa: c_int,
    transb: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    _alpha: Pointer,
    _a: Pointer,
    a_type: c_int,
    _lda: c_int,
    _b: Pointer,
    _b_type: c_int,
    _ldb: c_int,
    _beta: Pointer,
    _c: Pointer,
    c_type: c_int,
    _ldc: c_int,
) -> c_int {
    let sizes = [m, n, k, 1].map(i64::from);
    let product = plain(named!("cublasSgemmEx"), sizes, [transa, transb], a_type);
    Product { c_type, compute: COMPUTE_32F, ..product }.on(handle)
}

/// Products of one type: plain, strided, batched by pointers, and with a vector.
macro_rules! products {
    ($($dtype:ident: $gemm:ident $strided:ident $batched:ident $($gemv:ident)?;)*) => { $(
        /// Logs a matrix product.
        #[no_mangle]
        pub(super) extern "C" fn $gemm(handle: Handle, transa: c_int, transb: c_int, m: c_int, n: c_int, k: c_int) -> c_int {
            plain(named!(stringify!($gemm)), [m, n, k, 1].map(i64::from), [transa, transb], $dtype).on(handle)
        }
        /// Logs products at equal distances.
        #[no_mangle]
        pub(super) extern "C" fn $strided(
            handle: Handle, transa: c_int, transb: c_int, m: c_int, n: c_int, k: c_int, _alpha: Pointer, _a: Pointer,
            _lda: c_int, _stride_a: i64, _b: Pointer, _ldb: c_int, _stride_b: i64, _beta: Pointer, _c: Pointer,
            _ldc: c_int, _stride_c: i64, batch: c_int,
        ) -> c_int {
            plain(named!(stringify!($strided)), [m, n, k, batch].map(i64::from), [transa, transb], $dtype).on(handle)
        }
        /// Logs products of a list of matrices.
        #[no_mangle]
        pub(super) extern "C" fn $batched(
            handle: Handle, transa: c_int, transb: c_int, m: c_int, n: c_int, k: c_int, _alpha: Pointer, _a: Pointer,
            _lda: c_int, _b: Pointer, _ldb: c_int, _beta: Pointer, _c: Pointer, _ldc: c_int, batch: c_int,
        ) -> c_int {
            plain(named!(stringify!($batched)), [m, n, k, batch].map(i64::from), [transa, transb], $dtype).on(handle)
        }
        $(
            /// Logs the product of an m x n matrix, or of its transpose, with a vector.
            #[no_mangle]
            pub(super) extern "C" fn $gemv(handle: Handle, transa: c_int, m: c_int, n: c_int) -> c_int {
                let (m, k) = if transa == 0 { (m, n) } else { (n, m) };
                plain(named!(stringify!($gemv)), [m, 1, k, 1].map(i64::from), [transa, 0], $dtype).on(handle)
            }
        )?
    )* };
}
products! {
    R_32F: cublasSgemm_v2 cublasSgemmStridedBatched cublasSgemmBatched cublasSgemv_v2;
    R_64F: cublasDgemm_v2 cublasDgemmStridedBatched cublasDgemmBatched cublasDgemv_v2;
    C_32F: cublasCgemm_v2 cublasCgemmStridedBatched cublasCgemmBatched cublasCgemv_v2;
    C_64F: cublasZgemm_v2 cublasZgemmStridedBatched cublasZgemmBatched cublasZgemv_v2;
    R_16F: cublasHgemm cublasHgemmStridedBatched cublasHgemmBatched;
}

/// Products of groups: each group has its own sizes, and so many products.
macro_rules! grouped {
    ($($name:ident($($arg:ident: $type:ty),*): $groups:expr, $sizes:expr, $a:expr, $c:expr, $compute:expr;)*) => { $(
        /// Logs one record per group of products.
        #[no_mangle]
        #[allow(unused_variables)]
        pub(super) extern "C" fn $name(
            handle: Handle, transa: Option<&c_int>, transb: Option<&c_int>, m: Option<&c_int>, n: Option<&c_int>,
            k: Option<&c_int>, $($arg: $type),*
        ) -> c_int {
            let lists = [transa, transb, m, n, k, $sizes];
            log_groups(handle, named!(stringify!($name)), $groups, lists, [$a, $c, $compute])
        }
    )* };
}
grouped! {
    cublasGemmGroupedBatchedEx(alpha: Pointer, a: Pointer, a_type: c_int, lda: Pointer, b: Pointer, b_type: c_int,
        ldb: Pointer, beta: Pointer, c: Pointer, c_type: c_int, ldc: Pointer, groups: c_int, sizes: Option<&c_int>,
        compute: c_int): groups, sizes, a_type, c_type, compute;
    cublasSgemmGroupedBatched(alpha: Pointer, a: Pointer, lda: Pointer, b: Pointer, ldb: Pointer, beta: Pointer,
        c: Pointer, ldc: Pointer, groups: c_int, sizes: Option<&c_int>): groups, sizes, R_32F, R_32F, COMPUTE_32F;
    cublasDgemmGroupedBatched(alpha: Pointer, a: Pointer, lda: Pointer, b: Pointer, ldb: Pointer, beta: Pointer,
        c: Pointer, ldc: Pointer, groups: c_int, sizes: Option<&c_int>): groups, sizes, R_64F, R_64F, COMPUTE_64F;
}

/// Logs groups of products; `lists` holds transposes of A and B, m, n, k and products, each per group.
fn log_groups(handle: Handle, name: u32, groups: c_int, lists: [Option<&c_int>; 6], types: [c_int; 3]) -> c_int {
    let [Some(transa), Some(transb), Some(m), Some(n), Some(k), Some(sizes)] = lists else { return INVALID_VALUE };
    let Ok(groups) = usize::try_from(groups) else { return INVALID_VALUE };
    let lists = [transa, transb, m, n, k, sizes].map(|first| {
        // SAFETY: each list has an entry per group, by cuBLAS's interface.
        unsafe { std::slice::from_raw_parts(first, groups) }
    });
    for group in 0..groups {
        let [transa, transb, m, n, k, size] = lists.map(|list| list[group]);
        let product = plain(name, [m, n, k, size].map(i64::from), [transa, transb], types[0]);
        let status = Product { c_type: types[1], compute: types[2], ..product }.on(handle);
        if status != SUCCESS {
            return status;
        }
    }
    SUCCESS
}
