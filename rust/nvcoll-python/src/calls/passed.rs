//! `_read`: what a rank passes to a call whose ranks are on several hosts, checked as on one host.

use pyo3::prelude::*;

use nvcoll_engine::program::make::check_op;

use crate::arrays::PassedArrays;
use crate::calls::request::{Argument, Request};
use crate::engine::error::of_engine;
use crate::schedules::schedule::collective_named;

/// Reads and checks what one rank passes to a call, as a call on one host does, and makes a new result. Not public: it is for hosts.
///
/// Args:
///     collective: its name.
///     rank: the rank that calls.
///     world_size: the number of ranks.
///     x, op, root, counts, out: as in a call; `counts` of an all_to_all is a table.
///
/// Raises:
///     InvalidArgument: as in a call.
#[pyfunction(name = "_read")]
#[pyo3(signature = (collective, rank, world_size, x, *, op: "_Op | None" = None, root=None, counts=None, out=None))]
#[expect(clippy::too_many_arguments, reason = "they are the arguments of a call")]
pub(crate) fn read<'py>(
    collective: &str,
    rank: u32,
    world_size: u32,
    x: &Bound<'py, PyAny>,
    op: Argument<'_, 'py>,
    root: Argument<'_, 'py>,
    counts: Argument<'_, 'py>,
    out: Argument<'_, 'py>,
) -> PyResult<PassedArrays> {
    let (py, collective) = (x.py(), collective_named(x.py(), collective)?);
    let mut request = Request { op, root, counts, out, ..Request::new(collective, x, None) };
    let (operands, result, reduction) = request.read(Some(rank), None, world_size)?;
    check_op(collective, reduction.op, operands.dtype).map_err(|error| of_engine(py, &error))?;
    Ok(PassedArrays::new(operands, result.unbind(), reduction.op.name(), reduction.scalar(0)))
}
