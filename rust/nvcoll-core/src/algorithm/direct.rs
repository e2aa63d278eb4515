//! direct: every rank reads its data directly from the ranks that hold it.
//!
//! ```text
//! reduce_scatter rank r:  output[r].r = fold of input[0..n].r      all_gather  rank r:  output[r].c = input[c].c, each c
//! broadcast      rank r:  output[r] = input[root]                  reduce   root:    output[root] = fold of input[0..n]
//! scatter        rank r:  output[r].r = input[root].r              gather   root:    output[root].r = input[r].r, each r
//! all_to_all     rank r:  output[r].(q, r) = input[q].(q, r)       scan     rank r:  output[r] = fold of input[0..r + 1]
//! barrier        every rank waits for every enter
//! ```
//!
//! Direct algorithms have the fewest waits. They move the fewest bytes wherever no rank forwards data, but the memory or the port
//! of the root carries all traffic. Bytes per rank: reduce_scatter (1 + 1/n) N, the lower bound; all_gather 2 N, in place without
//! the rank's own part; broadcast and all_to_all 2 N; reduce (n + 1) N at the root; scan (n + 3)/2 N on average. Order: rank.
//!
//! In place, a scan overwrites data that later ranks read. Therefore the last rank goes first, and within a tile each rank waits
//! for the ranks after it. In all_gather and all_to_all, rank r begins with its own part and continues with r + 1, so that no two
//! ranks read from one peer at the same time. Source: the linear algorithms of every MPI library.

use super::row::{place_own_parts, Algorithm, Build::Plain, Order};
use crate::builder::{Builder, Region};
use crate::collective;

/// Registers the reduce_scatter algorithm.
pub(super) static REDUCE_SCATTER: Algorithm = Algorithm {
    name: "direct",
    collective: &collective::REDUCE_SCATTER,
    order: Order::Rank,
    summary: "each rank reads its part from all ranks and adds it up",
    source: "MPI libraries",
    build: Plain(|b| {
        for c in b.chunks(1) {
            let all: Vec<Region> = (0..b.world_size()).map(|r| b.input(r, c)).collect();
            b.fold(&all, &[b.output(c, c)]);
        }
    }),
};

/// Registers the all_gather algorithm.
pub(super) static ALL_GATHER: Algorithm = Algorithm {
    name: "direct",
    collective: &collective::ALL_GATHER,
    order: Order::None,
    summary: "each rank fetches every part from its owner",
    source: "MPI libraries",
    build: Plain(|b| {
        let n = b.world_size();
        place_own_parts(b);
        for (r, hop) in (0..n).flat_map(|r| (1..n).map(move |hop| (r, hop))) {
            let c = (r + hop) % n;
            b.copy(&b.input(c, c), &[b.output(r, c)]);
        }
    }),
};

/// Registers the broadcast algorithm.
pub(super) static BROADCAST: Algorithm = Algorithm {
    name: "direct",
    collective: &collective::BROADCAST,
    order: Order::None,
    summary: "each rank copies from the root",
    source: "MPI libraries",
    build: Plain(|b| {
        let root = b.root();
        for r in (0..b.world_size()).filter(|&r| r != root) {
            b.copy(&b.input(root, 0), &[b.output(r, 0)]);
        }
        b.copy(&b.input(root, 0), &[b.output(root, 0)]);
    }),
};

/// Registers the reduce algorithm.
pub(super) static REDUCE: Algorithm = Algorithm {
    name: "direct",
    collective: &collective::REDUCE,
    order: Order::Rank,
    summary: "the root adds up the inputs of all ranks",
    source: "MPI libraries",
    build: Plain(|b| {
        b.fold(&b.inputs(), &[b.output(b.root(), 0)]);
    }),
};

/// Registers the gather algorithm.
pub(super) static GATHER: Algorithm = Algorithm {
    name: "direct",
    collective: &collective::GATHER,
    order: Order::None,
    summary: "each rank stores its part to the root",
    source: "MPI libraries",
    build: Plain(|b| {
        for r in 0..b.world_size() {
            b.push(&b.input(r, r), &[b.output(b.root(), r)]);
        }
    }),
};

/// Registers the scatter algorithm.
pub(super) static SCATTER: Algorithm = Algorithm {
    name: "direct",
    collective: &collective::SCATTER,
    order: Order::None,
    summary: "each rank copies its part from the root",
    source: "MPI libraries",
    build: Plain(|b| {
        for r in 0..b.world_size() {
            b.copy(&b.input(b.root(), r), &[b.output(r, r)]);
        }
    }),
};

/// Registers the all_to_all algorithm.
pub(super) static ALL_TO_ALL: Algorithm = Algorithm {
    name: "direct",
    collective: &collective::ALL_TO_ALL,
    order: Order::None,
    summary: "each rank copies its part from every rank",
    source: "MPI libraries",
    build: Plain(|b| {
        let n = b.world_size();
        for hop in 0..n {
            for r in 0..n {
                let q = (r + hop) % n;
                b.copy(&b.input(q, q * n + r), &[b.output(r, q * n + r)]);
            }
        }
    }),
};

/// Registers the scan algorithm.
pub(super) static SCAN: Algorithm = Algorithm {
    name: "direct",
    collective: &collective::SCAN,
    order: Order::Rank,
    summary: "each rank adds up the inputs of all ranks up to itself",
    source: "MPI libraries",
    build: Plain(|b| fold_from_predecessors(b, 1)),
};

/// Registers the exscan algorithm.
pub(super) static EXSCAN: Algorithm = Algorithm {
    name: "direct",
    collective: &collective::EXSCAN,
    order: Order::Rank,
    summary: "each rank adds up the inputs of all ranks before itself",
    source: "MPI libraries",
    build: Plain(|b| fold_from_predecessors(b, 0)),
};

/// Registers the barrier algorithm.
pub(super) static BARRIER: Algorithm = Algorithm {
    name: "direct",
    collective: &collective::BARRIER,
    order: Order::None,
    summary: "every rank waits until all other ranks have entered",
    source: "Mellor-Crummey and Scott 1991",
    build: Plain(|_| {}),
};

/// Folds, for each rank, the inputs of the ranks before it, and its own input if `own` is 1.
fn fold_from_predecessors(b: &mut Builder, own: u32) {
    for r in (1 - own..b.world_size()).rev() {
        let before: Vec<Region> = (0..r + own).map(|q| b.input(q, 0)).collect();
        b.fold(&before, &[b.output(r, 0)]);
    }
}
