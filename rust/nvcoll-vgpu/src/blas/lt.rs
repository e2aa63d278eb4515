//! cuBLASLt: descriptors keep what the log needs, one algorithm is offered, products are logged.
//!
//! A product is m x n x k: m and n are the rows and columns of D, k is the side of A that is summed over. The epilogue
//! (bias, ReLU, GELU, their gradients) stands in the record as the number of `cublasLtEpilogue_t`.
//! A program may also hold a description itself (`..._internal`, which NVIDIA's header calls): its address is then the handle.
//! Numbers of attributes are from NVIDIA's documentation, *cuBLAS*, section "Using the cuBLASLt API".
use std::ffi::c_int;

use super::products::MatrixProduct;
use super::{answer, version};
use crate::arguments::{List, Room};
use crate::entry_points::{functions, int, named, refused, values};
use crate::handles::Handles;
use crate::{set, Answer, Failure, Handle, Out};

/// A description of a product.
#[derive(Clone, Copy)]
struct ProductDescription {
    compute: c_int,
    transposes: [c_int; 2],
    epilogue: c_int,
}

/// A layout of a matrix.
#[derive(Clone, Copy)]
struct MatrixLayout {
    dtype: c_int,
    rows: i64,
    columns: i64,
    batch: c_int,
}

static DESCRIPTIONS: Handles<ProductDescription> = Handles::new();
static LAYOUTS: Handles<MatrixLayout> = Handles::new();
static PREFERENCES: Handles<()> = Handles::new();

/// `cublasLtMatmulHeuristicResult_t`: an algorithm, its workspace, its status and how it fills the GPU.
#[repr(C)]
pub(crate) struct Heuristic {
    algorithm: [u64; 8],
    workspace_bytes: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

/// The only algorithm, which needs no workspace.
const OFFERED: Heuristic = Heuristic { algorithm: [0; 8], workspace_bytes: 0, state: 0, waves: 1.0, reserved: [0; 4] };

values! {
    cublasLtGetVersion() -> usize => version() as usize;
}

/// Sets an attribute of a description; attributes that are kept have 4 bytes.
fn describe(description: Handle, attribute: c_int, value: List<c_int>, bytes: usize) -> Answer {
    let mut known = DESCRIPTIONS.find(description)?;
    let field = match attribute {
        0 => &mut known.compute,
        3 | 4 => &mut known.transposes[usize::from(attribute == 4)],
        7 => &mut known.epilogue,
        _ => return Ok(()),
    };
    if bytes != 4 {
        return Err(Failure::INVALID_VALUE);
    }
    *field = value.read(1)?[0];
    DESCRIPTIONS.change(description, |kept| *kept = known)
}

/// Sets an attribute of a layout: type and batch have 4 bytes, rows and columns 8.
fn lay_out(layout: Handle, attribute: c_int, value: List<c_int>, bytes: usize) -> Answer {
    let int = || Ok(value.read(1)?[0]);
    let long = || Ok(value.cast::<i64>().read(1)?[0]);
    let mut known = LAYOUTS.find(layout)?;
    match (attribute, bytes) {
        (0, 4) => known.dtype = int()?,
        (2, 8) => known.rows = long()?,
        (3, 8) => known.columns = long()?,
        (5, 4) => known.batch = int()?,
        (0 | 2 | 3 | 5, _) => return Err(Failure::INVALID_VALUE),
        _ => {}
    }
    LAYOUTS.change(layout, |kept| *kept = known)
}

/// Writes zeros to a place of `bytes`.
fn zeros(out: Room<u8>, bytes: usize, written: Out<'_, usize>) -> Answer {
    out.write(&vec![0; bytes])?;
    let _ = set(written, bytes); // optional
    Ok(())
}

fn log(description: Handle, a: Handle, d: Handle, stream: Handle) -> Answer {
    let (description, a, d) = (DESCRIPTIONS.find(description)?, LAYOUTS.find(a)?, LAYOUTS.find(d)?);
    let ProductDescription { compute, transposes: operations, epilogue } = description;
    let k = if operations[0] == 0 { a.columns } else { a.rows };
    let sizes = [d.rows, d.columns, k, d.batch.into()];
    let types = [a.dtype, d.dtype];
    MatrixProduct { name: named!("cublasLtMatmul"), sizes, operations, types, epilogue, compute }.log(stream)
}

functions! { answer:
    cublasLtMatmulDescCreate(out: Out<Handle>, compute: c_int) =>
        DESCRIPTIONS.make(out, ProductDescription { compute, transposes: [0, 0], epilogue: 1 });
    cublasLtMatmulDescInit_internal(own: Handle, _bytes: usize, compute: c_int) =>
        DESCRIPTIONS.put(own, ProductDescription { compute, transposes: [0, 0], epilogue: 1 });
    cublasLtMatrixLayoutInit_internal(own: Handle, _bytes: usize, dtype: c_int, rows: i64, columns: i64) =>
        LAYOUTS.put(own, MatrixLayout { dtype, rows, columns, batch: 1 });
    cublasLtMatmulPreferenceInit_internal(own: Handle) => PREFERENCES.put(own, ());
    cublasLtMatmulDescSetAttribute(description: Handle, attribute: c_int, value: List<c_int>, bytes: usize) =>
        describe(description, attribute, value, bytes);
    cublasLtMatmulDescDestroy(description: Handle) => DESCRIPTIONS.remove(description);
    cublasLtMatrixLayoutCreate(out: Out<Handle>, dtype: c_int, rows: i64, columns: i64) =>
        LAYOUTS.make(out.filter(|_| rows >= 0 && columns >= 0), MatrixLayout { dtype, rows, columns, batch: 1 });
    cublasLtMatrixLayoutSetAttribute(layout: Handle, attribute: c_int, value: List<c_int>, bytes: usize) =>
        lay_out(layout, attribute, value, bytes);
    cublasLtMatrixLayoutDestroy(layout: Handle) => LAYOUTS.remove(layout);
    // Preferences are accepted and not kept.
    cublasLtMatmulPreferenceCreate(out: Out<Handle>) => PREFERENCES.make(out, ());
    cublasLtMatmulPreferenceSetAttribute(preference: Handle) => PREFERENCES.find(preference);
    cublasLtMatmulPreferenceDestroy(preference: Handle) => PREFERENCES.remove(preference);
    cublasLtMatmulAlgoGetHeuristic[handle description a b c d preference asked](results: Out<Heuristic>, found: Out<c_int>) => {
        DESCRIPTIONS.find(description)?;
        LAYOUTS.find(a).and(LAYOUTS.find(d))?;
        set(results.filter(|_| int(asked) > 0), OFFERED)?;
        set(found, 1)
    };
    cublasLtMatmulAlgoCheck[handle description a b c d algorithm](result: Out<Heuristic>) =>
        DESCRIPTIONS.find(description).and_then(|_| set(result, OFFERED));
    // All algorithms are the same, and their settings are zero.
    cublasLtMatmulAlgoInit[handle compute scale a b c d number](out: Out<[u64; 8]>) => set(out, [0; 8]);
    cublasLtMatmulAlgoConfigSetAttribute() => Ok(());
    cublasLtMatmulAlgoConfigGetAttribute cublasLtMatmulAlgoCapGetAttribute[algorithm attribute](out: Room<u8>, bytes: usize,
        written: Out<usize>) => zeros(out, bytes, written);
    cublasLtMatmul[handle description alpha a a_layout b b_layout beta c c_layout d d_layout algorithm workspace bytes stream]() =>
        log(description, a_layout, d_layout, stream);
}

// The sizes of a product in groups lie on the device.
refused! { answer: cublasLtGroupedMatrixLayoutInit_internal cublasLtGroupedMatrixLayoutCreate }
