//! The dtype and the counts of a call, from its arrays.

use pyo3::prelude::*;

use nvcoll_core::counts::Counts;
use nvcoll_core::dtype::DType;

use super::array::Array;
use super::contract::{Contract, Side};
use super::ranks::Ranks;
use super::reason::quoted;
use super::source;
use crate::counts::check_sum;
use crate::error::invalid;

/// Returns the dtype and the counts of a call. An input decides, else an output, else the array of a rank that reads none.
pub(super) fn inferred(
    contract: &Contract,
    passed: &Bound<'_, PyAny>,
    input: &Ranks,
    output: Option<&Ranks>,
) -> PyResult<(DType, Counts)> {
    let (py, world_size) = (passed.py(), contract.roles.world_size as usize);
    let parts_of = |count: usize, among: usize| {
        check_sum(py, std::iter::repeat_n(count, among)).map(|()| Counts::Even(count * among))
    };
    if let Some(at) = input.arrays.iter().position(Array::is_there) {
        let (dtype, count) = (input.arrays[at].dtype, input.arrays[at].layout.count());
        let has_all_parts = world_size > 1 && contract.parts(input.rank(at), Side::Input).len() > 1;
        let counts = match contract.own {
            _ if contract.is_of_one_part() || has_all_parts => Ok(Counts::Even(count)),
            Some(_) => parts_of(count, world_size),
            None => {
                let table: Vec<usize> = input.arrays.iter().map(|array| array.layout.count()).collect();
                check_sum(py, table.iter().copied())?;
                Ok(Counts::of_table(contract.collective, contract.roles, table))
            }
        };
        return Ok((dtype, counts?));
    }
    if let Some(array) = output.and_then(|output| output.arrays.iter().find(|array| array.is_there())) {
        let among = if contract.is_of_one_part() { 1 } else { world_size };
        return Ok((array.dtype, parts_of(array.layout.count(), among)?));
    }
    let (name, argument) = (contract.collective.name, contract.argument());
    if passed.is_none() {
        let message = format!(
            "dtype and count of {name} are unknown on a rank that passes no array: pass `out`, or an array like the root's \
             as `{argument}`"
        );
        return Err(invalid(py, message));
    }
    let (like, _) = source::read(passed.clone()).map_err(|reason| reason.about(py, quoted(argument)))?;
    Ok((like.dtype, Counts::Even(like.layout.count())))
}
