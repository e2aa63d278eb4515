//! The costs of a step besides its bytes: one row per protocol, in `protocols.toml`.

use std::sync::LazyLock;

use serde::Deserialize;

use super::ratio::Ratio;
use crate::error::Result;
use crate::tables;
use crate::units::{Ps, Rate};

/// The cost constants of one way of moving bytes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepCosts {
    /// Its name, as `simple`.
    pub name: String,
    /// Picoseconds that a step takes before its first byte leaves.
    pub fixed_ps: Ps,
    /// Bytes on links per byte of data. Memory is touched without overhead.
    pub wire: Ratio,
    /// The most data that one queue reads, or writes, from or to other ranks per second.
    #[serde(default, rename = "cap_gbps")]
    pub cap: Option<Rate>,
    /// The part of the route's latency until another rank knows that a step is done.
    pub signal: Ratio,
    /// The source of the numbers: cited or chosen.
    pub source: String,
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
