//! cuSPARSE, cuSPARSELt, cuSOLVER and cuFFT: sizes that they ask for are 0, everything else is a launch.
//!
//! torch asks these libraries for the size of a workspace before it calls them. An answer that is not written would be read
//! as a size, so each question is answered by hand: no workspace. What they compute (factors, eigenvalues, spectra) does not
//! exist: matrices read as zero. Operations are not counted; the log has a launch under the name of the call.
//!
//! Names and argument orders are from NVIDIA's documentation of each library.
use std::ffi::c_int;

use crate::entry_points::{functions, int, logged, number};
use crate::gpu::gpu;
use crate::handles::Handles;
use crate::log::{self, RecordKind};
use crate::{memory, set, Answer, Handle, Out, Status};

/// Anything that one of these libraries hands out, with the stream that was set for it.
static OBJECTS: Handles<Handle> = Handles::new();
/// Rows, columns and elements of sparse matrices.
static MATRICES: Handles<[i64; 3]> = Handles::new();

/// The error of all four libraries for a handle that does not exist or a place that is null.
fn answer(body: impl FnOnce() -> Answer) -> Status {
    number(body(), 1, 1)
}

/// Logs a launch that fills the GPU once, on the stream of a handle.
fn launch(handle: Handle, name: u32) -> Answer {
    log::push(RecordKind::Launch, OBJECTS.find(handle)?, name, [u64::from(gpu().sms), 256, 0]);
    Ok(())
}

/// Writes success to places of the device, if a program holds them.
pub(crate) fn succeeds(info: usize, places: c_int) {
    let bytes = usize::try_from(places).unwrap_or(0).saturating_mul(size_of::<c_int>());
    if memory::is_device(info) && memory::is_live(info, bytes) {
        let _ = memory::data::forget(info, bytes);
    }
}

/// Logs a launch, and writes success to the device.
fn solve(handle: Handle, name: u32, info: usize, places: c_int) -> Answer {
    succeeds(info, places);
    launch(handle, name)
}

/// No workspace on the device, none on the host.
fn none(device: Out<'_, usize>, host: Out<'_, usize>) -> Answer {
    set(device, 0)?;
    set(host, 0)
}

functions! { answer:
    cusolverDnCreate cusolverDnCreateGesvdjInfo cusolverDnCreateSyevjInfo cusolverDnCreateParams cusparseCreate
        cusparseCreateMatDescr cusparseCreateBsrsm2Info cusparseCreateBsrsv2Info cusparseCreateDnMat cusparseCreateDnVec
        cusparseSpGEMM_createDescr cusparseSpSM_createDescr cusparseSpSV_createDescr(out: Out<Handle>) =>
        OBJECTS.make(out, 0);
    cusolverDnDestroy cusolverDnDestroyGesvdjInfo cusolverDnDestroySyevjInfo cusolverDnDestroyParams cusparseDestroy
        cusparseDestroyMatDescr cusparseDestroyBsrsm2Info cusparseDestroyBsrsv2Info cusparseDestroyDnMat cusparseDestroyDnVec
        cusparseDestroySpMat cusparseSpGEMM_destroyDescr cusparseSpSM_destroyDescr cusparseSpSV_destroyDescr
        (handle: Handle) => OBJECTS.remove(handle).or(MATRICES.remove(handle));
    cusolverDnSetStream cusparseSetStream(handle: Handle, stream: Handle) => OBJECTS.change(handle, |kept| *kept = stream);
    cusolverDnXgesvdjSetMaxSweeps cusolverDnXgesvdjSetSortEig cusolverDnXgesvdjSetTolerance cusparseSetMatDiagType
        cusparseSetMatFillMode cusparseSetMatIndexBase cusparseSetMatType cusparseSetPointerMode cusparseCsrSetPointers
        cusparseCsrSetStridedBatch cusparseDnMatSetStridedBatch cusparseSpMatSetAttribute() => Ok(());
    cusparseCreateCoo cusparseCreateCsr(out: Out<Handle>, rows: i64, columns: i64, elements: i64) =>
        MATRICES.make(out, [rows, columns, elements]);
    cusparseSpMatGetSize(matrix: Handle, rows: Out<i64>, columns: Out<i64>, elements: Out<i64>) => {
        let sizes = MATRICES.find(matrix)?;
        set(rows, sizes[0])?;
        set(columns, sizes[1])?;
        set(elements, sizes[2])
    };
    // The place of the first zero on the diagonal: none.
    cusparseXbsrsm2_zeroPivot cusparseXbsrsv2_zeroPivot[handle info](out: Out<c_int>) => set(out, -1);

    // Sizes of workspaces.
    cusolverDnSgeqrf_bufferSize cusolverDnDgeqrf_bufferSize cusolverDnCgeqrf_bufferSize cusolverDnZgeqrf_bufferSize
        cusolverDnSgetrf_bufferSize cusolverDnDgetrf_bufferSize cusolverDnCgetrf_bufferSize cusolverDnZgetrf_bufferSize
        cusolverDnSpotrf_bufferSize cusolverDnDpotrf_bufferSize cusolverDnCpotrf_bufferSize cusolverDnZpotrf_bufferSize
        [h m_or_uplo n a lda](out: Out<c_int>) => set(out, 0);
    cusolverDnSsytrf_bufferSize cusolverDnDsytrf_bufferSize cusolverDnCsytrf_bufferSize cusolverDnZsytrf_bufferSize
        [h n a lda](out: Out<c_int>) => set(out, 0);
    cusolverDnSgesvd_bufferSize cusolverDnDgesvd_bufferSize cusolverDnCgesvd_bufferSize cusolverDnZgesvd_bufferSize
        [h m n](out: Out<c_int>) => set(out, 0);
    cusolverDnSorgqr_bufferSize cusolverDnDorgqr_bufferSize cusolverDnCungqr_bufferSize cusolverDnZungqr_bufferSize
        [h m n k a lda tau](out: Out<c_int>) => set(out, 0);
    cusolverDnSormqr_bufferSize cusolverDnDormqr_bufferSize cusolverDnCunmqr_bufferSize cusolverDnZunmqr_bufferSize
        cusolverDnSgesvdjBatched_bufferSize cusolverDnDgesvdjBatched_bufferSize cusolverDnCgesvdjBatched_bufferSize
        cusolverDnZgesvdjBatched_bufferSize cusparseSbsrsv2_bufferSize cusparseDbsrsv2_bufferSize cusparseCbsrsv2_bufferSize
        cusparseZbsrsv2_bufferSize[h a1 a2 a3 a4 a5 a6 a7 a8 a9 a10](out: Out<c_int>) => set(out, 0);
    cusolverDnSsyevd_bufferSize cusolverDnDsyevd_bufferSize cusolverDnCheevd_bufferSize cusolverDnZheevd_bufferSize
        cusolverDnSsyevj_bufferSize cusolverDnDsyevj_bufferSize cusolverDnCheevj_bufferSize cusolverDnZheevj_bufferSize
        cusolverDnSsyevjBatched_bufferSize cusolverDnDsyevjBatched_bufferSize cusolverDnCheevjBatched_bufferSize
        cusolverDnZheevjBatched_bufferSize[h jobz uplo n a lda w](out: Out<c_int>) => set(out, 0);
    cusolverDnSgesvdj_bufferSize cusolverDnDgesvdj_bufferSize cusolverDnCgesvdj_bufferSize cusolverDnZgesvdj_bufferSize
        [h jobz econ m n a lda s u ldu v ldv](out: Out<c_int>) => set(out, 0);
    cusolverDnSgesvdaStridedBatched_bufferSize cusolverDnDgesvdaStridedBatched_bufferSize
        cusolverDnCgesvdaStridedBatched_bufferSize cusolverDnZgesvdaStridedBatched_bufferSize
        [h jobz rank m n a lda stride_a s stride_s u ldu stride_u v ldv stride_v](out: Out<c_int>) => set(out, 0);
    cusparseSbsrsm2_bufferSize cusparseDbsrsm2_bufferSize cusparseCbsrsm2_bufferSize cusparseZbsrsm2_bufferSize
        [h dir trans trans_xy mb n nnzb descr val row col block info](out: Out<c_int>) => set(out, 0);
    cusparseSpMV_bufferSize[h op alpha a x beta y dtype algorithm](out: Out<usize>) => set(out, 0);
    cusparseSpMM_bufferSize cusparseSDDMM_bufferSize cusparseSpSM_bufferSize[h op_a op_b a1 a2 a3 a4 a5 a6 a7]
        (out: Out<usize>) => set(out, 0);
    cusparseSpSV_bufferSize[h op alpha a x y dtype algorithm descr](out: Out<usize>) => set(out, 0);
    cusparseSpGEMM_workEstimation cusparseSpGEMM_compute[h op_a op_b alpha a b beta c dtype algorithm descr]
        (out: Out<usize>) => set(out, 0);
    cusparseScsrgeam2_bufferSizeExt cusparseDcsrgeam2_bufferSizeExt cusparseCcsrgeam2_bufferSizeExt
        cusparseZcsrgeam2_bufferSizeExt[h m n alpha descr_a nnz_a val_a row_a col_a beta descr_b nnz_b val_b row_b col_b descr_c
        val_c row_c col_c](out: Out<usize>) => set(out, 0);
    cusparseXcoosort_bufferSizeExt cusparseXcsrsort_bufferSizeExt[h m n nnz row col](out: Out<usize>) => set(out, 0);
    cusparseLtMatmulGetWorkspace[h plan](out: Out<usize>) => set(out, 0);
    cufftXtMakePlanMany[plan rank n in_embed in_stride in_distance in_type out_embed out_stride out_distance out_type batch]
        (out: Out<usize>) => set(out, 0);
    cusolverDnXpotrf_bufferSize[h params uplo n type_a a lda compute](device: Out<usize>, host: Out<usize>) =>
        none(device, host);
    cusolverDnXgeqrf_bufferSize[h params m n type_a a lda type_tau tau compute](device: Out<usize>, host: Out<usize>) =>
        none(device, host);
    cusolverDnXsyevd_bufferSize cusolverDnXsyevBatched_bufferSize cusolverDnXsytrs_bufferSize
        [h a1 a2 a3 a4 a5 a6 a7 a8 a9 a10](device: Out<usize>, host: Out<usize>) => none(device, host);
    cusolverDnXgeev_bufferSize[h params jobvl jobvr n type_a a lda type_w w type_vl vl ldvl type_vr vr ldvr compute]
        (device: Out<usize>, host: Out<usize>) => none(device, host);
    cusparseLtSpMMACompressedSize2[h descr](device: Out<usize>, host: Out<usize>) => none(device, host);

    // Handles of cuFFT are small numbers.
    cufftCreate(out: Out<c_int>) => crate::make(out, || Ok(OBJECTS.insert(0) as c_int));
    cufftDestroy(plan: u32) => OBJECTS.remove(plan as Handle);
    cufftSetStream(plan: u32, stream: Handle) => OBJECTS.change(plan as Handle, |kept| *kept = stream);
    cufftSetAutoAllocation cufftSetWorkArea(plan: u32) => OBJECTS.find(plan as Handle).map(drop);
}

logged! { answer:
    cusparseSpMM cusparseSpMV cusparseSDDMM cusparseSDDMM_preprocess cusparseSpGEMM_copy
    cusparseSpSM_analysis cusparseSpSM_solve cusparseSpSV_analysis cusparseSpSV_solve
    cusparseSbsrmm cusparseDbsrmm cusparseCbsrmm cusparseZbsrmm cusparseSbsrmv cusparseDbsrmv cusparseCbsrmv cusparseZbsrmv
    cusparseSbsrsm2_analysis cusparseDbsrsm2_analysis cusparseCbsrsm2_analysis cusparseZbsrsm2_analysis
    cusparseSbsrsm2_solve cusparseDbsrsm2_solve cusparseCbsrsm2_solve cusparseZbsrsm2_solve
    cusparseSbsrsv2_analysis cusparseDbsrsv2_analysis cusparseCbsrsv2_analysis cusparseZbsrsv2_analysis
    cusparseSbsrsv2_solve cusparseDbsrsv2_solve cusparseCbsrsv2_solve cusparseZbsrsv2_solve
    cusparseScsrgeam2 cusparseDcsrgeam2 cusparseCcsrgeam2 cusparseZcsrgeam2
    cusparseCreateIdentityPermutation cusparseXcoo2csr cusparseXcoosortByRow cusparseXcsrsort
        (handle: Handle) => |name| launch(handle, name.number);
    cufftXtExec(plan: u32) => |name| launch(plan as Handle, name.number);
    // The elements of a sum of matrices: of both, as if no element were in the same place.
    cusparseXcsrgeam2Nnz[handle m n descr_a a row_a col_a descr_b b row_b col_b descr_c row_c](elements: Out<c_int>) =>
        |name| launch(handle, name.number).and_then(|()| set(elements, int(a).saturating_add(int(b))));

    // Factors and solutions, whose last argument is the place for their success.
    cusolverDnSgetrf cusolverDnDgetrf cusolverDnCgetrf cusolverDnZgetrf cusolverDnSpotrf cusolverDnDpotrf cusolverDnCpotrf
        cusolverDnZpotrf[h a1 n a lda work a6](info: usize) => |name| solve(h, name.number, info, 1);
    cusolverDnSgetrs cusolverDnDgetrs cusolverDnCgetrs cusolverDnZgetrs cusolverDnSorgqr cusolverDnDorgqr cusolverDnCungqr
        cusolverDnZungqr cusolverDnSsyevd cusolverDnDsyevd cusolverDnCheevd cusolverDnZheevd cusolverDnSsyevj cusolverDnDsyevj
        cusolverDnCheevj cusolverDnZheevj[h a1 a2 a3 a4 a5 a6 a7 a8](info: usize) => |name| solve(h, name.number, info, 1);
    cusolverDnSgeqrf cusolverDnDgeqrf cusolverDnCgeqrf cusolverDnZgeqrf cusolverDnSpotrs cusolverDnDpotrs cusolverDnCpotrs
        cusolverDnZpotrs cusolverDnSsytrf cusolverDnDsytrf cusolverDnCsytrf
        cusolverDnZsytrf[h a1 n a3 a4 a5 a6 a7](info: usize) => |name| solve(h, name.number, info, 1);
    cusolverDnSormqr cusolverDnDormqr cusolverDnCunmqr cusolverDnZunmqr[h side trans m n k a lda tau c ldc work lwork]
        (info: usize) => |name| solve(h, name.number, info, 1);
    cusolverDnSgesvd cusolverDnDgesvd cusolverDnCgesvd cusolverDnZgesvd[h jobu jobvt m n a lda s u ldu vt ldvt work lwork rwork]
        (info: usize) => |name| solve(h, name.number, info, 1);
    cusolverDnSgesvdj cusolverDnDgesvdj cusolverDnCgesvdj cusolverDnZgesvdj[h jobz econ m n a lda s u ldu v ldv work lwork]
        (info: usize) => |name| solve(h, name.number, info, 1);
    cusolverDnXpotrf[h params uplo n type_a a lda compute work lwork host lhost](info: usize) =>
        |name| solve(h, name.number, info, 1);
    cusolverDnXpotrs[h params uplo n nrhs type_a a lda type_b b ldb](info: usize) => |name| solve(h, name.number, info, 1);
    cusolverDnXgeqrf[h params m n type_a a lda type_tau tau compute work lwork host lhost](info: usize) =>
        |name| solve(h, name.number, info, 1);
    cusolverDnXsyevd cusolverDnXsytrs[h a1 a2 a3 a4 a5 a6 a7 a8 a9 a10 a11 a12 a13 a14](info: usize) =>
        |name| solve(h, name.number, info, 1);
    cusolverDnXgeev[h params jobvl jobvr n type_a a lda type_w w type_vl vl ldvl type_vr vr ldvr compute work lwork host lhost]
        (info: usize) => |name| solve(h, name.number, info, 1);
    // A list of matrices: its length follows, for some behind an object with parameters.
    cusolverDnSpotrfBatched cusolverDnDpotrfBatched cusolverDnCpotrfBatched cusolverDnZpotrfBatched[h uplo n a lda]
        (info: usize, batch: c_int) => |name| solve(h, name.number, info, batch);
    cusolverDnSpotrsBatched cusolverDnDpotrsBatched cusolverDnCpotrsBatched cusolverDnZpotrsBatched
        [h uplo n nrhs a lda b ldb](info: usize, batch: c_int) => |name| solve(h, name.number, info, batch);
    cusolverDnXsyevBatched[h params jobz uplo n type_a a lda type_w w compute work lwork host lhost]
        (info: usize, batch: c_int) => |name| solve(h, name.number, info, batch);
    cusolverDnSgesvdjBatched cusolverDnDgesvdjBatched cusolverDnCgesvdjBatched cusolverDnZgesvdjBatched
        [h jobz m n a lda s u ldu v ldv work lwork](info: usize, _parameters: usize, batch: c_int) =>
        |name| solve(h, name.number, info, batch);
    cusolverDnSgesvdaStridedBatched cusolverDnDgesvdaStridedBatched cusolverDnCgesvdaStridedBatched
        cusolverDnZgesvdaStridedBatched[h jobz rank m n a lda stride_a s stride_s u ldu stride_u v ldv stride_v work lwork]
        (info: usize, _norms: usize, batch: c_int) => |name| solve(h, name.number, info, batch);
    cusolverDnSsyevjBatched cusolverDnDsyevjBatched cusolverDnCheevjBatched cusolverDnZheevjBatched
        [h jobz uplo n a lda w work lwork](info: usize, _parameters: usize, batch: c_int) =>
        |name| solve(h, name.number, info, batch);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::MaybeUninit;

    const SUCCESS: c_int = 0;
    const INVALID: c_int = 1;

    #[test]
    fn sizes_that_are_asked_for_are_written_as_zero() {
        let mut bytes = MaybeUninit::new(usize::MAX);
        assert_eq!(cusparseSpMV_bufferSize(0, 0, 0, 0, 0, 0, 0, 0, 0, Some(&mut bytes)), SUCCESS);
        // SAFETY: it was initialized.
        assert_eq!(unsafe { bytes.assume_init() }, 0);
        let (mut device, mut host) = (MaybeUninit::new(7), MaybeUninit::new(7));
        let status = cusolverDnXpotrf_bufferSize(0, 0, 0, 0, 0, 0, 0, 0, Some(&mut device), Some(&mut host));
        // SAFETY: both were initialized.
        let sizes = unsafe { [device.assume_init(), host.assume_init()] };
        assert_eq!((status, sizes), (SUCCESS, [0, 0]));
        assert_eq!(cusolverDnSgesvd_bufferSize(0, 0, 0, None), INVALID);
    }

    #[test]
    fn a_plan_of_a_transform_fits_in_an_int_and_ends() {
        let mut plan = MaybeUninit::new(0);
        assert_eq!(cufftCreate(Some(&mut plan)), SUCCESS);
        // SAFETY: it was initialized.
        let plan = unsafe { plan.assume_init() } as u32;
        assert_eq!((cufftSetStream(plan, 64), cufftXtExec(plan), cufftDestroy(plan)), (SUCCESS, SUCCESS, SUCCESS));
        assert_eq!((cufftXtExec(plan), cufftDestroy(u32::MAX)), (INVALID, INVALID));
    }
}
