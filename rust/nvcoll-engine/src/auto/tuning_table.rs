//! Tuning tables: the coefficients of the cost model, as text in TOML.
//!
//! ```text
//! format = "nvcoll.tuning/1"
//! machine = "what it was measured on"           free text
//!
//! [caches]
//! near_bytes = 2097152                           the second-level cache of one worker
//! far_bytes = 33554432                           the last-level cache
//!
//! [tile]                                         one section per mode: tile, staged, ranks
//! call_ns = 700                                  one line per coefficient, none negative
//! …
//! ```
//!
//! The reader checks everything: an unknown name, a missing number and a number out of range are errors. Ranks that share a table choose
//! the same algorithm.

use std::sync::{Arc, OnceLock};

use nvcoll_core::algorithm::{self, Algorithm};
use nvcoll_core::collective::Collective;

use super::estimate::{Caches, Mode, COEFFICIENTS, TERMS};
use crate::error::{Error, Result};

/// The format of tables.
pub const FORMAT: &str = "nvcoll.tuning/1";

/// The shipped table, as text.
pub const SHIPPED: &str = include_str!("tuning.toml");

/// The table by which `auto` decides.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuning {
    /// The machine on which the coefficients were measured.
    pub machine: String,
    /// The caches of that machine.
    pub caches: Caches,
    coefficients: [[f64; TERMS]; 3],
}

impl Tuning {
    /// Returns the shipped table.
    pub fn shipped() -> Arc<Tuning> {
        static TABLE: OnceLock<Arc<Tuning>> = OnceLock::new();
        TABLE.get_or_init(|| Arc::new(Tuning::parse(SHIPPED).expect("a test reads the shipped table"))).clone()
    }

    /// Reads a table.
    ///
    /// # Errors
    /// [`Error::Tuning`] says what was found and what was expected.
    pub fn parse(text: &str) -> Result<Tuning> {
        let root: toml::Table = text.parse().map_err(|error: toml::de::Error| Error::Tuning(error.message().into()))?;
        let root = Section { name: "the table", entries: &root };
        let sections = Mode::ALL.iter().map(|mode| mode.name());
        root.allow(&["format", "machine", "caches"].into_iter().chain(sections).collect::<Vec<_>>())?;
        let format = root.text("format")?;
        if format != FORMAT {
            return Err(Error::Tuning(format!("`format` is \"{format}\": this version reads \"{FORMAT}\"")));
        }
        let caches = root.section("caches")?;
        caches.allow(&["near_bytes", "far_bytes"])?;
        let caches = Caches { near_bytes: caches.number("near_bytes")?, far_bytes: caches.number("far_bytes")? };
        let mut coefficients = [[0.0; TERMS]; 3];
        for (mode, of_mode) in Mode::ALL.iter().zip(&mut coefficients) {
            let section = root.section(mode.name())?;
            section.allow(&COEFFICIENTS.map(|(name, _)| name))?;
            for ((name, _), value) in COEFFICIENTS.iter().zip(of_mode) {
                *value = section.number(name)?;
            }
        }
        Ok(Tuning { machine: root.text("machine")?.into(), caches, coefficients })
    }

    /// Returns the coefficients of a mode, in the units of [`COEFFICIENTS`].
    pub fn coefficients(&self, mode: Mode) -> &[f64; TERMS] {
        &self.coefficients[mode as usize]
    }
}

/// Returns the candidates of `auto`, the default first: the algorithms that fold in the order of ranks, or all algorithms of a
/// collective that does not fold.
pub fn candidates(collective: &'static Collective) -> impl Iterator<Item = &'static Algorithm> {
    algorithm::of(collective)
        .filter(|algorithm| matches!(algorithm.order, algorithm::Order::Rank | algorithm::Order::None))
}

/// A table of the text, and its name in messages.
struct Section<'a> {
    name: &'a str,
    entries: &'a toml::Table,
}

impl<'a> Section<'a> {
    fn missing(&self, key: &str, what: &str) -> Error {
        Error::Tuning(format!("{} has no {what} `{key}`", self.name))
    }

    fn allow(&self, known: &[&str]) -> Result<()> {
        match self.entries.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => Err(Error::Tuning(format!("{} has `{key}`: it takes {}", self.name, known.join(", ")))),
            None => Ok(()),
        }
    }

    fn section(&self, key: &'a str) -> Result<Section<'a>> {
        let entries = self.entries.get(key).and_then(toml::Value::as_table);
        entries.map(|entries| Section { name: key, entries }).ok_or_else(|| self.missing(key, "section"))
    }

    fn text(&self, key: &str) -> Result<&'a str> {
        self.entries.get(key).and_then(toml::Value::as_str).ok_or_else(|| self.missing(key, "text"))
    }

    /// A number that is finite and not negative.
    fn number(&self, key: &str) -> Result<f64> {
        let value = match self.entries.get(key) {
            Some(toml::Value::Integer(value)) => *value as f64,
            Some(toml::Value::Float(value)) => *value,
            _ => return Err(self.missing(key, "number")),
        };
        if value.is_finite() && value >= 0.0 {
            Ok(value)
        } else {
            Err(Error::Tuning(format!("`{key}` of {} is {value}: it must be 0 or more", self.name)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_that_is_shipped_is_read() {
        let shipped = Tuning::shipped();
        for mode in Mode::ALL {
            assert!(shipped.coefficients(mode).iter().sum::<f64>() > 0.0, "{}", mode.name());
        }
    }

    #[test]
    fn what_cannot_be_used_is_refused_by_name() {
        let refused = |text: &str, words: &str| match Tuning::parse(text) {
            Err(Error::Tuning(message)) => assert!(message.contains(words), "{message}"),
            other => panic!("{other:?}"),
        };
        refused("", "no text `format`");
        refused("format = ", "");
        refused(&SHIPPED.replace("tuning/1", "tuning/9"), "this version reads");
        refused(&SHIPPED.replace("[staged]", "[stage]"), "has `stage`");
        refused(&SHIPPED.replace("near_bytes", "bytes"), "it takes near_bytes, far_bytes");
        refused(&SHIPPED.replace("wait_ns =", "wait_ns = -1 #"), "0 or more");
        refused(&SHIPPED.replace("wait_ns =", "wait_ns = nan #"), "0 or more");
        refused(&SHIPPED.replace("wait_ns =", "wait_ns = \"1\" #"), "no number `wait_ns`");
        refused(&format!("{SHIPPED}\n[decision]\n"), "has `decision`");
    }
}
