//! Whole numbers as arguments. Another value is an `InvalidArgument` that names the argument, not an `OverflowError`.

use std::ops::RangeInclusive;

use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyList, PyMapping, PyString, PyTuple};

use crate::error::invalid;

/// The most characters of a value in a message. Chosen.
const SHOWN: usize = 40;

/// The most items of a sequence. Chosen: far more than a job has ranks, and a world of simulated ranks has pairs.
const MOST_ITEMS: usize = 1 << 20;

/// Any number of a rank, a chunk or a channel, before it is checked.
pub(crate) const ANY: RangeInclusive<u32> = 0..=u32::MAX;

/// Reads an argument that must be a whole number; anything with `__index__` is one, but for `True` and `False`. A range that ends with
/// the largest `T` has no limit of its own.
pub(crate) fn integer<T>(argument: &str, value: &Bound<'_, PyAny>, allowed: RangeInclusive<T>) -> PyResult<T>
where
    T: TryFrom<i128> + Into<i128> + PartialOrd + Copy,
{
    let py = value.py();
    let read = match value.extract::<i64>() {
        _ if value.is_instance_of::<PyBool>() => None,
        Ok(number) => T::try_from(number.into()).ok(),
        Err(error) if error.is_instance_of::<PyTypeError>(py) || error.is_instance_of::<PyOverflowError>(py) => None,
        Err(error) => return Err(error),
    };
    if let Some(number) = read.filter(|number| allowed.contains(number)) {
        return Ok(number);
    }
    let (least, most): (i128, i128) = ((*allowed.start()).into(), (*allowed.end()).into());
    let wanted = match T::try_from(most + 1) {
        Ok(_) => format!("from {least} to {most}"),
        Err(_) => format!("at least {least} and less than 2^{}", (most + 1).ilog2()),
    };
    Err(invalid(py, format!("{argument} is {}: it must be a whole number, {wanted}", shown(value))))
}

/// Returns the items of an argument that is a sequence. Texts, mappings and sets are refused.
///
/// # Errors
/// `InvalidArgument` with the name of the argument; `wanted` ends its message.
pub(crate) fn items_of<'py>(
    argument: &str,
    value: &Bound<'py, PyAny>,
    wanted: &str,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let py = value.py();
    let is_plain = value.is_exact_instance_of::<PyList>() || value.is_exact_instance_of::<PyTuple>();
    let is_unordered = || {
        let sets = py.import(intern!(py, "collections.abc"))?.getattr(intern!(py, "Set"))?;
        PyResult::Ok(value.cast::<PyMapping>().is_ok() || value.is_instance(&sets)?)
    };
    if !is_plain && (value.is_instance_of::<PyString>() || is_unordered()?) {
        let kind = value.get_type().name()?;
        return Err(invalid(py, format!("{argument} is a {kind}: pass {wanted}")));
    }
    let items = value.try_iter().map_err(|_| invalid(py, format!("{argument} is {}: pass {wanted}", shown(value))))?;
    let items: Vec<_> = items.take(MOST_ITEMS + 1).collect::<PyResult<_>>()?;
    match items.len() <= MOST_ITEMS {
        true => Ok(items),
        false => Err(invalid(py, format!("{argument} has more than {MOST_ITEMS} items: pass {wanted}"))),
    }
}

/// Shows a value in a message. Python refuses to print whole numbers of several thousand digits.
pub(crate) fn shown(value: &Bound<'_, PyAny>) -> String {
    let Ok(text) = value.repr() else { return "a number that is too long to print".into() };
    let text = text.to_string_lossy();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into_owned(),
    }
}
