//! direct: every rank takes what it needs from where it is.
//!
//! ```text
//! reduce_scatter rank r:  output[r].r = fold of input[0..n].r      all_gather  rank r:  output[r].c = input[c].c, each c
//! broadcast      rank r:  output[r] = input[root]                  reduce   root:    output[root] = fold of input[0..n]
//! scatter        rank r:  output[r].r = input[root].r              gather   root:    output[root].r = input[r].r, each r
//! all_to_all     rank r:  output[r].(q, r) = input[q].(q, r)       scan     rank r:  output[r] = fold of input[0..r + 1]
//! barrier        every rank waits for every enter
//! ```
//!
//! The fewest waits, and the least memory traffic where nothing is passed on; but the root's memory, or a fabric's port
//! there, carries everything. Bytes per rank: (1 + 1/n) N for reduce_scatter, the least possible; 2 N for all_gather, in place
//! without its own part; 2 N for broadcast and all_to_all, (n + 1) N at the root of a reduce, (n + 3)/2 N
//! on average for a scan. Order: rank. In place a scan writes what later ranks read, so the last rank goes first, and in one
//! tile each waits for those behind it. In all_gather and all_to_all rank r begins with its own part and goes on to r + 1, so that no two
//! ranks read from one peer at a time. Source: the linear algorithms of every MPI library.

use super::{place_own_parts, Algorithm, Build::Plain, Order};
use crate::builder::{Builder, Region};
use crate::collective;

/// The registry line of reduce_scatter.
pub(super) static REDUCE_SCATTER: Algorithm = Algorithm {
    name: "direct",
    collective: &collective::REDUCE_SCATTER,
    order: Order::Rank,
    summary: "each rank reads its part from all ranks and adds it up",
    source: "the linear algorithm of MPI libraries",
    build: Plain(|b| {
        for c in b.chunks(1) {
            let all: Vec<Region> = (0..b.world_size()).map(|r| b.input(r, c)).collect();
            b.fold(&all, &[b.output(c, c)]);
        }
    }),
};

/// The registry line of all_gather.
pub(super) static ALL_GATHER: Algorithm = Algorithm {
    name: "direct",
    collective: &collective::ALL_GATHER,
    order: Order::None,
    summary: "each rank fetches every part from its owner",
    source: "the linear algorithm of MPI libraries",
    build: Plain(|b| {
        let n = b.world_size();
        place_own_parts(b);
        for (r, hop) in (0..n).flat_map(|r| (1..n).map(move |hop| (r, hop))) {
            let c = (r + hop) % n;
            b.copy(&b.input(c, c), &[b.output(r, c)]);
        }
    }),
};

/// The registry line of broadcast.
pub(super) static BROADCAST: Algorithm = Algorithm {
    name: "direct",
    collective: &collective::BROADCAST,
    order: Order::None,
    summary: "each rank copies from the root",
    source: "linear broadcast of MPI libraries",
    build: Plain(|b| {
        let root = b.root();
        for r in (0..b.world_size()).filter(|&r| r != root) {
            b.copy(&b.input(root, 0), &[b.output(r, 0)]);
        }
        b.copy(&b.input(root, 0), &[b.output(root, 0)]);
    }),
};

/// The registry line of reduce.
pub(super) static REDUCE: Algorithm = Algorithm {
    name: "direct",
    collective: &collective::REDUCE,
    order: Order::Rank,
    summary: "the root adds up the inputs of all ranks",
    source: "linear reduce of MPI libraries",
    build: Plain(|b| {
        b.fold(&b.inputs(), &[b.output(b.root(), 0)]);
    }),
};

/// The registry line of gather.
pub(super) static GATHER: Algorithm = Algorithm {
    name: "direct",
    collective: &collective::GATHER,
    order: Order::None,
    summary: "each rank stores its part to the root",
    source: "linear gather of MPI libraries",
    build: Plain(|b| {
        for r in 0..b.world_size() {
            b.push(&b.input(r, r), &[b.output(b.root(), r)]);
        }
    }),
};

/// The registry line of scatter.
pub(super) static SCATTER: Algorithm = Algorithm {
    name: "direct",
    collective: &collective::SCATTER,
    order: Order::None,
    summary: "each rank copies its part from the root",
    source: "linear scatter of MPI libraries",
    build: Plain(|b| {
        for r in 0..b.world_size() {
            b.copy(&b.input(b.root(), r), &[b.output(r, r)]);
        }
    }),
};

/// The registry line of all_to_all.
pub(super) static ALL_TO_ALL: Algorithm = Algorithm {
    name: "direct",
    collective: &collective::ALL_TO_ALL,
    order: Order::None,
    summary: "each rank copies its part from every rank",
    source: "linear all_to_all of MPI libraries",
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

/// The registry line of scan.
pub(super) static SCAN: Algorithm = Algorithm {
    name: "direct",
    collective: &collective::SCAN,
    order: Order::Rank,
    summary: "each rank adds up the inputs of all ranks up to itself",
    source: "linear scan of MPI libraries",
    build: Plain(|b| fold_from_predecessors(b, 1)),
};

/// The registry line of exscan.
pub(super) static EXSCAN: Algorithm = Algorithm {
    name: "direct",
    collective: &collective::EXSCAN,
    order: Order::Rank,
    summary: "each rank adds up the inputs of all ranks before itself",
    source: "linear scan of MPI libraries",
    build: Plain(|b| fold_from_predecessors(b, 0)),
};

/// The registry line of barrier.
pub(super) static BARRIER: Algorithm = Algorithm {
    name: "direct",
    collective: &collective::BARRIER,
    order: Order::None,
    summary: "every rank waits until all other ranks have entered",
    source: "the dissemination-free form of a central barrier; Mellor-Crummey and Scott 1991 survey both",
    build: Plain(|_| {}),
};

/// Folds the inputs of the ranks before each rank, and `own` (0 or 1) of the rank itself.
fn fold_from_predecessors(b: &mut Builder, own: u32) {
    for r in (1 - own..b.world_size()).rev() {
        let before: Vec<Region> = (0..r + own).map(|q| b.input(q, 0)).collect();
        b.fold(&before, &[b.output(r, 0)]);
    }
}
