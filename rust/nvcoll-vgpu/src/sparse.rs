//! cuSPARSE, cuSPARSELt, cuSOLVER and cuFFT: sizes that they ask for are 0, everything else is a launch.
//!
//! torch asks these libraries for the size of a workspace before it calls them. An answer that is not written would be read
//! as a size, so each question is answered by hand: no workspace. What they compute (factors, eigenvalues, spectra) does not
//! exist: matrices read as zero. Operations are not counted; the log has a launch under the name of the call.
//!
//! Names and argument orders are those of NVIDIA's documentation of each library. An entry point that declares fewer
//! arguments than the library has ignores the rest: on x86-64 the caller removes them.
use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::gpu::gpu;
use crate::handles::{named, Handles};
use crate::log::{self, Kind};
use crate::{memory, set, Handle, Out};

/// Success, and the error of all four libraries for a handle that does not exist or a place that is null.
const SUCCESS: c_int = 0;
const INVALID: c_int = 1;

/// Anything that one of these libraries hands out, with the stream that was set for it; Relaxed: one thread uses it at a time.
static OBJECTS: Handles<AtomicUsize> = Handles::new();
/// Rows, columns and elements of sparse matrices.
static MATRICES: Handles<[i64; 3]> = Handles::new();

fn told<T>(out: Out<'_, T>, value: T) -> c_int {
    set(out, value).map_or(INVALID, |()| SUCCESS)
}

fn new(out: Out<'_, Handle>) -> c_int {
    match out {
        Some(_) => told(out, OBJECTS.insert(AtomicUsize::new(0))),
        None => INVALID,
    }
}

fn set_stream(handle: Handle, stream: Handle) -> c_int {
    OBJECTS.find(handle).map_or(INVALID, |object| {
        object.store(stream, Ordering::Relaxed); // Relaxed: see `OBJECTS`
        SUCCESS
    })
}

/// Logs a launch that fills the GPU once, on the stream of a handle.
fn launch(handle: Handle, name: u32) -> c_int {
    OBJECTS.find(handle).map_or(INVALID, |object| {
        // Relaxed: see `OBJECTS`.
        log::push(Kind::Launch, object.load(Ordering::Relaxed), name, [u64::from(gpu().sms), 256, 0]);
        SUCCESS
    })
}

/// Calls that hand out an object, those that forget one, and those that set the stream of one.
macro_rules! objects {
    (create $($create:ident)*; destroy $($destroy:ident)*; stream $($stream:ident)*; accept $($accept:ident)*;) => {
        $(
            /// Hands out an object.
            #[no_mangle]
            extern "C" fn $create(out: Out<'_, Handle>) -> c_int {
                new(out)
            }
        )*
        $(
            /// Forgets an object.
            #[no_mangle]
            extern "C" fn $destroy(handle: Handle) -> c_int {
                match (OBJECTS.remove(handle), MATRICES.remove(handle)) {
                    (None, None) => INVALID,
                    _ => SUCCESS,
                }
            }
        )*
        $(
            /// Sets the stream of an object.
            #[no_mangle]
            extern "C" fn $stream(handle: Handle, stream: Handle) -> c_int {
                set_stream(handle, stream)
            }
        )*
        $(
            /// Accepts a setting.
            #[no_mangle]
            extern "C" fn $accept() -> c_int {
                SUCCESS
            }
        )*
    };
}
objects! {
    create cusolverDnCreate cusolverDnCreateGesvdjInfo cusolverDnCreateSyevjInfo cusolverDnCreateParams
        cusparseCreate cusparseCreateMatDescr cusparseCreateBsrsm2Info cusparseCreateBsrsv2Info cusparseCreateDnMat
        cusparseCreateDnVec cusparseSpGEMM_createDescr cusparseSpSM_createDescr cusparseSpSV_createDescr;
    destroy cusolverDnDestroy cusolverDnDestroyGesvdjInfo cusolverDnDestroySyevjInfo cusolverDnDestroyParams
        cusparseDestroy cusparseDestroyMatDescr cusparseDestroyBsrsm2Info cusparseDestroyBsrsv2Info cusparseDestroyDnMat
        cusparseDestroyDnVec cusparseDestroySpMat cusparseSpGEMM_destroyDescr cusparseSpSM_destroyDescr
        cusparseSpSV_destroyDescr;
    stream cusolverDnSetStream cusparseSetStream;
    accept cusolverDnXgesvdjSetMaxSweeps cusolverDnXgesvdjSetSortEig cusolverDnXgesvdjSetTolerance
        cusparseSetMatDiagType cusparseSetMatFillMode cusparseSetMatIndexBase cusparseSetMatType cusparseSetPointerMode
        cusparseCsrSetPointers cusparseCsrSetStridedBatch cusparseDnMatSetStridedBatch cusparseSpMatSetAttribute;
}

/// Hands out a sparse matrix and keeps its sizes.
macro_rules! matrices {
    ($($name:ident)*) => { $(
        /// Hands out a sparse matrix.
        #[no_mangle]
        extern "C" fn $name(out: Out<'_, Handle>, rows: i64, columns: i64, elements: i64) -> c_int {
            match out {
                Some(_) => told(out, MATRICES.insert([rows, columns, elements])),
                None => INVALID,
            }
        }
    )* };
}
matrices! { cusparseCreateCoo cusparseCreateCsr }

/// Writes the sizes of a sparse matrix.
#[no_mangle]
extern "C" fn cusparseSpMatGetSize(
    matrix: Handle,
    rows: Out<'_, i64>,
    columns: Out<'_, i64>,
    elements: Out<'_, i64>,
) -> c_int {
    let Some(sizes) = MATRICES.find(matrix) else { return INVALID };
    told(rows, sizes[0]) | told(columns, sizes[1]) | told(elements, sizes[2])
}

/// Questions for a size: the arguments before the answer, and the type of the answer.
macro_rules! sizes {
    ($($type:ty: ($($skipped:ident)*) $($name:ident)*;)*) => { $(sizes!(@ $type, ($($skipped)*), $($name)*);)* };
    (@ $type:ty, ($($skipped:ident)*), $first:ident $($rest:ident)*) => {
        /// Writes 0: no workspace.
        #[no_mangle]
        extern "C" fn $first($($skipped: usize,)* out: Out<'_, $type>) -> c_int {
            $(let _ = $skipped;)*
            told(out, 0)
        }
        sizes!(@ $type, ($($skipped)*), $($rest)*);
    };
    (@ $type:ty, ($($skipped:ident)*),) => {};
}
sizes! {
    c_int: (h m n a lda) cusolverDnSgeqrf_bufferSize cusolverDnDgeqrf_bufferSize cusolverDnCgeqrf_bufferSize
        cusolverDnZgeqrf_bufferSize cusolverDnSgetrf_bufferSize cusolverDnDgetrf_bufferSize cusolverDnCgetrf_bufferSize
        cusolverDnZgetrf_bufferSize;
    c_int: (h uplo n a lda) cusolverDnSpotrf_bufferSize cusolverDnDpotrf_bufferSize cusolverDnCpotrf_bufferSize
        cusolverDnZpotrf_bufferSize;
    c_int: (h n a lda) cusolverDnSsytrf_bufferSize cusolverDnDsytrf_bufferSize cusolverDnCsytrf_bufferSize
        cusolverDnZsytrf_bufferSize;
    c_int: (h m n) cusolverDnSgesvd_bufferSize cusolverDnDgesvd_bufferSize cusolverDnCgesvd_bufferSize
        cusolverDnZgesvd_bufferSize;
    c_int: (h m n k a lda tau) cusolverDnSorgqr_bufferSize cusolverDnDorgqr_bufferSize cusolverDnCungqr_bufferSize
        cusolverDnZungqr_bufferSize;
    c_int: (h side trans m n k a lda tau c ldc) cusolverDnSormqr_bufferSize cusolverDnDormqr_bufferSize
        cusolverDnCunmqr_bufferSize cusolverDnZunmqr_bufferSize;
    c_int: (h jobz uplo n a lda w) cusolverDnSsyevd_bufferSize cusolverDnDsyevd_bufferSize cusolverDnCheevd_bufferSize
        cusolverDnZheevd_bufferSize cusolverDnSsyevj_bufferSize cusolverDnDsyevj_bufferSize cusolverDnCheevj_bufferSize
        cusolverDnZheevj_bufferSize cusolverDnSsyevjBatched_bufferSize cusolverDnDsyevjBatched_bufferSize
        cusolverDnCheevjBatched_bufferSize cusolverDnZheevjBatched_bufferSize;
    c_int: (h jobz econ m n a lda s u ldu v ldv) cusolverDnSgesvdj_bufferSize cusolverDnDgesvdj_bufferSize
        cusolverDnCgesvdj_bufferSize cusolverDnZgesvdj_bufferSize;
    c_int: (h jobz m n a lda s u ldu v ldv) cusolverDnSgesvdjBatched_bufferSize cusolverDnDgesvdjBatched_bufferSize
        cusolverDnCgesvdjBatched_bufferSize cusolverDnZgesvdjBatched_bufferSize;
    c_int: (h jobz rank m n a lda stride_a s stride_s u ldu stride_u v ldv stride_v)
        cusolverDnSgesvdaStridedBatched_bufferSize cusolverDnDgesvdaStridedBatched_bufferSize
        cusolverDnCgesvdaStridedBatched_bufferSize cusolverDnZgesvdaStridedBatched_bufferSize;
    c_int: (h dir trans mb nnzb descr val row col block info) cusparseSbsrsv2_bufferSize cusparseDbsrsv2_bufferSize
        cusparseCbsrsv2_bufferSize cusparseZbsrsv2_bufferSize;
    c_int: (h dir trans trans_xy mb n nnzb descr val row col block info) cusparseSbsrsm2_bufferSize
        cusparseDbsrsm2_bufferSize cusparseCbsrsm2_bufferSize cusparseZbsrsm2_bufferSize;
    usize: (h op alpha a x beta y dtype algorithm) cusparseSpMV_bufferSize;
    usize: (h op_a op_b alpha a b beta c dtype algorithm) cusparseSpMM_bufferSize cusparseSDDMM_bufferSize;
    usize: (h op alpha a x y dtype algorithm descr) cusparseSpSV_bufferSize;
    usize: (h op_a op_b alpha a b c dtype algorithm descr) cusparseSpSM_bufferSize;
    usize: (h op_a op_b alpha a b beta c dtype algorithm descr) cusparseSpGEMM_workEstimation cusparseSpGEMM_compute;
    usize: (h m n alpha descr_a nnz_a val_a row_a col_a beta descr_b nnz_b val_b row_b col_b descr_c val_c row_c col_c)
        cusparseScsrgeam2_bufferSizeExt cusparseDcsrgeam2_bufferSizeExt cusparseCcsrgeam2_bufferSizeExt
        cusparseZcsrgeam2_bufferSizeExt;
    usize: (h m n nnz row col) cusparseXcoosort_bufferSizeExt cusparseXcsrsort_bufferSizeExt;
    usize: (h plan) cusparseLtMatmulGetWorkspace;
    usize: (plan rank n in_embed in_stride in_distance in_type out_embed out_stride out_distance out_type batch)
        cufftXtMakePlanMany;
}

/// Questions for two sizes, one of the device and one of the host.
macro_rules! two_sizes {
    ($(($($skipped:ident)*) $($name:ident)*;)*) => { $(two_sizes!(@ ($($skipped)*), $($name)*);)* };
    (@ ($($skipped:ident)*), $first:ident $($rest:ident)*) => {
        /// Writes 0 twice: no workspace on the device, none on the host.
        #[no_mangle]
        extern "C" fn $first($($skipped: usize,)* device: Out<'_, usize>, host: Out<'_, usize>) -> c_int {
            $(let _ = $skipped;)*
            told(device, 0) | told(host, 0)
        }
        two_sizes!(@ ($($skipped)*), $($rest)*);
    };
    (@ ($($skipped:ident)*),) => {};
}
two_sizes! {
    (h params uplo n type_a a lda compute) cusolverDnXpotrf_bufferSize;
    (h params m n type_a a lda type_tau tau compute) cusolverDnXgeqrf_bufferSize;
    (h params jobz uplo n type_a a lda type_w w compute) cusolverDnXsyevd_bufferSize cusolverDnXsyevBatched_bufferSize;
    (h params jobvl jobvr n type_a a lda type_w w type_vl vl ldvl type_vr vr ldvr compute) cusolverDnXgeev_bufferSize;
    (h uplo n nrhs type_a a lda pivots type_b b ldb) cusolverDnXsytrs_bufferSize;
    (h descr) cusparseLtSpMMACompressedSize2;
}

/// Writes the elements of a sum of matrices: of both, as if no element were in the same place.
#[no_mangle]
extern "C" fn cusparseXcsrgeam2Nnz(
    handle: Handle,
    _m: c_int,
    _n: c_int,
    _descr_a: Handle,
    elements_a: c_int,
    _rows_a: Handle,
    _columns_a: Handle,
    _descr_b: Handle,
    elements_b: c_int,
    _rows_b: Handle,
    _columns_b: Handle,
    _descr_c: Handle,
    _rows_c: Handle,
    elements: Out<'_, c_int>,
) -> c_int {
    launch(handle, named!("cusparseXcsrgeam2Nnz")) | told(elements, elements_a.saturating_add(elements_b))
}

/// Calls that tell the device whether they succeeded: arguments before that place, and whether it is a list whose length is
/// the next argument, or the one after it.
macro_rules! solves {
    ($($lists:literal ($($skipped:ident)*) $($name:ident)*;)*) => { $(solves!(@ $lists, ($($skipped)*), $($name)*);)* };
    (@ $lists:literal, ($($skipped:ident)*), $first:ident $($rest:ident)*) => {
        /// Logs a launch, and tells the device that it succeeded.
        #[no_mangle]
        extern "C" fn $first(h: Handle, $($skipped: usize,)* info: usize, next: c_int, after: c_int) -> c_int {
            $(let _ = $skipped;)*
            let places: c_int = match $lists {
                0 => 1,
                1 => next,
                _ => after,
            };
            succeeds(info, places);
            launch(h, named!(stringify!($first)))
        }
        solves!(@ $lists, ($($skipped)*), $($rest)*);
    };
    (@ $lists:literal, ($($skipped:ident)*),) => {};
}

/// Writes success to places of the device, if a program holds them.
pub(crate) fn succeeds(info: usize, places: c_int) {
    let bytes = usize::try_from(places).unwrap_or(0).saturating_mul(size_of::<c_int>());
    if memory::is_device(info) && memory::is_live(info, bytes) {
        let _ = memory::data::forget(info, bytes);
    }
}

solves! {
    0 (m n a lda work pivots) cusolverDnSgetrf cusolverDnDgetrf cusolverDnCgetrf cusolverDnZgetrf;
    0 (m n a lda tau work lwork) cusolverDnSgeqrf cusolverDnDgeqrf cusolverDnCgeqrf cusolverDnZgeqrf;
    0 (uplo n a lda work lwork) cusolverDnSpotrf cusolverDnDpotrf cusolverDnCpotrf cusolverDnZpotrf;
    0 (trans n nrhs a lda pivots b ldb) cusolverDnSgetrs cusolverDnDgetrs cusolverDnCgetrs cusolverDnZgetrs;
    0 (uplo n nrhs a lda b ldb) cusolverDnSpotrs cusolverDnDpotrs cusolverDnCpotrs cusolverDnZpotrs;
    1 (uplo n a lda) cusolverDnSpotrfBatched cusolverDnDpotrfBatched cusolverDnCpotrfBatched cusolverDnZpotrfBatched;
    1 (uplo n nrhs a lda b ldb) cusolverDnSpotrsBatched cusolverDnDpotrsBatched cusolverDnCpotrsBatched cusolverDnZpotrsBatched;
    0 (uplo n a lda pivots work lwork) cusolverDnSsytrf cusolverDnDsytrf cusolverDnCsytrf cusolverDnZsytrf;
    0 (m n k a lda tau work lwork) cusolverDnSorgqr cusolverDnDorgqr cusolverDnCungqr cusolverDnZungqr;
    0 (side trans m n k a lda tau c ldc work lwork) cusolverDnSormqr cusolverDnDormqr cusolverDnCunmqr cusolverDnZunmqr;
    0 (jobu jobvt m n a lda s u ldu vt ldvt work lwork rwork) cusolverDnSgesvd cusolverDnDgesvd cusolverDnCgesvd cusolverDnZgesvd;
    0 (jobz econ m n a lda s u ldu v ldv work lwork) cusolverDnSgesvdj cusolverDnDgesvdj cusolverDnCgesvdj cusolverDnZgesvdj;
    2 (jobz m n a lda s u ldu v ldv work lwork) cusolverDnSgesvdjBatched cusolverDnDgesvdjBatched cusolverDnCgesvdjBatched cusolverDnZgesvdjBatched;
    2 (jobz rank m n a lda stride_a s stride_s u ldu stride_u v ldv stride_v work lwork) cusolverDnSgesvdaStridedBatched cusolverDnDgesvdaStridedBatched cusolverDnCgesvdaStridedBatched cusolverDnZgesvdaStridedBatched;
    0 (jobz uplo n a lda w work lwork) cusolverDnSsyevd cusolverDnDsyevd cusolverDnCheevd cusolverDnZheevd cusolverDnSsyevj cusolverDnDsyevj cusolverDnCheevj cusolverDnZheevj;
    2 (jobz uplo n a lda w work lwork) cusolverDnSsyevjBatched cusolverDnDsyevjBatched cusolverDnCheevjBatched cusolverDnZheevjBatched;
    0 (params uplo n type_a a lda compute work lwork host lhost) cusolverDnXpotrf;
    0 (params uplo n nrhs type_a a lda type_b b ldb) cusolverDnXpotrs;
    0 (params m n type_a a lda type_tau tau compute work lwork host lhost) cusolverDnXgeqrf;
    0 (params jobz uplo n type_a a lda type_w w compute work lwork host lhost) cusolverDnXsyevd;
    1 (params jobz uplo n type_a a lda type_w w compute work lwork host lhost) cusolverDnXsyevBatched;
    0 (params jobvl jobvr n type_a a lda type_w w type_vl vl ldvl type_vr vr ldvr compute work lwork host lhost) cusolverDnXgeev;
    0 (uplo n nrhs type_a a lda pivots type_b b ldb work lwork host lhost) cusolverDnXsytrs;
}

/// Calls that compute: one launch each, further arguments are not read.
macro_rules! launches {
    ($($name:ident)*) => { $(
        /// Logs a launch.
        #[no_mangle]
        extern "C" fn $name(handle: Handle) -> c_int {
            launch(handle, named!(stringify!($name)))
        }
    )* };
}
launches! {
    cusparseSpMM cusparseSpMV cusparseSDDMM cusparseSDDMM_preprocess cusparseSpGEMM_copy
    cusparseSpSM_analysis cusparseSpSM_solve cusparseSpSV_analysis cusparseSpSV_solve
    cusparseSbsrmm cusparseDbsrmm cusparseCbsrmm cusparseZbsrmm cusparseSbsrmv cusparseDbsrmv cusparseCbsrmv cusparseZbsrmv
    cusparseSbsrsm2_analysis cusparseDbsrsm2_analysis cusparseCbsrsm2_analysis cusparseZbsrsm2_analysis
    cusparseSbsrsm2_solve cusparseDbsrsm2_solve cusparseCbsrsm2_solve cusparseZbsrsm2_solve
    cusparseSbsrsv2_analysis cusparseDbsrsv2_analysis cusparseCbsrsv2_analysis cusparseZbsrsv2_analysis
    cusparseSbsrsv2_solve cusparseDbsrsv2_solve cusparseCbsrsv2_solve cusparseZbsrsv2_solve
    cusparseScsrgeam2 cusparseDcsrgeam2 cusparseCcsrgeam2 cusparseZcsrgeam2
    cusparseCreateIdentityPermutation cusparseXcoo2csr cusparseXcoosortByRow cusparseXcsrsort
}

/// Writes the place of the first zero on the diagonal: none.
macro_rules! pivots {
    ($($name:ident)*) => { $(
        /// Writes -1: no zero on the diagonal.
        #[no_mangle]
        extern "C" fn $name(_handle: Handle, _info: Handle, out: Out<'_, c_int>) -> c_int {
            told(out, -1)
        }
    )* };
}
pivots! { cusparseXbsrsm2_zeroPivot cusparseXbsrsv2_zeroPivot }

/// The text of a status.
#[no_mangle]
extern "C" fn cusparseGetErrorString(status: c_int) -> *const c_char {
    let text =
        if status == SUCCESS { c"success" } else { c"an object or a place that cuSPARSE was given does not exist" };
    text.as_ptr()
}

/// Writes a plan: cuFFT's handles are small numbers.
#[no_mangle]
extern "C" fn cufftCreate(out: Out<'_, c_int>) -> c_int {
    match out {
        Some(_) => told(out, OBJECTS.insert(AtomicUsize::new(0)) as c_int),
        None => INVALID,
    }
}

/// Forgets a plan.
#[no_mangle]
extern "C" fn cufftDestroy(plan: c_int) -> c_int {
    OBJECTS.remove(plan as u32 as Handle).map_or(INVALID, |_| SUCCESS)
}

/// Sets the stream of a plan.
#[no_mangle]
extern "C" fn cufftSetStream(plan: c_int, stream: Handle) -> c_int {
    set_stream(plan as u32 as Handle, stream)
}

/// Accepts a setting of a plan.
macro_rules! plans {
    ($($name:ident)*) => { $(
        /// Accepts a setting of a plan.
        #[no_mangle]
        extern "C" fn $name(plan: c_int) -> c_int {
            OBJECTS.find(plan as u32 as Handle).map_or(INVALID, |_| SUCCESS)
        }
    )* };
}
plans! { cufftSetAutoAllocation cufftSetWorkArea }

/// Logs a transform.
#[no_mangle]
extern "C" fn cufftXtExec(plan: c_int) -> c_int {
    launch(plan as u32 as Handle, named!("cufftXtExec"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::MaybeUninit;

    #[test]
    fn sizes_that_are_asked_for_are_written_as_zero() {
        let mut bytes = MaybeUninit::new(usize::MAX);
        assert_eq!(cusparseSpMV_bufferSize(0, 0, 0, 0, 0, 0, 0, 0, 0, Some(&mut bytes)), SUCCESS);
        // SAFETY: it was initialized.
        assert_eq!(unsafe { bytes.assume_init() }, 0);
        let (mut device, mut host) = (MaybeUninit::new(7), MaybeUninit::new(7));
        let status = cusolverDnXpotrf_bufferSize(0, 0, 0, 0, 0, 0, 0, 0, Some(&mut device), Some(&mut host));
        // SAFETY: both were initialized.
        assert_eq!((status, unsafe { device.assume_init() }, unsafe { host.assume_init() }), (SUCCESS, 0, 0));
        assert_eq!(cusolverDnSgesvd_bufferSize(0, 0, 0, None), INVALID);
    }

    #[test]
    fn a_plan_of_a_transform_fits_in_an_int_and_ends() {
        let mut plan = MaybeUninit::new(0);
        assert_eq!(cufftCreate(Some(&mut plan)), SUCCESS);
        // SAFETY: it was initialized.
        let plan = unsafe { plan.assume_init() };
        assert_eq!((cufftSetStream(plan, 64), cufftXtExec(plan), cufftDestroy(plan)), (SUCCESS, SUCCESS, SUCCESS));
        assert_eq!((cufftXtExec(plan), cufftDestroy(-1)), (INVALID, INVALID));
    }
}
