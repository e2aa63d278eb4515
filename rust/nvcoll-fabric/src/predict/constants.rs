//! The constants of the closed forms: a table of numbers with names, `constants.toml`.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Deserialize;

use crate::error::{Error, Result};

/// How a number is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provenance {
    /// Its source says it.
    Cited,
    /// It was fitted to rows of the table of measurements.
    Fitted,
    /// Neither: a guess.
    Chosen,
}

impl Provenance {
    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cited => "cited",
            Self::Fitted => "fitted",
            Self::Chosen => "chosen",
        }
    }
}

/// A row of `constants.toml`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    /// What it is called, as `hop_us.ll.nvlink`.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// In what: `us`, `GB/s`, `part`, `KiB`, `loops`, `power`.
    pub unit: String,
    /// How it is known.
    pub kind: Provenance,
    /// The least of its values with a family of systems left out.
    pub low: f64,
    /// The greatest of them.
    pub high: f64,
    /// Where it is from: a document, or the systems whose rows fix it.
    pub source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConstantsFile {
    constant: Vec<Constant>,
}

/// Returns the rows of the table.
pub fn all() -> &'static [Constant] {
    static TABLE: OnceLock<Vec<Constant>> = OnceLock::new();
    TABLE.get_or_init(|| {
        toml::from_str::<ConstantsFile>(include_str!("constants.toml"))
            .expect("a test reads the table that is shipped")
            .constant
    })
}

/// A value for every name of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct Constants(BTreeMap<&'static str, f64>);

impl Constants {
    /// Returns the values of the table.
    pub fn shipped() -> Self {
        Self(all().iter().map(|constant| (constant.name.as_str(), constant.value)).collect())
    }

    /// Returns them with some others in their place: what a fit tries.
    ///
    /// # Errors
    /// [`Error::Unknown`] for a name that the table lacks; [`Error::Description`] for a value that is no positive number.
    pub fn with<'a>(mut self, values: impl IntoIterator<Item = (&'a str, f64)>) -> Result<Self> {
        for (name, value) in values {
            let Some(place) = self.0.get_mut(name) else {
                let known = self.0.keys().copied().collect::<Vec<_>>().join(", ");
                return Err(Error::Unknown { kind: "constant", name: name.to_owned(), known });
            };
            if !(value.is_finite() && value > 0.0) {
                let message = format!("{name} is {value}: pass a number above zero");
                return Err(Error::Description { origin: "constants".to_owned(), message });
            }
            *place = value;
        }
        Ok(self)
    }

    /// Returns a value; `names` is that of a row, its parts joined by dots.
    pub(super) fn of(&self, names: &[&str]) -> Option<f64> {
        self.0.get(names.join(".").as_str()).copied()
    }

    /// Returns a value that every table has.
    ///
    /// # Panics
    /// If the table lacks it: a test makes a predictor of every kind of machine.
    pub(super) fn at(&self, name: &str) -> f64 {
        *self.0.get(name).unwrap_or_else(|| panic!("constants.toml has no {name}"))
    }
}
