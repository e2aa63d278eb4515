//! direct: every rank takes what it needs from where it is.
//!
//! ```text
//! broadcast      rank r:  output[r] = input[root]                  reduce   root:    output[root] = fold of input[0..n]
//! scatter        rank r:  output[r].r = input[root].r              gather   root:    output[root].r = input[r].r, each r
//! all_to_all     rank r:  output[r].(q, r) = input[q].(q, r)       scan     rank r:  output[r] = fold of input[0..r + 1]
//! barrier        every rank waits for every enter
//! ```
//!
//! The fewest waits, and the least memory traffic where nothing is passed on; but the root's memory, or a fabric's port
//! there, carries everything. Bytes per rank: 2 N for broadcast and all_to_all, (n + 1) N at the root of a reduce, (n + 3)/2 N
//! on average for a scan. Order: rank. In place a scan writes what later ranks read, so the last rank goes first, and in one
//! tile each waits for those behind it. In all_to_all rank r begins with its own part and goes on to r + 1, so that no two
//! ranks read from one peer at a time. Source: the linear algorithms of every MPI library.

use super::{Algorithm, Order};
use crate::builder::{Builder, Region};
use crate::collective;

/// The registry line of broadcast.
pub(super) static BROADCAST: Algorithm = Algorithm {
    name: "direct",
    collective: &collective::BROADCAST,
    order: Order::None,
    summary: "each rank copies from the root",
    source: "linear broadcast of MPI libraries",
    build: |b| {
        let root = b.root();
        for r in (0..b.world_size()).filter(|&r| r != root) {
            b.copy(&b.input(root, 0), &[b.output(r, 0)]);
        }
        b.copy(&b.input(root, 0), &[b.output(root, 0)]);
    },
};

/// The registry line of reduce.
pub(super) static REDUCE: Algorithm = Algorithm {
    name: "direct",
    collective: &collective::REDUCE,
    order: Order::Rank,
    summary: "the root folds from everybody",
    source: "linear reduce of MPI libraries",
    build: |b| {
        b.fold(&b.inputs(), &[b.output(b.root(), 0)]);
    },
};

/// The registry line of gather.
pub(super) static GATHER: Algorithm = Algorithm {
    name: "direct",
    collective: &collective::GATHER,
    order: Order::None,
    summary: "each rank stores its part to the root",
    source: "linear gather of MPI libraries",
    build: |b| {
        for r in 0..b.world_size() {
            b.push(&b.input(r, r), &[b.output(b.root(), r)]);
        }
    },
};

/// The registry line of scatter.
pub(super) static SCATTER: Algorithm = Algorithm {
    name: "direct",
    collective: &collective::SCATTER,
    order: Order::None,
    summary: "each rank copies its part from the root",
    source: "linear scatter of MPI libraries",
    build: |b| {
        for r in 0..b.world_size() {
            b.copy(&b.input(b.root(), r), &[b.output(r, r)]);
        }
    },
};

/// The registry line of all_to_all.
pub(super) static ALL_TO_ALL: Algorithm = Algorithm {
    name: "direct",
    collective: &collective::ALL_TO_ALL,
    order: Order::None,
    summary: "each rank copies its part from every rank",
    source: "linear all_to_all of MPI libraries",
    build: |b| {
        let n = b.world_size();
        for hop in 0..n {
            for r in 0..n {
                let q = (r + hop) % n;
                b.copy(&b.input(q, q * n + r), &[b.output(r, q * n + r)]);
            }
        }
    },
};

/// The registry line of scan.
pub(super) static SCAN: Algorithm = Algorithm {
    name: "direct",
    collective: &collective::SCAN,
    order: Order::Rank,
    summary: "each rank folds from all ranks up to itself",
    source: "linear scan of MPI libraries",
    build: |b| fold_from_predecessors(b, 1),
};

/// The registry line of exscan.
pub(super) static EXSCAN: Algorithm = Algorithm {
    name: "direct",
    collective: &collective::EXSCAN,
    order: Order::Rank,
    summary: "each rank folds from all ranks before itself",
    source: "linear scan of MPI libraries",
    build: |b| fold_from_predecessors(b, 0),
};

/// The registry line of barrier.
pub(super) static BARRIER: Algorithm = Algorithm {
    name: "direct",
    collective: &collective::BARRIER,
    order: Order::None,
    summary: "every rank waits until it has seen every other enter",
    source: "the dissemination-free form of a central barrier; Mellor-Crummey and Scott 1991 survey both",
    build: |_| {},
};

/// Folds the inputs of the ranks before each rank, and `own` (0 or 1) of the rank itself.
fn fold_from_predecessors(b: &mut Builder, own: u32) {
    for r in (1 - own..b.world_size()).rev() {
        let before: Vec<Region> = (0..r + own).map(|q| b.input(q, 0)).collect();
        b.fold(&before, &[b.output(r, 0)]);
    }
}
/// The registry line of split.
pub(super) static SPLIT: Algorithm = Algorithm {
    name: "direct",
    collective: &collective::SPLIT,
    order: Order::None,
    summary: "every rank waits until it has seen every other enter, and reads its color and key",
    source: "MPI_Comm_split, MPI-1.0 1994, by an all-gather of the pairs; here they lie in the call records",
    build: |_| {},
};
