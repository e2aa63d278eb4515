//! New arrays for results, of the kind of the caller's array.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use nvcoll_core::dtype::DType;

use super::numpy;

/// Makes an array of `count` elements, of one axis or of rows with these axes: a numpy array for one; what `new_empty` or `new_zeros` makes for an
/// object that has it, as torch tensors do; a numpy array for anything else. `is_deferred`: its elements are zeros, because
/// its caller has it before the call is made; else they hold no particular values.
pub(super) fn new_like<'py>(
    like: &Bound<'py, PyAny>,
    dtype: DType,
    count: usize,
    row_axes: &[usize],
    is_deferred: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = like.py();
    let (of_numpy, of_others) = if is_deferred { ("zeros", "new_zeros") } else { ("empty", "new_empty") };
    // Flat arrays, the common case, need no tuple.
    let shape = match row_axes {
        [] => count.into_pyobject(py)?.into_any(),
        axes => {
            let rows = count / axes.iter().product::<usize>();
            PyTuple::new(py, std::iter::once(rows).chain(axes.iter().copied()).collect::<Vec<_>>())?.into_any()
        }
    };
    let new = |dtype: &Bound<'py, PyAny>| {
        py.import(intern!(py, "numpy"))?.call_method1(PyString::intern(py, of_numpy), (&shape, dtype))
    };
    if numpy::is_exact(like) || numpy::is_subclass(like) {
        return new(&like.getattr(intern!(py, "dtype"))?);
    }
    match like.getattr_opt(PyString::intern(py, of_others))? {
        Some(new_like) if row_axes.is_empty() => new_like.call1(((count,),)),
        Some(new_like) => new_like.call1((&shape,)),
        None => new(&named(py, dtype)?),
    }
}

/// Returns numpy's dtype of a name, its own or one that ml_dtypes adds.
fn named<'py>(py: Python<'py>, dtype: DType) -> PyResult<Bound<'py, PyAny>> {
    let own = py.import(intern!(py, "numpy"))?.call_method1(intern!(py, "dtype"), (dtype.name(),));
    own.or_else(|_| py.import(intern!(py, "ml_dtypes"))?.getattr(dtype.name()))
}
