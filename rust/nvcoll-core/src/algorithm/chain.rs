//! chain: the ranks form a row that begins at the root; each rank passes all data to its neighbour, tile after tile.
//!
//! ```text
//! broadcast    root ─▶ root+1 ─▶ … ─▶ root-1      each rank but the last stores what it has to the next; cyclic
//! reduce       root ◀─ root+1 ◀─ … ◀─ root-1      each rank but the last folds what the next has with its own
//! scan         0 ─▶ 1 ─▶ … ─▶ n-1                 each rank but the first folds what the one before has with its own
//! ```
//!
//! With t tiles a chain takes t + n - 2 turns of one tile each, so no algorithm is faster for long data. For short data the n - 1
//! hops dominate. The data is not cut into chunks, because tiles already stream through the queues.
//!
//! Steps per rank: 1. Bytes per rank: broadcast 2 N (n-1)/n, out of place N/n more, because the root also stores to its own
//! output; reduce and scan 3 N (n-1)/n, a scan out of place 2 N/n more. Waits: one per hop and one to leave; the root waits for
//! an enter. Order: own. A reduce folds from the far end to the root, lower ranks on the left: `(r0 + (r1 + (r2 + r3)))` for root
//! 0. A scan is the running sum `((r0 + r1) + r2)`. Partial sums of a reduce lie in scratch, because only the root has an output.
//! Source: the pipeline algorithms of Open MPI's tuned collectives; NCCL's ring broadcast and reduce are equal to them.

use super::row::relative;
use crate::builder::Builder;

/// Writes broadcast.
pub(super) fn broadcast(b: &mut Builder) {
    let (n, root) = (b.world_size(), b.root());
    for place in 1..n {
        let (from, to) = (relative(b, place - 1), relative(b, place));
        let mut into = vec![b.output(to, 0)];
        if from == root && !b.is_in_place() {
            into.push(b.output(root, 0));
        }
        let source = if from == root { b.input(root, 0) } else { b.output(from, 0) };
        b.push(&source, &into);
    }
}

/// Writes reduce.
pub(super) fn reduce(b: &mut Builder) {
    let mut lowest = relative(b, b.world_size() - 1);
    let mut sum = b.input(lowest, 0);
    for place in (0..b.world_size() - 1).rev() {
        let rank = relative(b, place);
        let own = b.input(rank, 0);
        let into = if place == 0 { b.output(rank, 0) } else { b.scratch(rank, 0, 0) };
        let in_order = if lowest < rank { [sum, own] } else { [own, sum] };
        sum = b.fold(&in_order, &[into]);
        lowest = lowest.min(rank);
    }
}

/// Writes scan.
pub(super) fn scan(b: &mut Builder) {
    let mut sum = b.copy(&b.input(0, 0), &[b.output(0, 0)]);
    for rank in 1..b.world_size() {
        sum = b.fold(&[sum, b.input(rank, 0)], &[b.output(rank, 0)]);
    }
}
