//! The result of a call: an object that the caller passed, or new arrays.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use nvcoll_core::dtype::DType;

use super::caller::Caller;
use super::contract::{Contract, Shape, Side};
use super::fresh::new_like;
use super::numpy;

/// Returns the result of a call without new arrays.
pub(super) fn result_of<'py>(
    contract: &Contract,
    caller: Caller,
    arrays: &Bound<'py, PyAny>,
    out: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let is_of_root = contract.is_of_root_only(Side::Output);
    match (caller, out) {
        (Caller::Rank(rank), _) if is_of_root && rank != contract.roles.root => {
            Ok(arrays.py().None().into_bound(arrays.py()))
        }
        (_, Some(out)) => Ok(out.clone()),
        (Caller::Node, None) if is_of_root => arrays.get_item(contract.roles.root),
        (_, None) => Ok(arrays.clone()),
    }
}

/// Makes the outputs of a call, each of the kind of the rank's input. They have the input's axes after the first if all parts have
/// whole rows, else one axis. `is_deferred`: see [`new_like`].
pub(super) fn new_outputs<'py>(
    contract: &Contract,
    caller: Caller,
    arrays: &Bound<'py, PyAny>,
    dtype: DType,
    shape: &Shape,
    is_deferred: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = arrays.py();
    let is_list = arrays.is_instance_of::<PyList>() || arrays.is_instance_of::<PyTuple>();
    let is_stack = matches!(caller, Caller::Node) && !is_list && !contract.is_of_root_only(Side::Input);
    let new = |rank: u32| {
        let like = if is_list && matches!(caller, Caller::Node) { arrays.get_item(rank)? } else { arrays.clone() };
        let first = usize::from(is_stack);
        let axes = trailing_axes(&like, first + 1)?.filter(|axes| shape.is_of_rows(axes.iter().product()));
        new_like(&like, dtype, shape.count(contract, rank, Side::Output), &axes.unwrap_or_default(), is_deferred)
    };
    match caller {
        Caller::Node if contract.is_of_root_only(Side::Output) => new(contract.roles.root),
        Caller::Node => {
            let all = (0..contract.roles.world_size).map(new).collect::<PyResult<Vec<_>>>()?;
            Ok(PyList::new(py, all)?.into_any())
        }
        Caller::Rank(rank) if contract.has(rank, Side::Output) => new(rank),
        Caller::Rank(_) => Ok(py.None().into_bound(py)),
    }
}

/// Returns the lengths of the axes of `like` after the first `skipped` axes; `None` if there are none.
fn trailing_axes(like: &Bound<'_, PyAny>, skipped: usize) -> PyResult<Option<Vec<usize>>> {
    if numpy::axes(like).is_some_and(|axes| axes <= skipped) {
        return Ok(None);
    }
    let Some(shape) = like.getattr_opt(intern!(like.py(), "shape"))? else { return Ok(None) };
    let Ok(shape) = shape.extract::<Vec<usize>>() else { return Ok(None) };
    Ok((shape.len() > skipped).then(|| shape[skipped..].to_vec()))
}
