//! Collectives that NCCL builds of sends and receives: all_to_all, gather, scatter, and nccl-tests' sendrecv.
//!
//! ```text
//! all_to_all          a GPU sends and receives S (n-1)/n; the cards of a node carry S/n per pair of one GPU inside and one outside
//! gather, scatter     the root receives, or sends, S (n-1)/n; bytes from other nodes pass its own part of the cards
//! sendrecv            a GPU sends S to the next; between nodes one GPU of each does, over its own part of the cards
//!                     the narrowest link or cut on the way bounds the rate (`bottleneck.rs`)
//! own part            GPUs share the cards of a node evenly; with fewer cards than GPUs, a GPU uses the nearest card alone
//! channels            NCCL's rule gives a message some of them (`nccl/sends.rs`); peers have them at once, up to the total
//!                     rate <= channels x rate of a channel, inside a node and between nodes
//! time                the larger of the bytes inside and between nodes
//! peers outside       the proxy of a GPU serves them one after the other
//! start-up            a block of sends divides its warps over works and directions (NCCL src/device/sendrecv.h), so it starts later
//!                     than one of a ring; over NVLink, log2(channels) x spread
//! Simple              the first chunk is stored before the next is received: time of a chunk x min(1, bytes of a channel / chunk)
//! LL                  half of the bytes are flags; over NVLink a channel has a rate of its own
//! ```

use super::bottleneck::TrafficPattern;
use super::breakdown::{us, wire, Carrier, TimeBreakdown};
use super::params::{ModelParams, NetworkParams};
use super::pattern::Pattern;
use crate::nccl::Protocol;

/// Returns the time of a collective of sends.
pub(super) fn sends(params: &ModelParams, pattern: Pattern, protocol: Protocol, nbytes: f64) -> TimeBreakdown {
    let sides = Sides::of(params, pattern, nbytes);
    let inside = inside(params, pattern, protocol, nbytes, &sides);
    let Some(network) = &params.inter_node else { return inside };
    let outside = outside(params, network, pattern, protocol, &sides);
    // Both happen at once, and what waits for the network waits in either case.
    if outside.bytes >= inside.bytes {
        outside
    } else {
        let TimeBreakdown { network, hops, of_cards, .. } = outside;
        TimeBreakdown { network, hops, of_cards, ..inside }
    }
}

/// Returns the bytes that a rank sends to one peer.
pub(super) fn message(pattern: Pattern, ranks: f64, nbytes: f64) -> f64 {
    if pattern == Pattern::SendRecv {
        nbytes
    } else {
        nbytes / ranks
    }
}

/// The message to a peer, and the peers of a rank on its node and on others.
struct Sides {
    message: f64,
    /// The channels of a message; none where NCCL's rules are not known.
    channels: Option<f64>,
    peers_inside: f64,
    peers_outside: f64,
}

impl Sides {
    fn of(params: &ModelParams, pattern: Pattern, nbytes: f64) -> Self {
        let (n, local) = (params.ranks, params.local);
        let message = message(pattern, n, nbytes);
        let (peers_inside, peers_outside) = match pattern {
            Pattern::SendRecv => (1.0, 1.0),
            _ => (local - 1.0, n - local),
        };
        let channels = params.sends.map(|sends| f64::from(sends.of_message(message as u64).0));
        Self { message, channels, peers_inside, peers_outside }
    }

    /// Returns the time of the first chunk of Simple.
    fn first_chunk_us(&self, params: &ModelParams) -> f64 {
        let (Some(sends), Some(channels)) = (params.sends, self.channels) else { return 0.0 };
        params.send.chunk_us * (self.message / channels / sends.chunk as f64).min(1.0)
    }

    /// Returns the number of a rank's channels that are busy with `peers` peers.
    fn busy(&self, params: &ModelParams, peers: f64) -> Option<f64> {
        let total = params.sends.map(|sends| f64::from(sends.total))?;
        Some((self.channels? * peers).min(total))
    }
}

/// Returns the time of the sends between GPUs of a node.
fn inside(params: &ModelParams, pattern: Pattern, protocol: Protocol, nbytes: f64, sides: &Sides) -> TimeBreakdown {
    let sent = nbytes * pattern.sent(params.ranks);
    let cut = params.bottlenecks.cuts[pattern as usize];
    let is_simple = protocol == Protocol::Simple;
    let of_links = params.rates.bidirectional_gbps * cut.map_or(params.send.part, |cut| cut.part);
    let busy = sides.busy(params, sides.peers_inside);
    let channel_gbps = if is_simple { params.send.channel_gbps } else { params.send.ll_channel_gbps };
    let of_channels = match (busy, channel_gbps) {
        (Some(busy), Some(channel)) => us(sides.message * sides.peers_inside, busy * channel),
        _ => 0.0,
    };
    let by_gpus = (us(sent, of_links) * wire(protocol)).max(of_channels);
    let by_narrow = us(nbytes, params.bottlenecks.gbps(TrafficPattern::Sends(pattern))) * wire(protocol);
    let (bytes, carrier, load) = match by_narrow > by_gpus {
        true => (by_narrow, Carrier::InnerLink(TrafficPattern::Sends(pattern)), nbytes),
        false => (by_gpus, cut.map_or(Carrier::Links, Carrier::Cut), sent),
    };
    TimeBreakdown {
        start_up: params.start_us + params.send.start_us,
        channels: busy.map_or(0.0, |busy| busy.log2() * params.spread_us),
        fill: if is_simple { sides.first_chunk_us(params) } else { 0.0 },
        hops: params.hops.of(protocol),
        bytes,
        carrier,
        load,
        ..TimeBreakdown::default()
    }
}

/// Returns the time of the sends to other nodes.
fn outside(
    params: &ModelParams,
    network: &NetworkParams,
    pattern: Pattern,
    protocol: Protocol,
    sides: &Sides,
) -> TimeBreakdown {
    let outside = sides.message * sides.peers_outside;
    let (load, gbps, parts) = match pattern {
        Pattern::AllToAll => (outside * params.local, network.sends_gbps, 1.0),
        _ => (outside, network.gpu_gbps, network.parts),
    };
    let channels =
        sides.busy(params, sides.peers_outside).map_or(f64::INFINITY, |busy| busy * network.effects.channel_gbps);
    let bytes = us(load, gbps).max(us(outside, channels)) * wire(protocol);
    TimeBreakdown {
        start_up: params.start_us + params.send.start_us,
        network: network.software_us(sides.message / sides.channels.unwrap_or(1.0) * wire(protocol))
            + sides.peers_outside * network.effects.message_us,
        hops: network.hops.of(protocol),
        bytes,
        carrier: Carrier::Cards,
        load: load * parts,
        of_cards: load * parts,
        ..TimeBreakdown::default()
    }
}
