//! Rings, and chains: broadcast and reduce.
//!
//! ```text
//! K = 2 (n-1) steps for all_reduce, n-1 for all_gather and reduce_scatter, each of c = S / n bytes
//! chain: n-1 hops, then the bytes once: c = S
//! tree on one node: a chain there and back. 2 (n-1) hops, but a GPU between two others moves 2 S each way: 2 n steps' bytes
//!
//! all     + (channels - 1) x start of a channel + log2(channels) x spread     over NVLink; the first where work is in host memory
//! LL      start + K hop + K max(c / min(rate of the generation, B/2, LL over the network), c / channels / rate of a channel) + last
//! LL128   start + K hop + K c / min(rate of a channel x channels, 15/16 B) + last               over NVLink
//! Simple  start + start-up + K hop h + K c / B + last + ramp       h = exp(-c / (2 hop B)) over NVLink on one node, else 1
//! last    LL, LL128: c at the rate of the GPU alone;  Simple: operands / 3 x c / (channels x local rate)
//! ramp    R (1 - exp(-(K c / B + last) p / R))                                                  over NVLink
//! ```
//!
//! **Last step.** A thread block of a ring runs n steps for n - 1 sends (2 n - 1 for all_reduce): the last one stores what it
//! received, and the channel's link idles meanwhile. Its operands are the operands of the primitive: the flag, source and destinations
//! of `directRecv` and `recvReduceCopy`. Source: NCCL src/device/{all_gather,reduce_scatter,all_reduce}.h, `runRing`. It is
//! modelled on one node; what rings reach over a network (`network.ring`) has it.
//!
//! **Hops of Simple.** A chunk has two slices (src/include/collectives.h, `*_SLICESTEPS`), so the flag of one hides behind the copy
//! of the other.
//!
//! **Ramp.** Channels begin in step, do the last step at once and drift apart. Ours; measured on A100, H100 and B200.
//!
//! B is the least of three rates: of a GPU's links, of its node's cards, and of a crossing of the narrowest link on the way
//! (`bottleneck.rs`; a tree crosses with S each way). A hop between nodes has the network's latency. The second term of LL
//! holds over NVLink.

use super::bottleneck::{TrafficPattern, NARROWER};
use super::breakdown::{us, wire, Carrier, TimeBreakdown};
use super::constants::{Operands, RampEffects};
use super::params::{ModelParams, NetworkParams};
use super::pattern::Pattern;
use crate::nccl::Protocol;

/// Chosen: the operands to which the local rate of a channel belongs.
const OPERANDS: f64 = 3.0;

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
    fn hops(&self, params: &ModelParams, protocol: Protocol, hop_us: f64) -> f64 {
        let between = |network: &NetworkParams| self.crossings * network.hops.of(protocol);
        self.inside * hop_us + params.inter_node.as_ref().map_or(0.0, between)
    }
}

/// Returns the time of the bytes of a step with LL. `gbps` is the rate of the links, half of it for flags.
pub(super) fn ll_us(params: &ModelParams, bytes: f64, channels: f64, gbps: f64) -> f64 {
    let by_all = us(bytes, params.ll_gbps.min(gbps / 2.0));
    by_all.max(params.ll_channel_gbps.map_or(0.0, |rate| us(bytes / channels, rate)))
}

/// Returns the part of a hop inside a node that the bytes of a step do not hide.
pub(super) fn hop_us(params: &ModelParams, protocol: Protocol, bytes: f64, gbps: f64) -> f64 {
    let hop = params.hops.of(protocol);
    if protocol == Protocol::Simple && params.ramp.is_some() {
        hop * (-us(bytes, gbps) / (2.0 * hop)).exp()
    } else {
        hop
    }
}

/// Returns the time of the step of a ring that sends nothing, and what channels lose that begin in step. `bytes` are the bytes of a
/// step, `gbps` the rate of links.
pub(super) fn drain_us(
    params: &ModelParams,
    pattern: Pattern,
    protocol: Protocol,
    (bytes, channels): (f64, f64),
    gbps: f64,
) -> f64 {
    let (steps, operands): (f64, fn(&Operands) -> f64) = match pattern {
        Pattern::AllReduce => (2.0 * (params.ranks - 1.0), |operands| operands.all_reduce),
        Pattern::AllGather => (params.ranks - 1.0, |operands| operands.all_gather),
        Pattern::ReduceScatter => (params.ranks - 1.0, |operands| operands.reduce_scatter),
        _ => return 0.0,
    };
    let Some(step) = &params.last_step else { return 0.0 };
    match protocol {
        Protocol::Ll => ll_us(params, bytes, channels, f64::INFINITY),
        Protocol::Ll128 => params.ll128_channel_gbps.map_or(0.0, |channel| us(bytes, channel * channels)),
        Protocol::Simple => {
            let last = us(operands(&step.operands) / OPERANDS * bytes, channels * step.channel_gbps);
            let moving = steps * us(bytes, gbps) + last;
            let lost = |ramp: RampEffects| ramp.us * (1.0 - (-moving * ramp.part / ramp.us).exp());
            last + params.ramp.map_or(0.0, lost)
        }
    }
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
    let of_gpu = if pattern.is_chain() { params.rates.one_way_gbps } else { params.rates.ring_gbps };
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
    let start_up = params.start_us;
    let (start_up, step_us) = match protocol {
        Protocol::Ll => {
            let of_channels = |network: &NetworkParams| channels * network.effects.ring_ll_channel_gbps;
            let over_network = inter_node.map_or(0.0, |network| us(steps.bytes, of_channels(network)));
            (start_up, ll_us(params, steps.bytes, channels, gbps).max(over_network))
        }
        Protocol::Ll128 => {
            let most = params.ll128_channel_gbps? * channels;
            (start_up, us(steps.bytes, most.min(gbps * 15.0 / 16.0)))
        }
        Protocol::Simple => {
            let over_network = inter_node.map_or(0.0, |network| network.effects.ring_startup_us);
            (start_up + params.startup_us + over_network, us(steps.bytes, gbps))
        }
    };
    let wait_us = |network: &NetworkParams| match protocol {
        Protocol::Simple => network.software_us(message) + network.long_wait_us(message, us(steps.bytes, gbps)),
        _ => network.software_us(message),
    };
    let is_ring = traffic == TrafficPattern::Ring;
    let hop_us = if is_ring { hop_us(params, protocol, steps.bytes, gbps) } else { params.hops.of(protocol) };
    Some(TimeBreakdown {
        start_up,
        channels: params.channels_us(channels),
        fill: if is_ring { drain_us(params, pattern, protocol, (steps.bytes, channels), gbps) } else { 0.0 },
        network: inter_node.map_or(0.0, |network| steps.crossings * wait_us(network)),
        hops: steps.hops(params, protocol, hop_us),
        bytes: steps.times * step_us,
        carrier,
        load,
        of_cards: if inter_node.is_some() { moved } else { 0.0 },
    })
}
