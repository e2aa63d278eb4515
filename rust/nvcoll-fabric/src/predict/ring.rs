//! Rings, and chains: what broadcast and reduce are there.
//!
//! ```text
//! K = 2 (n-1) steps for all_reduce, n-1 for all_gather and reduce_scatter, each of c = S / n bytes
//! chain: n-1 hops, then the bytes once: c = S
//!
//! all     + (channels - 1) x start of a channel                 over NVLink; as many channels as the bytes keep busy
//! LL      start + K hop + K max(c / min(rate of the generation, B/2, LL over the network), x / rate of a channel)   x = max(c/channels, min(c, 4 KiB))
//! LL128   start + K hop + K c / min(20 x channels, 15/16 B)                                     over NVLink
//! Simple  start + start-up + K hop + K c / B
//! ```
//!
//! B is what a GPU sends, or what its node's cards do if that is less; hops between nodes cost what the network's cost. LL's
//! second rate holds over NVLink: a channel moves the first 4 KiB of a step alone.

use super::pattern::Pattern;
use super::spent::{us, Carrier, Spent};
use super::terms::{Between, Hops, Terms};
use crate::nccl::Protocol;

/// Until so many bytes the start-up of Simple over a network grows in proportion. Chosen.
const STARTED_BYTES: f64 = 4.0 * 1024.0 * 1024.0;

/// How much of a step one channel moves before the others join. Fitted with the rate of a channel.
const ALONE_BYTES: f64 = 4096.0;

/// The steps of a pattern on a ring, and the bytes of one.
struct Steps {
    inside: f64,
    between: f64,
    /// How often the bytes of a step go by.
    times: f64,
    bytes: f64,
}

impl Steps {
    fn of(pattern: Pattern, terms: &Terms, nbytes: f64) -> Self {
        let (others, nodes) = (terms.ranks - 1.0, terms.nodes - 1.0);
        let shard = nbytes / terms.ranks;
        let (steps, between, times, bytes) = match pattern {
            Pattern::AllReduce => (2.0 * others, 2.0 * nodes, 2.0 * others, shard),
            Pattern::AllGather | Pattern::ReduceScatter => (others, nodes, others, shard),
            _ => (others, nodes, 1.0, nbytes),
        };
        Self { inside: steps - between, between, times, bytes }
    }

    /// What the steps take without bytes.
    fn hops(&self, terms: &Terms, of: impl Fn(&Hops) -> f64) -> f64 {
        self.inside * of(&terms.hops) + terms.between.as_ref().map_or(0.0, |network| self.between * of(&network.hops))
    }
}

/// Returns what the bytes of a step take with LL, where the links carry `gbps`, half of which are flags.
pub(super) fn ll_us(terms: &Terms, bytes: f64, gbps: f64) -> f64 {
    let by_all = us(bytes, terms.ll_gbps.min(gbps / 2.0));
    let alone = (bytes / terms.channels).max(bytes.min(ALONE_BYTES));
    by_all.max(terms.ll_channel_gbps.map_or(0.0, |rate| us(alone, rate)))
}

/// Returns what a ring takes that has so many channels; nothing for a protocol that is not used there.
pub(super) fn ring(terms: &Terms, pattern: Pattern, protocol: Protocol, nbytes: f64, channels: f64) -> Option<Spent> {
    let steps = Steps::of(pattern, terms, nbytes);
    let inside = if pattern.is_chain() { terms.one_way_gbps } else { terms.both_gbps };
    let between = terms.between.as_ref();
    let gbps = between.map_or(inside, |network| network.ring_gbps.min(inside));
    let (start_up, hops, step_us) = match protocol {
        Protocol::Ll => {
            let over_network = between.map_or(0.0, |network| us(steps.bytes, network.ring_ll_gbps));
            let step = ll_us(terms, steps.bytes, gbps).max(over_network);
            (terms.start_ll_us, steps.hops(terms, |hops| hops.ll), step)
        }
        Protocol::Ll128 => {
            let most = terms.ll128_channel_gbps? * terms.channels;
            (terms.start_ll128_us, steps.hops(terms, |hops| hops.ll128), us(steps.bytes, most.min(gbps * 15.0 / 16.0)))
        }
        Protocol::Simple => {
            let started = |network: &Between| network.ring_startup_us * (nbytes / STARTED_BYTES).min(1.0);
            let start_up = terms.start_simple_us + terms.startup_us + between.map_or(0.0, started);
            (start_up, steps.hops(terms, |hops| hops.simple), us(steps.bytes, gbps))
        }
    };
    Some(Spent {
        start_up,
        channels: (channels - 1.0) * terms.channel_us,
        network: between.map_or(0.0, |network| steps.between * network.software_us),
        hops,
        fill: 0.0,
        bytes: steps.times * step_us,
        carrier: if gbps < inside { Carrier::Cards } else { Carrier::Links },
        load: steps.times * steps.bytes,
    })
}
