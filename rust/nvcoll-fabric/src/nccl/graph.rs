//! The channels that a search finds.

use super::constants::NicCrossing;
use super::names::PathClass;

/// The speed of the last resort: one channel in the order of the ranks. Cited (src/graph/search.cc, all versions).
pub(super) const LAST_RESORT_GBPS: f64 = 0.1;

/// The pattern of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum GraphPattern {
    /// Every GPU to the next, and back.
    #[default]
    Ring,
    /// A chain whose first two GPUs share what goes to the network.
    BalancedTree,
    /// A chain whose first GPU talks to the network.
    Tree,
}

/// The channels that a search found.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct ChannelGraph {
    pub(super) pattern: GraphPattern,
    /// The number of channels; zero if there is no such graph.
    pub(super) channels: usize,
    /// The GB/s of a channel between GPUs.
    pub(super) intra_gbps: f64,
    /// The GB/s of a channel between nodes; between GPUs if there is one node.
    pub(super) inter_gbps: f64,
    /// The worst path between GPUs.
    pub(super) intra: PathClass,
    /// The worst path to the network.
    pub(super) inter: PathClass,
    /// Whether every channel visits the GPUs in one order.
    pub(super) is_same: bool,
    pub(super) crossing: NicCrossing,
    /// For each channel, the order of the GPUs.
    pub(super) order: Vec<Vec<usize>>,
}

impl ChannelGraph {
    pub(super) fn none(pattern: GraphPattern) -> Self {
        Self { pattern, ..Self::default() }
    }
}
