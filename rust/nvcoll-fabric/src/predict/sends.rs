//! What NCCL builds of sends and receives: all_to_all, gather, scatter, and nccl-tests' sendrecv.
//!
//! ```text
//! all_to_all          a GPU sends and receives S (n-1)/n; between nodes, S/n for every GPU of the node and GPU outside it
//! gather, scatter     the root receives, or sends, S (n-1)/n; its share of the node's cards carries what comes from outside
//! sendrecv            a GPU sends S to the next; between nodes one GPU of each does
//!                     on one node no faster than the narrowest cut lets it through, its links in use
//! ```

use super::pattern::Pattern;
use super::spent::{us, Carrier, Spent};
use super::terms::Terms;

/// Returns what sends and receives take.
pub(super) fn sends(terms: &Terms, pattern: Pattern, nbytes: f64) -> Spent {
    let (n, local) = (terms.ranks, terms.local);
    let inside = nbytes * pattern.sent(n);
    let cut = terms.cuts[pattern as usize];
    let hops = if pattern == Pattern::SendRecv { terms.hops.simple } else { 0.0 };
    let by_links = Spent {
        start_up: terms.start_simple_us,
        network: 0.0,
        hops,
        channels: 0.0,
        fill: 0.0,
        bytes: us(inside, terms.both_gbps * cut.map_or(1.0, |cut| cut.part)),
        carrier: cut.map_or(Carrier::Links, Carrier::Cut),
        load: inside,
        of_cards: 0.0,
    };
    let Some(network) = &terms.between else { return by_links };
    let outside = nbytes / n * (n - local);
    let (load, part) = match pattern {
        Pattern::AllToAll => (outside * local, 1.0),
        Pattern::SendRecv => (nbytes, 1.0 / local),
        _ => (outside, 1.0 / local),
    };
    let by_cards = Spent {
        network: network.software_us,
        hops: network.hops.simple,
        bytes: us(load, network.ring_gbps * part),
        carrier: Carrier::Cards,
        load: load / part,
        of_cards: load / part,
        ..by_links
    };
    if by_cards.us() > by_links.us() {
        by_cards
    } else {
        Spent { of_cards: by_cards.of_cards, ..by_links }
    }
}
