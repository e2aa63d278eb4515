//! recursive_doubling scan and exscan: after round k, the sum of a rank covers up to 2^k ranks that end with the rank itself.
//!
//! ```text
//! scan      r0      r1      r2      r3      r4            exscan: the same of ranks 0 to n-2, each value made and kept
//! d = 1     0       01      12      23      34            by the rank after it
//! d = 2     0       01      012     0123    1234
//! d = 4     0       01      012     0123    01234         rank r folds what rank r-d has, left, with what it has, right
//! ```
//!
//! A sum that includes rank 0 is complete and goes to the output. Other sums alternate between two layers of scratch, because rank
//! r+d reads in this round the sum that rank r replaces. In place, an output is an input, which round 1 reads; therefore the last
//! rank goes first in each round.
//!
//! Steps per rank: log2 n, rounded up. Bytes per rank: 3 N per round, minus 3 N (n-1)/n for the ranks that are complete early (n a
//! power of two); MPICH's exchanges between pairs need 5 N per round. Waits: log2 n, rounded up, up to one more in place, and one
//! to leave. Order: own, neighbouring ranks from left to right, `((r0 + r1) + (r2 + r3))`; nothing is commuted. Source: Hillis and
//! Steele, "Data parallel algorithms", 1986; MPI libraries call it a scan by recursive doubling.

use crate::builder::{Builder, Region};

/// Writes scan.
pub(super) fn scan(b: &mut Builder) {
    double(b, 0);
}

/// Writes exscan.
pub(super) fn exscan(b: &mut Builder) {
    double(b, 1);
}

/// Sums the inputs of ranks 0 to i, for every i, on rank i + `shift`.
fn double(b: &mut Builder, shift: u32) {
    let count = b.world_size() - shift;
    let mut have: Vec<Region> = (0..count).map(|i| b.input(i, 0)).collect();
    let (mut distance, mut layer) = (1, 0);
    while distance < count {
        let mut next = have.clone();
        for i in (distance..count).rev() {
            let is_complete = i < 2 * distance;
            let rank = i + shift;
            let into = if is_complete { b.output(rank, 0) } else { b.scratch(rank, layer, 0) };
            let [left, right] = [i - distance, i].map(|at| have[at as usize].clone());
            next[i as usize] = b.fold(&[left, right], &[into]);
        }
        (have, distance, layer) = (next, 2 * distance, 1 - layer);
    }
    let is_there = shift == 0 && b.is_in_place();
    if count > 0 && !is_there {
        b.copy(&b.input(0, 0), &[b.output(shift, 0)]);
    }
}
