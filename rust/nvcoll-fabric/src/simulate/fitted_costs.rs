//! Costs that were fitted to measurements. They replace the costs of a fabric and a protocol.

use crate::units::{Ps, Rate};

/// Costs of one machine under one protocol, whose own fixed time and signals are then zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FittedCosts {
    /// The time of a call before ranks enter; added to `starts_ps` of the settings.
    pub start: Ps,
    /// For each link of the fabric, its rate.
    pub rates: Vec<Rate>,
    /// The time of the first byte to another rank, instead of the latencies of links.
    pub hops: HopLatencies,
    /// Bytes on links per byte of data that a switch reduces or multicasts, in units of 1 / the denominator of the protocol's
    /// `wire`. No hop is added there.
    pub switch_wire: u32,
}

/// The time of the first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HopLatencies {
    /// To another GPU of the node.
    pub inside: Ps,
    /// To another node.
    pub network: Ps,
}
