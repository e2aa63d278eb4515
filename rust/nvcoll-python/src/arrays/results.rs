//! The result of a call: an object that the caller passed, or new arrays of the kind of the caller's array.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};

use nvcoll_core::dtype::DType;

use super::contract::{Contract, Side};
use super::numpy;
use super::ranks::is_list;

/// Returns the result of a call without new arrays.
pub(super) fn result_of<'py>(
    contract: &Contract,
    arrays: &Bound<'py, PyAny>,
    out: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let is_of_root = contract.is_of_root_only(Side::Output);
    match (contract.own, out) {
        (Some(rank), _) if is_of_root && rank != contract.roles.root => Ok(arrays.py().None().into_bound(arrays.py())),
        (_, Some(out)) => Ok(out.clone()),
        (None, None) if is_of_root => arrays.get_item(contract.roles.root),
        (_, None) => Ok(arrays.clone()),
    }
}

/// Makes the outputs of a call, each of the kind of the rank's input. They have the input's axes after the first if all parts have
/// whole rows, else one axis. `is_deferred`: see [`new_like`].
pub(super) fn new_outputs<'py>(
    contract: &Contract,
    arrays: &Bound<'py, PyAny>,
    dtype: DType,
    is_deferred: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = arrays.py();
    let is_list = contract.own.is_none() && is_list(arrays);
    let is_stack = contract.own.is_none() && !is_list && !contract.is_of_root_only(Side::Input);
    let new = |rank: u32| {
        let like = if is_list { arrays.get_item(rank)? } else { arrays.clone() };
        let axes = trailing_axes(&like, 1 + usize::from(is_stack))?;
        let axes = axes.filter(|axes| contract.is_of_rows(axes.iter().product()));
        new_like(&like, dtype, contract.count(rank, Side::Output), &axes.unwrap_or_default(), is_deferred)
    };
    match contract.own {
        None if contract.is_of_root_only(Side::Output) => new(contract.roles.root),
        None => {
            let all = (0..contract.roles.world_size).map(new).collect::<PyResult<Vec<_>>>()?;
            Ok(PyList::new(py, all)?.into_any())
        }
        Some(rank) if contract.has(rank, Side::Output) => new(rank),
        Some(_) => Ok(py.None().into_bound(py)),
    }
}

/// Returns the lengths of the axes of `like` after the first `skipped` axes; `None` if there are none.
fn trailing_axes(like: &Bound<'_, PyAny>, skipped: usize) -> PyResult<Option<Vec<usize>>> {
    let Some(shape) = like.getattr_opt(intern!(like.py(), "shape"))? else { return Ok(None) };
    let Ok(shape) = shape.extract::<Vec<usize>>() else { return Ok(None) };
    Ok((shape.len() > skipped).then(|| shape[skipped..].to_vec()))
}

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
