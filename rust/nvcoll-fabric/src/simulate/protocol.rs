//! The costs of a step besides its bytes: one row per protocol, in `protocols.toml`.

use std::sync::LazyLock;

use serde::Deserialize;

use super::ratio::Ratio;
use crate::error::Result;
use crate::tables;
use crate::units::{Ps, Rate};

/// The cost constants of one way of moving bytes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(from = "ProtocolRow")]
pub struct StepCosts {
    /// Its name, as `simple`.
    pub name: String,
    /// Picoseconds that a step takes before its first byte leaves.
    pub fixed_ps: Ps,
    /// Bytes on links per byte of data. Memory is touched without overhead.
    pub wire: Ratio,
    /// The most data that one queue reads, or writes, from or to other ranks per second.
    pub cap: Option<Rate>,
    /// The part of the route's latency until another rank knows that a step is done.
    pub signal: Ratio,
    /// The source of the numbers: cited or chosen.
    pub source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProtocolRow {
    name: String,
    fixed_ps: Ps,
    wire: [u32; 2],
    cap_gbps: Option<f64>,
    signal: [u32; 2],
    source: String,
}

impl From<ProtocolRow> for StepCosts {
    fn from(row: ProtocolRow) -> Self {
        Self {
            name: row.name,
            fixed_ps: row.fixed_ps,
            wire: Ratio::new(row.wire[0], row.wire[1]),
            cap: row.cap_gbps.map(Rate::from_gbps),
            signal: Ratio::new(row.signal[0], row.signal[1]),
            source: row.source,
        }
    }
}

/// Returns every protocol of the table that is shipped.
pub fn all() -> &'static [StepCosts] {
    static TABLE: LazyLock<Vec<StepCosts>> = LazyLock::new(|| tables::rows(include_str!("protocols.toml"), "protocol"));
    &TABLE
}

/// Finds a protocol by name.
///
/// # Errors
/// [`crate::Error::Unknown`].
pub fn named(name: &str) -> Result<&'static StepCosts> {
    tables::named("protocol", name, all(), |protocol| &protocol.name)
}
