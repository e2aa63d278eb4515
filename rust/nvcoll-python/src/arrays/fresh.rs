//! New arrays for results, of the kind of the array that a caller passed.

use pyo3::intern;
use pyo3::prelude::*;

use nvcoll_core::dtype::DType;

use super::numpy;

/// Makes an array of `count` elements along one axis: a numpy array for one; what `new_empty` makes for an object that has it,
/// as torch tensors do; a numpy array for anything else. Its elements hold no particular values.
pub(super) fn new_like<'py>(like: &Bound<'py, PyAny>, dtype: DType, count: usize) -> PyResult<Bound<'py, PyAny>> {
    let py = like.py();
    if numpy::is_exact(like) || numpy::is_subclass(like) {
        return empty(py, count, &like.getattr(intern!(py, "dtype"))?);
    }
    match like.getattr_opt(intern!(py, "new_empty"))? {
        Some(new_empty) => new_empty.call1(((count,),)),
        None => empty(py, count, &named(py, dtype)?),
    }
}

fn empty<'py>(py: Python<'py>, count: usize, dtype: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    py.import(intern!(py, "numpy"))?.call_method1(intern!(py, "empty"), (count, dtype))
}

/// Returns numpy's dtype of a name, its own or one that ml_dtypes adds.
fn named<'py>(py: Python<'py>, dtype: DType) -> PyResult<Bound<'py, PyAny>> {
    let own = py.import(intern!(py, "numpy"))?.call_method1(intern!(py, "dtype"), (dtype.name(),));
    own.or_else(|_| py.import(intern!(py, "ml_dtypes"))?.getattr(dtype.name()))
}
