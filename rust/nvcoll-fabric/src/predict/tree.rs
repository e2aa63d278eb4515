//! Trees over nodes: chains (Tree) or the switch (NVLSTree) inside a node, two trees between the nodes.
//!
//! ```text
//! rate = min(inside, cards of a node; half of that with more than two nodes, because up and down share the cards)
//! inside: Tree, half the rate of a GPU; NVLSTree, the rate of NVLS at that chunk
//! time = start + hops inside + levels (hop + software + bytes in flight / rate) + S / rate        levels = 2 depth
//! in flight: Tree, an eighth of S, from 32 to 512 KiB on each of 16 channels; NVLSTree, a part of a loop of the switch
//! LL: at most a quarter of the narrower rate, and at most the rate of LL over a network;  LL128: 15/16 of the rate
//! ```
//!
//! The depth of the trees is log2 of the nodes, interpolated linearly between powers of two.

use super::bottleneck::TrafficPattern;
use super::breakdown::{us, wire, Carrier, TimeBreakdown};
use super::params::{ModelParams, NetworkParams};
use crate::nccl::{NcclAlgorithm, Protocol};

/// The part of a call that is in flight at a level with Tree: NCCL cuts what a channel moves into eight chunks. Cited: as below.
const IN_FLIGHT: f64 = 1.0 / 8.0;

/// Least in flight at a level, in bytes: 32 KiB on each of 16 channels. Cited: NVIDIA/nccl v2.30.7 src/enqueue.cc.
const LEAST_IN_FLIGHT: f64 = 16.0 * 32.0 * 1024.0;

/// Returns the time of all_reduce by a tree over nodes; none where it is not used.
pub(super) fn tree(
    params: &ModelParams,
    algorithm: NcclAlgorithm,
    protocol: Protocol,
    nbytes: f64,
    channels: f64,
) -> Option<TimeBreakdown> {
    let network = params.inter_node.as_ref()?;
    let of_gpu = if params.local > 1.0 {
        params.rates.bidirectional_gbps * network.effects.tree_inner / 2.0
    } else {
        f64::INFINITY
    };
    let crossing = params.bottlenecks.gbps(TrafficPattern::Tree);
    let gbps = of_gpu.min(crossing);
    // The first and the last GPU of a chain have one neighbour, and the first the card.
    let chain_load = if params.local > 1.0 { 2.0 } else { 1.0 };
    let by_chain =
        if crossing < of_gpu { (Carrier::InnerLink(TrafficPattern::Tree), 1.0) } else { (Carrier::Links, chain_load) };
    let of_chain = |gbps: f64, in_flight: f64| Inside {
        gbps,
        start_up: params.start_us,
        hops: 2.0 * (params.local - 1.0) * params.hops.of(protocol),
        fill: 0.0,
        in_flight,
        by: by_chain,
    };
    let inside = match (algorithm, protocol) {
        (NcclAlgorithm::Tree, Protocol::Simple) => {
            of_chain(gbps, (nbytes * IN_FLIGHT).clamp(LEAST_IN_FLIGHT, network.most_in_flight()))
        }
        (NcclAlgorithm::Tree, Protocol::Ll128) => {
            let most = params.ll128_channel_gbps? * params.channels / 2.0;
            of_chain(most.min(gbps * 15.0 / 16.0), 0.0)
        }
        (NcclAlgorithm::Tree, Protocol::Ll) => {
            of_chain((network.tree_gbps.min(gbps * 2.0) / 4.0).min(network.effects.tree_ll_gbps), 0.0)
        }
        (NcclAlgorithm::NvlsTree, Protocol::Simple) => {
            let nvls = params.nvls?;
            let (ops, chunk) = (nvls.chunks.operations() as f64, nvls.chunks.chunk_of_tree(nbytes) as f64);
            let gbps = nvls.steady_gbps(params.local, chunk) * network.effects.nvlstree;
            let in_flight = network.effects.nvlstree_loops * (ops * chunk).min(nbytes);
            Inside {
                gbps,
                start_up: nvls.start_us,
                hops: 0.0,
                fill: nvls.fill_loops * us(in_flight, gbps),
                in_flight,
                by: (Carrier::FoldingSwitch, 1.0 + 1.0 / params.local),
            }
        }
        _ => return None,
    };
    let message = nbytes / channels * wire(protocol);
    Some(over(network, params, protocol, (nbytes, message), &inside))
}

/// The part of a tree inside a node.
struct Inside {
    gbps: f64,
    start_up: f64,
    hops: f64,
    fill: f64,
    /// The bytes that each level receives before it sends.
    in_flight: f64,
    /// The carrier of the bytes, and its bytes each way per byte of the call.
    by: (Carrier, f64),
}

/// Returns the number of levels of the trees, there and back.
fn levels(nodes: f64) -> f64 {
    let below = f64::from((nodes as u32).ilog2());
    let power = f64::from(1 << below as u32);
    2.0 * (below + (nodes - power) / power).max(1.0)
}

/// Returns the time of a call from its bytes, and from the bytes of its messages on the wire.
fn over(
    network: &NetworkParams,
    params: &ModelParams,
    protocol: Protocol,
    (nbytes, message): (f64, f64),
    inside: &Inside,
) -> TimeBreakdown {
    let shared = if params.nodes > 2.0 { 2.0 } else { 1.0 };
    let gbps = inside.gbps.min(network.tree_gbps / shared);
    let levels = levels(params.nodes);
    let of_cards = nbytes * shared;
    let fill = us(inside.in_flight.min(nbytes), gbps);
    let wait = match protocol {
        Protocol::Simple => network.long_wait_us(message * IN_FLIGHT, fill),
        _ => 0.0,
    };
    let (carrier, load) = match gbps < inside.gbps {
        true => (Carrier::Cards, of_cards),
        false => (inside.by.0, inside.by.1 * nbytes),
    };
    TimeBreakdown {
        start_up: inside.start_up,
        network: levels * (network.software_us(message) + wait),
        hops: inside.hops + levels * network.hops.of(protocol),
        fill: inside.fill + levels * fill,
        bytes: us(nbytes, gbps),
        carrier,
        load,
        of_cards,
        ..TimeBreakdown::default()
    }
}
