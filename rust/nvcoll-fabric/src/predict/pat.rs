//! Parallel aggregated trees (PAT): all_gather and reduce_scatter with one GPU per node, in one step per level of the trees.
//!
//! ```text
//! time = start + log2 n (hop / 3.5 + software) + 2.8 n + S (n-1)/n / rate of the cards
//! ```
//!
//! The latencies come from NCCL's own model: steps overlap, and each rank costs something.
//! Source: NCCL src/graph/tuning.cc, v2.30.7. No public measurement shows it, so nothing is fitted.

use super::breakdown::{us, Carrier, TimeBreakdown};
use super::params::ModelParams;
use super::pattern::Pattern;

/// Cited: by how much steps overlap, and the microseconds that each rank costs.
const OVERLAP: f64 = 3.5;
const RANK_US: f64 = 2.8;

/// Returns the time of a gathering collective by PAT; none for another, and where a node has several GPUs.
pub(super) fn pat(params: &ModelParams, pattern: Pattern, nbytes: f64) -> Option<TimeBreakdown> {
    let network = params.inter_node.as_ref().filter(|_| params.local < 2.0)?;
    if !matches!(pattern, Pattern::AllGather | Pattern::ReduceScatter) {
        return None;
    }
    let steps = params.ranks.log2().ceil();
    let moved = nbytes * (params.ranks - 1.0) / params.ranks;
    Some(TimeBreakdown {
        start_up: params.start_us,
        network: steps * network.software_us(nbytes / params.channels),
        hops: steps * network.hops.simple / OVERLAP + RANK_US * params.ranks,
        bytes: us(moved, network.ring_gbps),
        carrier: Carrier::Cards,
        load: moved,
        of_cards: moved,
        ..TimeBreakdown::default()
    })
}
