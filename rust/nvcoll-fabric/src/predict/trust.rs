//! How far predictions may be off, and on how many systems that was seen: `trust.toml`, a row per class and kind of collective.

use std::sync::OnceLock;

use serde::Deserialize;

use super::pattern::Pattern;
use crate::hardware::Evidence;

/// Chosen: a class of fewer systems is not validated.
const FEWEST_SYSTEMS: u32 = 5;

/// Where bands of sizes end, in bytes; the last has no end.
const BANDS: [u64; 3] = [64 << 10, (1 << 20) - 1, (128 << 20) - 1];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Class {
    name: String,
    /// `all_reduce` or `others`.
    collective: String,
    /// How many systems of the class were judged.
    systems: u32,
    /// Of the interval, per band; borrowed where there are few systems.
    factor: [f64; 4],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(default)]
    class: Vec<Class>,
}

fn table() -> &'static [Class] {
    static TABLE: OnceLock<Vec<Class>> = OnceLock::new();
    TABLE.get_or_init(|| {
        toml::from_str::<Table>(include_str!("trust.toml")).expect("a test reads the table that is shipped").class
    })
}

const fn kind(pattern: Pattern) -> &'static str {
    match pattern {
        Pattern::AllReduce => "all_reduce",
        _ => "others",
    }
}

/// Returns how predictions of a pattern for a class of machines are known.
pub(super) fn evidence(class: &str, pattern: Pattern) -> Evidence {
    let row = table().iter().find(|row| row.name == class && row.collective == kind(pattern));
    match row {
        Some(row) if row.systems >= FEWEST_SYSTEMS => Evidence::Validated { systems: row.systems },
        _ => Evidence::DatasheetOnly,
    }
}

/// Returns the factor of the 90 % interval: the time lies between the prediction over it and the prediction times it.
///
/// A class of which nothing was measured borrows the widest.
pub(super) fn factor(class: &str, pattern: Pattern, nbytes: u64) -> f64 {
    let band = BANDS.iter().position(|&last| nbytes <= last).unwrap_or(BANDS.len());
    let of_kind = || table().iter().filter(|row| row.collective == kind(pattern));
    let own = of_kind().find(|row| row.name == class).map(|row| row.factor[band]);
    own.unwrap_or_else(|| of_kind().map(|row| row.factor[band]).fold(1.0, f64::max))
}
