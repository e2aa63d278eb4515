//! Trees over nodes: chains (Tree) or the switch (NVLSTree) inside a node, two trees between the nodes.
//!
//! ```text
//! rate = min(inside, cards of a node; half of them with more than two nodes: up and down share them)
//! inside: Tree, half of what a GPU sends; NVLSTree, what the switch does at that chunk
//! time = base of the network + start + 2 depth (hop + bytes in flight / rate) + S / rate
//! LL: a chain of LL hops inside, S at no more than a quarter of the narrower rate, nor than tree_ll
//! ```
//!
//! The depth of the trees is log2 of the nodes; between powers of two it is drawn straight.

use super::spent::{us, Carrier, Spent};
use super::terms::{Between, Terms};
use crate::nccl::{Algorithm, Protocol};

/// Returns what all_reduce by a tree over nodes takes; nothing where it is not used.
pub(super) fn tree(terms: &Terms, algorithm: Algorithm, protocol: Protocol, nbytes: f64) -> Option<Spent> {
    let network = terms.between.as_ref()?;
    match (algorithm, protocol) {
        (Algorithm::Tree, Protocol::Simple) => {
            let inside = if terms.local > 1.0 { terms.both_gbps * network.inner / 2.0 } else { f64::INFINITY };
            let hops = 2.0 * (terms.local - 1.0) * terms.hops.simple;
            Some(over(
                network,
                terms,
                nbytes,
                Inside { gbps: inside, start_up: terms.start_simple_us, hops, fill: 0.0 },
            ))
        }
        (Algorithm::Tree, Protocol::Ll) => Some(by_ll(network, terms, nbytes)),
        (Algorithm::NvlsTree, Protocol::Simple) => {
            let nvls = terms.nvls?;
            let (ops, chunk) = (nvls.channels * terms.local, nvls.chunk(terms.local, nbytes));
            let gbps = nvls.steady_gbps(terms.local, chunk) * network.nvlstree;
            let fill = nvls.fill_loops * us(ops * chunk.min(nbytes / ops), gbps);
            Some(over(network, terms, nbytes, Inside { gbps, start_up: nvls.start_us, hops: 0.0, fill }))
        }
        _ => None,
    }
}

/// What happens inside a node.
struct Inside {
    gbps: f64,
    start_up: f64,
    hops: f64,
    fill: f64,
}

/// Levels of the trees, there and back.
fn levels(nodes: f64) -> f64 {
    let below = f64::from((nodes as u32).ilog2());
    let power = f64::from(1 << below as u32);
    2.0 * (below + (nodes - power) / power).max(1.0)
}

fn over(network: &Between, terms: &Terms, nbytes: f64, inside: Inside) -> Spent {
    let shared = if terms.nodes > 2.0 { 2.0 } else { 1.0 };
    let gbps = inside.gbps.min(network.tree_gbps / shared);
    let levels = levels(terms.nodes);
    Spent {
        start_up: inside.start_up,
        network: network.base_us,
        hops: inside.hops + levels * network.hops.simple,
        fill: inside.fill + levels * us(network.in_flight.min(nbytes), gbps),
        bytes: us(nbytes, gbps),
        carrier: if gbps < inside.gbps { Carrier::Cards } else { Carrier::Links },
        load: nbytes * if gbps < inside.gbps { shared } else { 2.0 },
    }
}

fn by_ll(network: &Between, terms: &Terms, nbytes: f64) -> Spent {
    let inside = if terms.local > 1.0 { terms.both_gbps } else { f64::INFINITY };
    let gbps = (network.tree_gbps.min(inside) / 4.0).min(network.tree_ll_gbps);
    Spent {
        start_up: terms.start_ll_us,
        network: network.base_us,
        hops: 2.0 * (terms.local - 1.0) * terms.hops.ll + levels(terms.nodes) * network.hops.ll,
        fill: 0.0,
        bytes: us(nbytes, gbps),
        carrier: Carrier::Cards,
        load: nbytes,
    }
}
