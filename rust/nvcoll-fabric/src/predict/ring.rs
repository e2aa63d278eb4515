//! Rings, and chains: broadcast and reduce.
//!
//! ```text
//! K = 2 (n-1) steps for all_reduce, n-1 for all_gather and reduce_scatter, each of c = S / n bytes
//! chain: n-1 hops, then the bytes once: c = S
//! tree on one node: a chain there and back. 2 (n-1) hops, but a GPU between two others moves 2 S each way: 2 n steps' bytes
//!
//! all     + (channels - 1) x start of a channel                 over NVLink; as many channels as the bytes keep busy
//! LL      start + K hop + K max(c / min(rate of the generation, B/2, LL over the network), x / rate of a channel)   x = max(c/channels, min(c, 4 KiB))
//! LL128   start + K hop + K c / min(20 x channels, 15/16 B)                                     over NVLink
//! Simple  start + start-up + K hop + K c / B
//! ```
//!
//! B is the least of three rates: of a GPU's links, of its node's cards, and of a crossing of the narrowest link on the way
//! (`bottleneck.rs`; a tree crosses with S each way). A hop between nodes has the network's latency. The second term of LL
//! holds over NVLink: a channel moves the first 4 KiB of a step alone.

use super::bottleneck::{TrafficPattern, NARROWER};
use super::breakdown::{us, wire, Carrier, TimeBreakdown};
use super::params::{ModelParams, NetworkParams};
use super::pattern::Pattern;
use crate::nccl::Protocol;

/// The bytes of a step that one channel moves before the others join. Fitted with the rate of a channel.
const ALONE_BYTES: f64 = 4096.0;

/// The steps of a pattern on a ring, and the bytes of one.
struct Steps {
    inside: f64,
    crossings: f64,
    /// The number of steps whose bytes take time one after the other.
    times: f64,
    bytes: f64,
    /// The part of them on a link that is crossed once.
    crossing: f64,
}

impl Steps {
    fn of(pattern: Pattern, traffic: TrafficPattern, params: &ModelParams, nbytes: f64) -> Self {
        let (others, nodes) = (params.ranks - 1.0, params.nodes - 1.0);
        let shard = nbytes / params.ranks;
        // With two GPUs none is between others.
        let doubled = if params.ranks > 2.0 { 2.0 } else { 1.0 };
        let (steps, crossings, times, bytes) = match pattern {
            Pattern::AllReduce if traffic == TrafficPattern::Tree => {
                (2.0 * others, 2.0 * nodes, doubled * params.ranks, shard)
            }
            Pattern::AllReduce => (2.0 * others, 2.0 * nodes, 2.0 * others, shard),
            Pattern::AllGather | Pattern::ReduceScatter => (others, nodes, others, shard),
            _ => (others, nodes, 1.0, nbytes),
        };
        let crossing = if traffic == TrafficPattern::Tree { 1.0 / doubled } else { 1.0 };
        Self { inside: steps - crossings, crossings, times, bytes, crossing }
    }

    /// Returns the time of the steps without bytes.
    fn hops(&self, params: &ModelParams, protocol: Protocol) -> f64 {
        let between = |network: &NetworkParams| self.crossings * network.hops.of(protocol);
        self.inside * params.hops.of(protocol) + params.inter_node.as_ref().map_or(0.0, between)
    }
}

/// Returns the time of the bytes of a step with LL. `gbps` is the rate of the links, half of it for flags.
pub(super) fn ll_us(params: &ModelParams, bytes: f64, gbps: f64) -> f64 {
    let by_all = us(bytes, params.ll_gbps.min(gbps / 2.0));
    let alone = (bytes / params.channels).max(bytes.min(ALONE_BYTES));
    by_all.max(params.ll_channel_gbps.map_or(0.0, |rate| us(alone, rate)))
}

/// Returns the time of a ring, or with `is_tree` of a chain there and back on one node; none for a protocol that is not used
/// there.
pub(super) fn ring(
    params: &ModelParams,
    pattern: Pattern,
    protocol: Protocol,
    nbytes: f64,
    channels: f64,
    is_tree: bool,
) -> Option<TimeBreakdown> {
    let traffic = match (is_tree, pattern.is_chain()) {
        (true, _) => TrafficPattern::Tree,
        (false, true) => TrafficPattern::Chain,
        (false, false) => TrafficPattern::Ring,
    };
    let steps = Steps::of(pattern, traffic, params, nbytes);
    let of_gpu = if pattern.is_chain() { params.rates.one_way_gbps } else { params.rates.bidirectional_gbps };
    let inside = of_gpu.min(params.bottlenecks.gbps(traffic) / steps.crossing);
    let inter_node = params.inter_node.as_ref();
    let gbps = inter_node.map_or(inside, |network| network.ring_gbps.min(inside));
    let moved = steps.times * steps.bytes;
    let (carrier, load) = match (gbps < NARROWER * inside, inside < of_gpu) {
        (true, _) => (Carrier::Cards, moved),
        (false, true) => (Carrier::InnerLink(traffic), moved * steps.crossing),
        (false, false) => (Carrier::Links, moved),
    };
    let message = steps.bytes / channels * wire(protocol);
    let start_up = params.start_us.of(protocol);
    let (start_up, step_us) = match protocol {
        Protocol::Ll => {
            let of_channels = |network: &NetworkParams| channels * network.effects.ring_ll_channel_gbps;
            let over_network = inter_node.map_or(0.0, |network| us(steps.bytes, of_channels(network)));
            (start_up, ll_us(params, steps.bytes, gbps).max(over_network))
        }
        Protocol::Ll128 => {
            let most = params.ll128_channel_gbps? * params.channels;
            (start_up, us(steps.bytes, most.min(gbps * 15.0 / 16.0)))
        }
        Protocol::Simple => {
            let over_network = inter_node.map_or(0.0, |network| network.effects.ring_startup_us);
            (start_up + params.startup_us + over_network, us(steps.bytes, gbps))
        }
    };
    Some(TimeBreakdown {
        start_up,
        channels: (channels - 1.0) * params.channel_us,
        network: inter_node.map_or(0.0, |network| steps.crossings * network.software_us(message)),
        hops: steps.hops(params, protocol),
        bytes: steps.times * step_us,
        carrier,
        load,
        of_cards: if inter_node.is_some() { moved } else { 0.0 },
        ..TimeBreakdown::default()
    })
}
