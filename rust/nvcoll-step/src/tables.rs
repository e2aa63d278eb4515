//! Tables that are shipped: TOML files with one array of rows, which are found by name.

pub(crate) use nvcoll_fabric::tables::rows;

use crate::error::{Error, Result};

/// Finds a row by its name; `kind` says in an error what the rows are.
///
/// # Errors
/// [`Error::Unknown`], with all names.
pub(crate) fn named<'r, T>(kind: &'static str, name: &str, rows: &'r [T], of: impl Fn(&T) -> &str) -> Result<&'r T> {
    rows.iter().find(|row| of(row) == name).ok_or_else(|| Error::Unknown {
        kind,
        name: name.to_owned(),
        known: rows.iter().map(of).collect::<Vec<_>>().join(", "),
    })
}
