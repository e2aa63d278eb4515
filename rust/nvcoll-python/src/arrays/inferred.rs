//! The dtype and the counts of a call, from its arrays.

use pyo3::prelude::*;

use nvcoll_core::counts::Counts;
use nvcoll_core::dtype::DType;

use super::array::Array;
use super::caller::Caller;
use super::contract::{Contract, Side};
use super::ranks::Ranks;
use super::source;
use crate::counts::check_sum;
use crate::error::invalid;

/// Returns the dtype and the counts of a call. An input decides, else an output, else the array of a rank that reads none.
pub(super) fn inferred(
    py: Python<'_>,
    contract: &Contract,
    caller: Caller,
    passed: &Bound<'_, PyAny>,
    input: &Ranks,
    output: Option<&Ranks>,
) -> PyResult<(DType, Counts)> {
    let world_size = contract.roles.world_size as usize;
    let first = |ranks: &Ranks| ranks.arrays.iter().position(Array::is_there);
    if let Some(at) = first(input) {
        let array = &input.arrays[at];
        Ok((array.dtype, of_input(py, contract, caller, input, at)?))
    } else if let Some((output, at)) = output.and_then(|output| Some((output, first(output)?))) {
        let array = &output.arrays[at];
        let among = if contract.is_of_one_part() { 1 } else { world_size };
        let count = array.layout.count();
        check_sum(py, std::iter::repeat_n(count, among))?;
        Ok((array.dtype, Counts::Even(count * among)))
    } else if passed.is_none() {
        let (name, argument) = (contract.collective.name, caller.argument());
        let message = format!(
            "dtype and count of {name} are unknown on a rank that passes no array: pass `out`, or an array like the root's \
             as `{argument}`"
        );
        Err(invalid(py, message))
    } else {
        let like = source::read(passed.clone());
        let (like, _) = like.map_err(|reason| reason.about(py, format!("`{}`", caller.argument())))?;
        Ok((like.dtype, Counts::Even(like.layout.count())))
    }
}

/// Returns the counts from the inputs, the first of which is at `at`.
fn of_input(py: Python<'_>, contract: &Contract, caller: Caller, input: &Ranks, at: usize) -> PyResult<Counts> {
    let count = input.arrays[at].layout.count();
    let world_size = contract.roles.world_size as usize;
    if contract.is_of_one_part() || (world_size > 1 && contract.parts(input.rank(at), Side::Input).len() > 1) {
        return Ok(Counts::Even(count));
    }
    match caller {
        Caller::Rank(_) => {
            check_sum(py, std::iter::repeat_n(count, world_size))?;
            Ok(Counts::Even(count * world_size))
        }
        Caller::Node => {
            let table: Vec<usize> = input.arrays.iter().map(|array| array.layout.count()).collect();
            check_sum(py, table.iter().copied())?;
            Ok(Counts::of_table(contract.collective, contract.roles, table))
        }
    }
}
