//! How far predictions may be off, and on how many systems that was seen: `trust.toml`.

use std::sync::OnceLock;

use serde::Deserialize;

use super::pattern::Pattern;
use crate::hardware::Evidence;

/// Chosen: a class of fewer systems is not validated, and borrows the widest interval of its scope's band, or this.
const FEWEST_SYSTEMS: u32 = 5;
const BORROWED_FACTOR: f64 = 1.5;

/// Where bands of sizes end, in bytes; the last has no end.
const BANDS: [u64; 3] = [64 << 10, (1 << 20) - 1, (128 << 20) - 1];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Interval {
    scope: String,
    collective: String,
    factor: [f64; 4],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Class {
    name: String,
    systems: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    interval: Vec<Interval>,
    class: Vec<Class>,
}

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| toml::from_str(include_str!("trust.toml")).expect("a test reads the table that is shipped"))
}

/// Returns how predictions for a class of machines are known.
pub(super) fn evidence(class: &str) -> Evidence {
    match table().class.iter().find(|row| row.name == class) {
        Some(row) if row.systems >= FEWEST_SYSTEMS => Evidence::Validated { systems: row.systems },
        _ => Evidence::DatasheetOnly,
    }
}

/// Returns the factor of the 90 % interval: the time lies between the prediction over it and the prediction times it.
pub(super) fn factor(class: &str, pattern: Pattern, nbytes: u64) -> f64 {
    let scope = match class {
        "mnnvl_nvl72" => "NVLink rack",
        "amd_multinode" | "mnnvl_multi_rack" => "several nodes",
        name if name.starts_with("multinode") => "several nodes",
        _ => "one node",
    };
    let collective = if pattern == Pattern::AllReduce { "all_reduce" } else { "others" };
    let band = BANDS.iter().position(|&last| nbytes <= last).unwrap_or(BANDS.len());
    let row = table().interval.iter().find(|row| row.scope == scope && row.collective == collective);
    let factor = row.map_or(BORROWED_FACTOR, |row| row.factor[band]);
    match evidence(class) {
        Evidence::Validated { .. } => factor,
        Evidence::DatasheetOnly => factor.max(BORROWED_FACTOR),
    }
}
