//! pat: parallel aggregated trees. Every part has a [binomial tree](super::binomial_tree) of its own, rooted at the part's owner:
//! place x of the tree is the rank x after the owner.
//!
//! ```text
//! all_gather      down: a rank passes a part on to all its children, the farthest first
//! reduce_scatter  up:   a rank folds its contribution with its children's sums, and the root has the part
//! ```
//!
//! These are Bruck's exchanges with the dimensions in the opposite order: one part travels far, and n/2 parts go to the neighbour.
//! All n trees run at the same time. Steps per rank: about n/2. Bytes per rank, where i = n/2 (rounded down) is the number of inner
//! nodes of a tree: reduce_scatter (n-1+2i)/n N, all_gather (n+i)/n N, in place (n-1+i)/n N. That is two thirds and three quarters
//! of a ring's bytes. Waits: log2 n, rounded up, and one to leave. Order: own, by the shape of the tree, sorted by lowest rank.
//!
//! Departures from NCCL: NCCL sends to one child at a time and limits the parts per message, so that its buffers stay logarithmic.
//! Here one step serves all children of a part, and scratch is as long as the data. Source: Jeaugey, "PAT: a new algorithm for
//! all-gather and reduce-scatter operations at scale", 2025; NCCL 2.23.

use super::binomial_tree::children;
use crate::builder::{Builder, Region};

/// Writes reduce_scatter.
pub(super) fn reduce_scatter(b: &mut Builder) {
    for part in b.chunks(1) {
        if b.world_size() > 1 {
            up(b, part, 0);
        }
    }
}

/// Writes all_gather.
pub(super) fn all_gather(b: &mut Builder) {
    b.chunks(1).for_each(|part| down(b, part));
}

/// Folds a subtree of a part into its root; returns the region of the sum.
fn up(b: &mut Builder, part: u32, offset: u32) -> Region {
    let n = b.world_size();
    let rank = (part + offset) % n;
    let mut sums = vec![(rank, b.input(rank, part))];
    for child in children(offset, n) {
        let size = (child - offset).min(n - child);
        sums.push((lowest(part + child, size, n), up(b, part, child)));
    }
    if sums.len() == 1 {
        return b.input(rank, part);
    }
    sums.sort_by_key(|(lowest, _)| *lowest);
    let sums: Vec<Region> = sums.into_iter().map(|(_, sum)| sum).collect();
    let into = if offset == 0 { b.output(rank, part) } else { b.scratch(rank, 0, part) };
    b.fold(&sums, &[into])
}

/// Returns the lowest of `size` consecutive ranks from `first` on, cyclically.
fn lowest(first: u32, size: u32, n: u32) -> u32 {
    if first % n + size > n {
        0
    } else {
        first % n
    }
}

/// Copies a part from its owner to every rank.
fn down(b: &mut Builder, part: u32) {
    let n = b.world_size();
    for offset in 0..n {
        let rank = (part + offset) % n;
        let mut into: Vec<Region> = children(offset, n).rev().map(|c| b.output((part + c) % n, part)).collect();
        let from = if offset == 0 { b.input(rank, part) } else { b.output(rank, part) };
        if offset == 0 && !b.is_in_place() {
            into.push(b.output(rank, part));
        }
        if !into.is_empty() {
            b.push(&from, &into);
        }
    }
}
