//! Tables that are shipped: TOML files of rows, which are found by name.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

/// Reads the rows of a shipped table, which has one array of tables, `key`.
///
/// # Panics
/// If the text is no such table.
pub fn rows<T: DeserializeOwned>(text: &str, key: &str) -> Vec<T> {
    let mut table: BTreeMap<String, Vec<T>> = toml::from_str(text).expect("a test reads the table that is shipped");
    table.remove(key).filter(|_| table.is_empty()).expect("the table has one array of rows")
}

/// Finds one of some things by its name, in small letters or capitals; `kind` says in an error what they are.
///
/// # Errors
/// [`Error::Unknown`], with all names.
pub(crate) fn named<'n, T: Copy>(
    kind: &'static str,
    name: &str,
    all: impl IntoIterator<Item = T>,
    name_of: impl Fn(T) -> &'n str,
) -> Result<T> {
    let all: Vec<T> = all.into_iter().collect();
    let known = || all.iter().map(|&one| name_of(one)).collect::<Vec<_>>().join(", ");
    let found = all.iter().copied().find(|&one| name_of(one).eq_ignore_ascii_case(name));
    found.ok_or_else(|| Error::Unknown { kind, name: name.to_owned(), known: known() })
}

/// Reads TOML; `origin` is what to call it in errors.
///
/// # Errors
/// [`Error::Description`] with the line and what is wrong there.
pub(crate) fn read<T: DeserializeOwned>(text: &str, origin: &str) -> Result<T> {
    toml::from_str(text).map_err(|error| {
        let line = error.span().map(|span| text[..span.start].lines().count().max(1));
        let place = line.map_or_else(String::new, |line| format!("line {line}: "));
        Error::Description { origin: origin.to_owned(), message: format!("{place}{}", error.message()) }
    })
}
