use std::mem::MaybeUninit;

use proptest::prelude::*;

use super::lt::*;
use super::products::*;
use super::solves::*;
use super::*;
use crate::arguments::List;
use crate::log::{self, LogRecord};
use crate::testing::{records_of, value_of};

const SUCCESS: c_int = 0;
const NOT_INITIALIZED: c_int = 1;
const INVALID_VALUE: c_int = 7;

fn made(make: impl FnOnce(Out<'_, Handle>) -> c_int) -> Handle {
    value_of(0, make)
}

fn library() -> Handle {
    made(|out| cublasCreate_v2(out))
}

#[test]
fn a_product_is_logged_with_its_shape_types_and_stream() {
    let handle = library();
    let records = records_of(|| {
        assert_eq!(cublasSetStream_v2(handle, 0x10000 + 64 * 5), SUCCESS);
        let status = cublasGemmEx(handle, 1, 0, 30, 20, 10, 0, 0, 14, 0, 0, 14, 0, 0, 0, 0, 0, 68);
        assert_eq!(status, SUCCESS);
    });
    let [record] = records[..] else { panic!("{records:?}") };
    assert_eq!((record.kind, record.stream), (log::RecordKind::Gemm as u16, 5));
    assert_eq!(record.args, [30, 20, 10, 1, 2, 14 | 68 << 32]);
    assert_eq!(log::text(record.name), Some(c"cublasGemmEx"));
}

#[test]
fn a_product_of_half_precision_without_types_is_one() {
    let handle = library();
    let records = records_of(|| {
        assert_eq!(cublasHgemm(handle, 0, 1, 30, 20, 10), SUCCESS);
        cublasHgemmStridedBatched(handle, 0, 0, 30, 20, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5);
    });
    let half = 2 | 2 << 8 | 64 << 32;
    assert_eq!(
        records.iter().map(|record| record.args).collect::<Vec<_>>(),
        [[30, 20, 10, 1, 1, half], [30, 20, 10, 5, 0, half]]
    );
}

#[test]
fn a_program_may_hold_descriptions_of_lt_itself() {
    let own = [0u64; 96];
    let at = |index: usize| &raw const own[index] as usize;
    let records = records_of(|| {
        assert_eq!(cublasLtMatmulDescInit_internal(at(0), 256, 68), SUCCESS);
        for (index, rows, columns) in [(32, 16, 64), (40, 64, 32), (48, 16, 32)] {
            assert_eq!(cublasLtMatrixLayoutInit_internal(at(index), 64, 14, rows, columns), SUCCESS);
        }
        assert_eq!(cublasLtMatmulPreferenceInit_internal(at(64)), SUCCESS);
        assert_eq!(cublasLtMatmul(0, at(0), 0, 0, at(32), 0, at(40), 0, 0, at(48), 0, at(48), 0, 0, 0, 0), SUCCESS);
    });
    assert_eq!(records[0].args[..4], [16, 32, 64, 1]);
    assert_eq!(cublasLtMatmulDescInit_internal(0, 256, 68), INVALID_VALUE);
    assert_eq!(cublasLtGroupedMatrixLayoutInit_internal(), INVALID_VALUE);
    // SAFETY: the result is a C string.
    let sentence = unsafe { std::ffi::CStr::from_ptr(crate::entry_points::outcome(INVALID_VALUE)) };
    assert!(sentence.to_string_lossy().ends_with("cublasLtGroupedMatrixLayoutInit_internal"), "{sentence:?}");
}

#[test]
fn single_precision_says_whether_tf32_is_allowed() {
    let handle = library();
    let records = records_of(|| {
        cublasSgemm_v2(handle, 0, 0, 1, 2, 3);
        cublasSetMathMode(handle, MATH_TF32);
        cublasSgemm_v2(handle, 0, 0, 1, 2, 3);
    });
    assert_eq!(records.iter().map(|record| record.args[5] >> 32).collect::<Vec<_>>(), [68, 77]);
}

#[test]
fn a_triangular_solution_counts_half_of_a_product() {
    let handle = library();
    let records = records_of(|| {
        cublasStrsm_v2(handle, 0, 0, 0, 0, 64, 10);
        cublasDtrsm_v2(handle, 1, 0, 0, 0, 64, 10);
        cublasCherk_v2(handle, 0, 0, 63, 5);
    });
    let operations = |record: &LogRecord| 2 * record.args[..4].iter().product::<u64>();
    assert_eq!(records.iter().map(operations).collect::<Vec<_>>(), [64 * 64 * 10, 64 * 10 * 10, 63 * 64 * 5]);
}

#[test]
fn lt_products_have_the_sizes_of_their_layouts_and_the_epilogue() {
    let description = made(|out| cublasLtMatmulDescCreate(out, 68));
    let layout = |rows, columns| made(|out| cublasLtMatrixLayoutCreate(out, 28, rows, columns));
    let (a, b, d) = (layout(64, 16), layout(64, 32), layout(16, 32));
    let records = records_of(|| {
        assert_eq!(cublasLtMatmulDescSetAttribute(description, 3, List::from(&[1][..]), 4), SUCCESS);
        assert_eq!(cublasLtMatmulDescSetAttribute(description, 7, List::from(&[36][..]), 4), SUCCESS);
        assert_eq!(cublasLtMatrixLayoutSetAttribute(d, 5, List::from(&[3][..]), 4), SUCCESS);
        let (mut found, mut result) = (MaybeUninit::new(0), MaybeUninit::uninit());
        let offered =
            cublasLtMatmulAlgoGetHeuristic(0, description, a, b, d, d, 0, 1, Some(&mut result), Some(&mut found));
        // SAFETY: `found` was initialized.
        assert_eq!((offered, unsafe { found.assume_init() }), (SUCCESS, 1));
        let status = cublasLtMatmul(0, description, 0, 0, a, 0, b, 0, 0, d, 0, d, 0, 0, 0, 64);
        assert_eq!(status, SUCCESS);
    });
    let [record] = records[..] else { panic!("{records:?}") };
    assert_eq!(record.args, [16, 32, 64, 3, 2, 28 | 28 << 8 | 36 << 16 | 68 << 32]);
}

#[test]
fn handles_that_are_null_foreign_or_freed_are_errors() {
    let handle = library();
    assert_eq!(cublasDestroy_v2(handle), SUCCESS);
    for handle in [0, 64, handle, made(|out| cublasLtMatmulDescCreate(out, 68))] {
        assert_eq!(cublasSgemm_v2(handle, 0, 0, 1, 1, 1), NOT_INITIALIZED);
        assert_eq!(cublasSetStream_v2(handle, 0), NOT_INITIALIZED);
        assert_eq!(cublasDestroy_v2(handle), NOT_INITIALIZED);
    }
    assert_eq!(cublasCreate_v2(None), INVALID_VALUE);
    assert_eq!(cublasLtMatmulDescCreate(None, 68), INVALID_VALUE);
}

proptest! {
    #[test]
    fn any_numbers_give_a_status_and_at_most_one_record(
        handle in any::<usize>(), known in any::<bool>(), operations in any::<[c_int; 2]>(), sizes in any::<[c_int; 3]>(),
        types in any::<[c_int; 3]>(), batch in any::<c_int>(),
    ) {
        let handle = if known { library() } else { handle };
        let sizes = [sizes[0], sizes[1], sizes[2], batch];
        let ([m, n, k, batch], operations, types) =
            (sizes.map(|size| size as usize), operations.map(|op| op as usize), types.map(|kind| kind as usize));
        let records = records_of(|| {
            let status = cublasGemmStridedBatchedEx(
                handle, operations[0], operations[1], m, n, k, 0, 0, types[0], 0, 0, 0, 0, 0, 0, 0, 0, types[1], 0, 0, batch,
                types[2],
            );
            let is_valid = known && sizes.iter().all(|size| *size >= 0);
            assert_eq!(status == SUCCESS, is_valid);
        });
        prop_assert!(records.len() <= 1);
    }

    #[test]
    fn any_attribute_of_any_size_gives_a_status(attribute in -2..50, value in any::<u64>(), bytes in 0..16usize) {
        let layout = made(|out| cublasLtMatrixLayoutCreate(out, 0, 1, 1));
        let value = [value as c_int, (value >> 32) as c_int];
        let status = cublasLtMatrixLayoutSetAttribute(layout, attribute, List::from(&value[..]), bytes);
        prop_assert!(status == SUCCESS || status == INVALID_VALUE);
        let description = made(|out| cublasLtMatmulDescCreate(out, 68));
        let status = cublasLtMatmulDescSetAttribute(description, attribute, List::from(&value[..]), bytes);
        prop_assert!(status == SUCCESS || status == INVALID_VALUE);
    }
}
