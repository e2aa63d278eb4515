//! Tables that are shipped: TOML files with one array of rows, which are found by name.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

/// Reads the rows of a shipped table, which has one array of tables, `key`.
///
/// # Panics
/// If the text is no such table.
pub(crate) fn rows<T: DeserializeOwned>(text: &str, key: &str) -> Vec<T> {
    let mut table: BTreeMap<String, Vec<T>> = toml::from_str(text).expect("a test reads the table that is shipped");
    table.remove(key).filter(|_| table.is_empty()).expect("the table has one array of rows")
}

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
