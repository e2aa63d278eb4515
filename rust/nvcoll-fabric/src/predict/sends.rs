//! Collectives that NCCL builds of sends and receives: all_to_all, gather, scatter, and nccl-tests' sendrecv.
//!
//! ```text
//! all_to_all          a GPU sends and receives S (n-1)/n; the cards of a node carry S/n for each GPU of it and GPU outside it
//! gather, scatter     the root receives, or sends, S (n-1)/n; bytes from other nodes pass its own part of the cards
//! sendrecv            a GPU sends S to the next; between nodes one GPU of each does, over its own part of the cards
//!                     the narrowest link or cut on the way bounds the rate (`bottleneck.rs`, `cuts.rs`)
//! own part            GPUs share the cards of a node evenly; with fewer cards than GPUs, a GPU uses the nearest card alone
//! ```

use super::bottleneck::TrafficPattern;
use super::breakdown::{us, Carrier, TimeBreakdown};
use super::params::ModelParams;
use super::pattern::Pattern;

/// Returns the time of a collective of sends and receives.
pub(super) fn sends(params: &ModelParams, pattern: Pattern, nbytes: f64) -> TimeBreakdown {
    let (n, local) = (params.ranks, params.local);
    let inside = nbytes * pattern.sent(n);
    let cut = params.cuts[pattern as usize];
    let hops = if pattern == Pattern::SendRecv { params.hops.simple } else { 0.0 };
    let by_gpus = us(inside, params.bidirectional_gbps * cut.map_or(1.0, |cut| cut.part));
    let by_narrow = us(nbytes, params.crossings.gbps(TrafficPattern::Sends(pattern)));
    let (bytes, carrier, load) = match by_narrow > by_gpus {
        true => (by_narrow, Carrier::InnerLink(TrafficPattern::Sends(pattern)), nbytes),
        false => (by_gpus, cut.map_or(Carrier::Links, Carrier::Cut), inside),
    };
    let by_links = TimeBreakdown {
        start_up: params.start_simple_us,
        network: 0.0,
        hops,
        channels: 0.0,
        fill: 0.0,
        bytes,
        carrier,
        load,
        of_cards: 0.0,
    };
    let Some(network) = &params.inter_node else { return by_links };
    let outside = nbytes / n * (n - local);
    let (load, gbps, parts) = match pattern {
        Pattern::AllToAll => (outside * local, network.ring_gbps, 1.0),
        Pattern::SendRecv => (nbytes, network.gpu_gbps, network.parts),
        _ => (outside, network.gpu_gbps, network.parts),
    };
    let by_cards = TimeBreakdown {
        network: network.software_us,
        hops: network.hops.simple,
        bytes: us(load, gbps),
        carrier: Carrier::Cards,
        load: load * parts,
        of_cards: load * parts,
        ..by_links
    };
    if by_cards.us() > by_links.us() {
        by_cards
    } else {
        TimeBreakdown { of_cards: by_cards.of_cards, ..by_links }
    }
}
