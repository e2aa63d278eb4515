//! `_fold`: a left fold of arrays on the calling thread, outside of calls.

use pyo3::prelude::*;

use nvcoll_core::limits::MAX_WORLD_SIZE;
use nvcoll_core::op::Op;

use crate::arrays::FoldArrays;
use crate::calls::choices::Reduction;
use crate::error::{invalid, of_core};
use crate::integers::integer;

/// Folds arrays from left to right on the calling thread, without the GIL: ``out = carry op sources[0] op sources[1] ...``. Not public:
/// it is for hosts, which continue each other's folds.
///
/// The bits are the same as of one reduction of all these arrays in the order of ranks. Small floats (bfloat16, float16, float8) accumulate
/// in float32. A float32 `out` of such sources is not rounded, and a float32 `carry` continues a fold that was not.
///
/// Args:
///     sources: packed arrays of one length and dtype; or one packed array with all of them, each as long as `out`.
///     out: packed array, (count,), of the dtype of the sources. For `sum`, `prod`, `avg` and `premul_sum`, one of both may be float32
///         and the other a small float. Written. It may be the memory of `carry` or of a source, if it has their dtype.
///     op: as in a call. `avg` adds. `premul_sum` scales each source by the one scalar, or each by its own, and not `carry`.
///     carry: the fold of the sources before these, (count,), of the dtype of `out` or float32 as there. None: there are none.
///     divide_by: for `avg`, the number of ranks whose sources are folded, which completes the average. None: it is not complete.
///
/// Raises:
///     InvalidArgument: an array cannot be used, differs from the others, or shares a byte with `out`; the op is not defined on the dtype.
#[pyfunction(name = "_fold")]
#[pyo3(signature = (sources, out, op: "_Op", *, carry=None, divide_by: "int | None" = None))]
pub(crate) fn fold(
    py: Python<'_>,
    sources: &Bound<'_, PyAny>,
    out: &Bound<'_, PyAny>,
    op: &Bound<'_, PyAny>,
    carry: Option<&Bound<'_, PyAny>>,
    divide_by: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let arrays = FoldArrays::read(py, sources, out, carry)?;
    if arrays.is_empty() {
        return Ok(());
    }
    let reduction = Reduction::of_option(Some(op), arrays.sources())?;
    reduction.op.check(arrays.dtype()).map_err(|error| of_core(py, &error))?;
    reduction.check(py, arrays.dtype())?;
    let divisor = divide_by.map(|by| integer("`divide_by`", by, 1..=MAX_WORLD_SIZE)).transpose()?;
    if divisor.is_some() && reduction.op != Op::Avg {
        return Err(invalid(py, format!("`divide_by` completes avg, and `op` is {}: leave it out", reduction.op)));
    }
    let scalars: Vec<f64> = (0..arrays.sources()).map(|at| reduction.scalar(at)).collect();
    arrays.fold(py, reduction.op, &scalars, divisor)
}
