//! How far predictions may be off, and on how many systems that was seen: `trust.toml`, a row per class and kind of
//! collective, a number per band of sizes.

use std::sync::OnceLock;

use serde::Deserialize;

use super::pattern::Pattern;
use crate::hardware::Evidence;

/// Chosen: a class is not validated in a band in which fewer of its systems were measured.
const FEWEST_SYSTEMS: u32 = 5;

/// Where bands of sizes end, in bytes; the last has no end.
const BANDS: [u64; 3] = [64 << 10, (1 << 20) - 1, (128 << 20) - 1];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TrustCell {
    name: String,
    /// `all_reduce` or `others`.
    collective: String,
    /// How many systems of the class were judged, per band.
    systems: [u32; 4],
    /// Of the interval, per band; borrowed where there are few systems.
    factor: [f64; 4],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TrustFile {
    #[serde(default)]
    class: Vec<TrustCell>,
}

fn table() -> &'static [TrustCell] {
    static TABLE: OnceLock<Vec<TrustCell>> = OnceLock::new();
    TABLE.get_or_init(|| {
        toml::from_str::<TrustFile>(include_str!("trust.toml")).expect("a test reads the table that is shipped").class
    })
}

const fn kind(pattern: Pattern) -> &'static str {
    match pattern {
        Pattern::AllReduce => "all_reduce",
        _ => "others",
    }
}

fn row(class: &str, pattern: Pattern) -> Option<&'static TrustCell> {
    table().iter().find(|row| row.name == class && row.collective == kind(pattern))
}

fn band(nbytes: u64) -> usize {
    BANDS.iter().position(|&last| nbytes <= last).unwrap_or(BANDS.len())
}

fn seen_on(systems: u32) -> Evidence {
    if systems >= FEWEST_SYSTEMS {
        Evidence::Validated { systems }
    } else {
        Evidence::NotValidated
    }
}

/// Returns how predictions of so many bytes are known: what was measured in other bands says nothing of this.
pub(super) fn evidence(class: &str, pattern: Pattern, nbytes: u64) -> Evidence {
    seen_on(row(class, pattern).map_or(0, |row| row.systems[band(nbytes)]))
}

/// Returns how predictions are known in the band in which most systems were measured.
pub(super) fn best_evidence(class: &str, pattern: Pattern) -> Evidence {
    seen_on(row(class, pattern).and_then(|row| row.systems.into_iter().max()).unwrap_or(0))
}

/// Returns the factor of the 90 % interval: the time lies between the prediction over it and the prediction times it.
///
/// A class of which nothing was measured borrows the widest.
pub(super) fn factor(class: &str, pattern: Pattern, nbytes: u64) -> f64 {
    let at = band(nbytes);
    let of_kind = table().iter().filter(|row| row.collective == kind(pattern));
    row(class, pattern).map_or_else(|| of_kind.map(|row| row.factor[at]).fold(1.0, f64::max), |row| row.factor[at])
}
