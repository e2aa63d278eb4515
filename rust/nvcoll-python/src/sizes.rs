//! Sizes in bytes as arguments: whole numbers, whole floats such as `1e9`, and text as nccl-tests writes it.
//!
//! `64K`, `1M` and `1G` are binary, as are `KiB`, `MiB` and `GiB`; with a B alone, `140GB`, a size is decimal.

use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyString};
use pyo3::IntoPyObjectExt;

use crate::error::invalid;
use crate::integers::integer;

/// The largest size. Chosen: more bytes than any machine has, and few enough to compute with.
const MOST_BYTES: i64 = 1 << 56;

/// The sizes of an argument.
pub(crate) enum Sizes {
    /// One size.
    One(u64),
    /// Several sizes, perhaps none.
    Many(Vec<u64>),
}

impl Sizes {
    pub(crate) fn all(&self) -> &[u64] {
        match self {
            Sizes::One(size) => std::slice::from_ref(size),
            Sizes::Many(sizes) => sizes,
        }
    }

    /// Returns the answers for all sizes to Python: the answer itself for one size, else a list.
    pub(crate) fn answers<'py, T>(&self, py: Python<'py>, mut answers: Vec<T>) -> PyResult<Bound<'py, PyAny>>
    where
        T: IntoPyObjectExt<'py>,
        Vec<T>: IntoPyObjectExt<'py>,
    {
        match self {
            Sizes::One(_) => answers.remove(0).into_bound_py_any(py),
            Sizes::Many(_) => answers.into_bound_py_any(py),
        }
    }
}

/// Reads one size, or several.
///
/// # Errors
/// `InvalidArgument`.
pub(crate) fn sizes_of(value: &Bound<'_, PyAny>) -> PyResult<Sizes> {
    if value.is_instance_of::<PyString>() {
        return size_of(value).map(Sizes::One);
    }
    match value.try_iter() {
        Ok(sizes) => Ok(Sizes::Many(sizes.map(|size| size_of(&size?)).collect::<PyResult<_>>()?)),
        Err(_) => size_of(value).map(Sizes::One),
    }
}

/// Reads a size in bytes.
///
/// # Errors
/// `InvalidArgument`.
fn size_of(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    if let Ok(text) = value.cast::<PyString>() {
        return read(text.to_str()?).map_err(|message| invalid(value.py(), message));
    }
    if let Ok(float) = value.cast::<PyFloat>() {
        let bytes = float.extract::<f64>()?;
        if bytes.fract() == 0.0 && (0.0..=MOST_BYTES as f64).contains(&bytes) {
            return Ok(bytes as u64);
        }
    }
    Ok(integer("nbytes", value, 0..=MOST_BYTES)?.unsigned_abs())
}

/// Returns the bytes that a size names: `64K`, `16MiB`, `140GB`.
///
/// Raises:
///     InvalidArgument: the text is not a size, or the size is above 2^56 bytes.
#[pyfunction]
pub(crate) fn parse_size(py: Python<'_>, text: &str) -> PyResult<u64> {
    read(text).map_err(|message| invalid(py, message))
}

/// Reads a size from text.
///
/// # Errors
/// The message for the caller.
fn read(text: &str) -> Result<u64, String> {
    let trimmed = text.trim();
    let unknown = || format!("`{text}` is not a size: write 4096, 64K, 16MiB or 140GB");
    let end = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(trimmed.len());
    let (number, unit) = (&trimmed[..end], trimmed[end..].trim_start());
    let (prefix, suffix) = match unit.char_indices().nth(1) {
        _ if unit.eq_ignore_ascii_case("b") => ("", unit),
        Some((at, _)) => unit.split_at(at),
        None => (unit, ""),
    };
    let power = match prefix.to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        _ => return Err(unknown()),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = !whole.is_empty() && !fraction.is_empty() && !fraction.contains('.');
    let is_decimal = suffix.eq_ignore_ascii_case("b") && power > 0;
    if !is_number || !(suffix.is_empty() || suffix.eq_ignore_ascii_case("b") || suffix.eq_ignore_ascii_case("ib")) {
        return Err(unknown());
    }
    if suffix.ends_with('b') {
        let bytes = &trimmed[..trimmed.len() - 1];
        return Err(format!("`{text}` is bits: write {bytes}B for bytes, or an eighth of it"));
    }
    let scale = if is_decimal { 1000u128 } else { 1024 }.pow(power);
    let too_large = || format!("`{text}` is more than any machine has: use a smaller size");
    let whole = whole.parse::<u128>().ok().and_then(|whole| whole.checked_mul(scale)).ok_or_else(too_large)?;
    // The digits after these are less than a byte.
    let digits = &fraction[..fraction.len().min(18)];
    let part = digits.parse::<u128>().unwrap_or(0) * scale / 10u128.pow(digits.len() as u32);
    let bytes = whole.checked_add(part).filter(|&bytes| bytes <= MOST_BYTES.unsigned_abs().into());
    bytes.and_then(|bytes| u64::try_from(bytes).ok()).ok_or_else(too_large)
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn sizes_are_binary_unless_they_end_with_a_b_alone() {
        for (text, bytes) in
            [("4096", 4096), ("64K", 65536), ("1.5m", 3 << 19), ("2 GiB", 2 << 30), ("140GB", 140_000_000_000)]
        {
            assert_eq!(read(text), Ok(bytes), "{text}");
        }
        assert_eq!((read("0.1K"), read("7B")), (Ok(102), Ok(7)));
        for text in ["", "K", "1.", ".5K", "1.2.3", "4X", "1 000", "-1", "1e9", "K1", "1KK", "1Kibb", "é"] {
            assert!(read(text).is_err(), "{text}");
        }
        assert!(read("1Gb").is_err_and(|message| message.contains("is bits: write 1GB for bytes")));
        assert!(read("99999999T").is_err_and(|message| message.contains("more than any machine has")));
    }
}
