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

use super::row::place_own_parts;
use crate::builder::{Builder, Region};

/// Writes reduce_scatter.
pub(super) fn reduce_scatter(b: &mut Builder) {
    for c in b.chunks(1) {
        let all: Vec<Region> = (0..b.world_size()).map(|r| b.input(r, c)).collect();
        b.fold(&all, &[b.output(c, c)]);
    }
}

/// Writes all_gather.
pub(super) fn all_gather(b: &mut Builder) {
    let n = b.world_size();
    place_own_parts(b);
    for (r, hop) in (0..n).flat_map(|r| (1..n).map(move |hop| (r, hop))) {
        let c = (r + hop) % n;
        b.copy(&b.input(c, c), &[b.output(r, c)]);
    }
}

/// Writes broadcast.
pub(super) fn broadcast(b: &mut Builder) {
    let root = b.root();
    for r in (0..b.world_size()).filter(|&r| r != root) {
        b.copy(&b.input(root, 0), &[b.output(r, 0)]);
    }
    b.copy(&b.input(root, 0), &[b.output(root, 0)]);
}

/// Writes reduce.
pub(super) fn reduce(b: &mut Builder) {
    b.fold(&b.inputs(), &[b.output(b.root(), 0)]);
}

/// Writes gather.
pub(super) fn gather(b: &mut Builder) {
    for r in 0..b.world_size() {
        b.push(&b.input(r, r), &[b.output(b.root(), r)]);
    }
}

/// Writes scatter.
pub(super) fn scatter(b: &mut Builder) {
    for r in 0..b.world_size() {
        b.copy(&b.input(b.root(), r), &[b.output(r, r)]);
    }
}

/// Writes all_to_all.
pub(super) fn all_to_all(b: &mut Builder) {
    let n = b.world_size();
    for hop in 0..n {
        for r in 0..n {
            let q = (r + hop) % n;
            b.copy(&b.input(q, q * n + r), &[b.output(r, q * n + r)]);
        }
    }
}

/// Writes scan.
pub(super) fn scan(b: &mut Builder) {
    fold_from_predecessors(b, 1);
}

/// Writes exscan.
pub(super) fn exscan(b: &mut Builder) {
    fold_from_predecessors(b, 0);
}

/// Writes barrier.
pub(super) fn barrier(_: &mut Builder) {}

/// Folds, for each rank, the inputs of the ranks before it, and its own input if `own` is 1.
fn fold_from_predecessors(b: &mut Builder, own: u32) {
    for r in (1 - own..b.world_size()).rev() {
        let before: Vec<Region> = (0..r + own).map(|q| b.input(q, 0)).collect();
        b.fold(&before, &[b.output(r, 0)]);
    }
}
