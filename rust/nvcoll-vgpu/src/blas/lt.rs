//! cuBLASLt: descriptors keep what the log needs, one algorithm is offered, products are logged.
//!
//! A product is m x n x k: m and n are the rows and columns of D, k is the side of A that is summed over. The epilogue
//! (bias, ReLU, GELU, their gradients) stands in the record as the number of `cublasLtEpilogue_t`.
//! Numbers of attributes are those of NVIDIA's documentation, *cuBLAS*, section "Using the cuBLASLt API".
use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicI64, Ordering};

use super::products::Product;
use super::{cublasCreate_v2, cublasDestroy_v2, told, version, Pointer, INVALID_VALUE, SUCCESS};
use crate::handles::{named, Handles};
use crate::{Handle, Out};

/// Attributes of `cublasLtMatmulDesc_t` that are kept; all of 4 bytes.
const COMPUTE_TYPE: c_int = 0;
const TRANSPOSE_A: c_int = 3;
const TRANSPOSE_B: c_int = 4;
const EPILOGUE: c_int = 7;

/// Attributes of `cublasLtMatrixLayout_t` that are kept, and their sizes in bytes.
const TYPE: c_int = 0;
const ROWS: c_int = 2;
const COLUMNS: c_int = 3;
const BATCH: c_int = 5;

/// A description of a product. One thread uses it at a time, so Relaxed suffices.
struct Description {
    compute: AtomicI32,
    transposes: [AtomicI32; 2],
    epilogue: AtomicI32,
}

/// A layout of a matrix. One thread uses it at a time, so Relaxed suffices.
struct Layout {
    dtype: AtomicI32,
    rows: AtomicI64,
    columns: AtomicI64,
    batch: AtomicI32,
}

static DESCRIPTIONS: Handles<Description> = Handles::new();
static LAYOUTS: Handles<Layout> = Handles::new();
static PREFERENCES: Handles<()> = Handles::new();

/// `cublasLtMatmulHeuristicResult_t`: an algorithm, its workspace, its status and how it fills the GPU.
#[repr(C)]
pub(super) struct Heuristic {
    algorithm: [u64; 8],
    workspace_bytes: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

/// Success if `object` was found.
fn known<T>(object: Option<T>) -> c_int {
    object.map_or(INVALID_VALUE, |_| SUCCESS)
}

/// Writes the handle of a new object, if there is a place for it.
fn new<T>(out: Out<'_, Handle>, table: &Handles<T>, object: T) -> c_int {
    match out {
        Some(_) => told(out, table.insert(object)),
        None => INVALID_VALUE,
    }
}

/// The version, as cuBLASLt codes it.
#[no_mangle]
pub(super) extern "C" fn cublasLtGetVersion() -> usize {
    version() as usize
}

/// Writes a new handle.
#[no_mangle]
pub(super) extern "C" fn cublasLtCreate(out: Out<'_, Handle>) -> c_int {
    cublasCreate_v2(out)
}

/// Forgets a handle.
#[no_mangle]
pub(super) extern "C" fn cublasLtDestroy(handle: Handle) -> c_int {
    cublasDestroy_v2(handle)
}

/// Makes a description.
#[no_mangle]
pub(super) extern "C" fn cublasLtMatmulDescCreate(out: Out<'_, Handle>, compute: c_int, _scale: c_int) -> c_int {
    let transposes = [AtomicI32::new(0), AtomicI32::new(0)];
    let made = Description { compute: AtomicI32::new(compute), transposes, epilogue: AtomicI32::new(1) };
    new(out, &DESCRIPTIONS, made)
}

/// Sets an attribute of a description.
#[no_mangle]
pub(super) extern "C" fn cublasLtMatmulDescSetAttribute(
    description: Handle,
    attribute: c_int,
    value: Option<&c_int>,
    bytes: usize,
) -> c_int {
    let Some(description) = DESCRIPTIONS.find(description) else { return INVALID_VALUE };
    let field = match attribute {
        COMPUTE_TYPE => &description.compute,
        TRANSPOSE_A => &description.transposes[0],
        TRANSPOSE_B => &description.transposes[1],
        EPILOGUE => &description.epilogue,
        _ => return SUCCESS,
    };
    match value {
        Some(value) if bytes == 4 => {
            field.store(*value, Ordering::Relaxed); // Relaxed: see `Description`
            SUCCESS
        }
        _ => INVALID_VALUE,
    }
}

/// Makes a layout.
#[no_mangle]
pub(super) extern "C" fn cublasLtMatrixLayoutCreate(
    out: Out<'_, Handle>,
    dtype: c_int,
    rows: u64,
    columns: u64,
    _leading: i64,
) -> c_int {
    let (Ok(rows), Ok(columns)) = (rows.try_into(), columns.try_into()) else { return INVALID_VALUE };
    let (rows, columns) = (AtomicI64::new(rows), AtomicI64::new(columns));
    new(out, &LAYOUTS, Layout { dtype: AtomicI32::new(dtype), rows, columns, batch: AtomicI32::new(1) })
}

/// Sets an attribute of a layout.
#[no_mangle]
pub(super) extern "C" fn cublasLtMatrixLayoutSetAttribute(
    layout: Handle,
    attribute: c_int,
    value: Option<&u32>,
    bytes: usize,
) -> c_int {
    let (Some(layout), Some(value)) = (LAYOUTS.find(layout), value) else { return INVALID_VALUE };
    // Relaxed, in all arms: see `Layout`.
    match (attribute, bytes) {
        (TYPE, 4) => layout.dtype.store(*value as c_int, Ordering::Relaxed),
        (BATCH, 4) => layout.batch.store(*value as c_int, Ordering::Relaxed),
        (ROWS | COLUMNS, 8) => {
            // SAFETY: the attribute has 8 bytes, as the caller says and cuBLASLt's interface demands.
            let value = unsafe { std::ptr::from_ref(value).cast::<i64>().read_unaligned() };
            let field = if attribute == ROWS { &layout.rows } else { &layout.columns };
            field.store(value, Ordering::Relaxed);
        }
        (TYPE | BATCH | ROWS | COLUMNS, _) => return INVALID_VALUE,
        _ => {}
    }
    SUCCESS
}

/// Makes preferences, which are accepted and not kept.
#[no_mangle]
pub(super) extern "C" fn cublasLtMatmulPreferenceCreate(out: Out<'_, Handle>) -> c_int {
    new(out, &PREFERENCES, ())
}

/// Accepts an attribute of preferences.
#[no_mangle]
pub(super) extern "C" fn cublasLtMatmulPreferenceSetAttribute(preference: Handle) -> c_int {
    known(PREFERENCES.find(preference))
}

/// Entry points that forget an object of a table.
macro_rules! ends {
    ($($name:ident $table:ident;)*) => { $(
        /// Forgets an object; a handle that names none is an error.
        #[no_mangle]
        pub(super) extern "C" fn $name(handle: Handle) -> c_int {
            known($table.remove(handle))
        }
    )* };
}
ends! {
    cublasLtMatmulDescDestroy DESCRIPTIONS;
    cublasLtMatrixLayoutDestroy LAYOUTS;
    cublasLtMatmulPreferenceDestroy PREFERENCES;
}

/// Offers one algorithm, which needs no workspace.
#[no_mangle]
pub(super) extern "C" fn cublasLtMatmulAlgoGetHeuristic(
    _handle: Handle,
    description: Handle,
    a: Handle,
    _b: Handle,
    _c: Handle,
    d: Handle,
    _preference: Handle,
    asked: c_int,
    results: Out<'_, Heuristic>,
    found: Out<'_, c_int>,
) -> c_int {
    let known = DESCRIPTIONS.find(description).is_some() && [a, d].iter().all(|layout| LAYOUTS.find(*layout).is_some());
    if !known || asked < 1 {
        return INVALID_VALUE;
    }
    let Some(results) = results else { return INVALID_VALUE };
    results.write(Heuristic { algorithm: [0; 8], workspace_bytes: 0, state: SUCCESS, waves: 1.0, reserved: [0; 4] });
    told(found, 1)
}

/// Accepts an algorithm for a product.
#[no_mangle]
pub(super) extern "C" fn cublasLtMatmulAlgoCheck(
    _handle: Handle,
    description: Handle,
    _a: Handle,
    _b: Handle,
    _c: Handle,
    _d: Handle,
    _algorithm: Pointer,
    result: Out<'_, Heuristic>,
) -> c_int {
    if DESCRIPTIONS.find(description).is_none() {
        return INVALID_VALUE;
    }
    told(result, Heuristic { algorithm: [0; 8], workspace_bytes: 0, state: SUCCESS, waves: 1.0, reserved: [0; 4] })
}

/// Writes the algorithm of a number: they are all the same.
#[no_mangle]
pub(super) extern "C" fn cublasLtMatmulAlgoInit(
    _handle: Handle,
    _compute: c_int,
    _scale: c_int,
    _a: c_int,
    _b: c_int,
    _c: c_int,
    _d: c_int,
    _number: c_int,
    out: Out<'_, [u64; 8]>,
) -> c_int {
    told(out, [0; 8])
}

/// Writes the numbers of algorithms: one, 0.
#[no_mangle]
pub(super) extern "C" fn cublasLtMatmulAlgoGetIds(
    _handle: Handle,
    _compute: c_int,
    _scale: c_int,
    _a: c_int,
    _b: c_int,
    _c: c_int,
    _d: c_int,
    asked: c_int,
    numbers: Out<'_, c_int>,
    found: Out<'_, c_int>,
) -> c_int {
    match (asked, numbers) {
        (1.., Some(numbers)) => {
            numbers.write(0);
            told(found, 1)
        }
        _ => INVALID_VALUE,
    }
}

/// Accepts a setting of an algorithm.
#[no_mangle]
pub(super) extern "C" fn cublasLtMatmulAlgoConfigSetAttribute(_algorithm: Pointer) -> c_int {
    SUCCESS
}

/// Reads a setting or an ability of an algorithm: zero.
fn zeros(out: Out<'_, u8>, bytes: usize, written: Out<'_, usize>) -> c_int {
    let Some(out) = out else { return INVALID_VALUE };
    // SAFETY: the place has the size that the caller says, by cuBLASLt's interface.
    unsafe { std::ptr::write_bytes(out.as_mut_ptr(), 0, bytes) };
    if let Some(written) = written {
        written.write(bytes);
    }
    SUCCESS
}

/// Reads a setting of an algorithm.
#[no_mangle]
pub(super) extern "C" fn cublasLtMatmulAlgoConfigGetAttribute(
    _algorithm: Pointer,
    _attribute: c_int,
    out: Out<'_, u8>,
    bytes: usize,
    written: Out<'_, usize>,
) -> c_int {
    zeros(out, bytes, written)
}

/// Reads an ability of an algorithm.
#[no_mangle]
pub(super) extern "C" fn cublasLtMatmulAlgoCapGetAttribute(
    _algorithm: Pointer,
    _attribute: c_int,
    out: Out<'_, u8>,
    bytes: usize,
    written: Out<'_, usize>,
) -> c_int {
    zeros(out, bytes, written)
}

/// Logs a product.
#[no_mangle]
pub(super) extern "C" fn cublasLtMatmul(
    _handle: Handle,
    description: Handle,
    _alpha: Pointer,
    _a: Pointer,
    a_layout: Handle,
    _b: Pointer,
    _b_layout: Handle,
    _beta: Pointer,
    _c: Pointer,
    _c_layout: Handle,
    _d: Pointer,
    d_layout: Handle,
    _algorithm: Pointer,
    _workspace: Pointer,
    _workspace_bytes: usize,
    stream: Handle,
) -> c_int {
    let found = (DESCRIPTIONS.find(description), LAYOUTS.find(a_layout), LAYOUTS.find(d_layout));
    let (Some(description), Some(a), Some(d)) = found else { return INVALID_VALUE };
    // Relaxed, in all reads: see `Description` and `Layout`.
    let read = |field: &AtomicI32| field.load(Ordering::Relaxed);
    let side = |field: &AtomicI64| field.load(Ordering::Relaxed);
    let operations = [read(&description.transposes[0]), read(&description.transposes[1])];
    let product = Product {
        name: named!("cublasLtMatmul"),
        m: side(&d.rows),
        n: side(&d.columns),
        k: if operations[0] == 0 { side(&a.columns) } else { side(&a.rows) },
        batch: read(&d.batch).into(),
        operations,
        a_type: read(&a.dtype),
        c_type: read(&d.dtype),
        epilogue: read(&description.epilogue),
        compute: read(&description.compute),
    };
    product.log(stream)
}
