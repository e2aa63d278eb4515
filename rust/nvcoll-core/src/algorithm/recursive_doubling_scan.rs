//! recursive_doubling scan and exscan: what a rank has covers 1, 2, 4, … ranks up to itself.
//!
//! ```text
//! scan      r0      r1      r2      r3      r4            exscan: the same of ranks 0 to n-2, each value made and kept
//! d = 1     0       01      12      23      34            by the rank after it
//! d = 2     0       01      012     0123    1234
//! d = 4     0       01      012     0123    01234         rank r folds what rank r-d has, left, with what it has, right
//! ```
//!
//! A value that reaches down to rank 0 is complete and goes to the output; the others go to one of two layers of scratch in
//! turn, because rank r+d reads this round what rank r replaces. In place an output is the input, which round 1 reads: in
//! each round the last rank goes first. Steps a rank: log2 n, rounded up. Bytes per rank: 3 N times the rounds, less
//! 3 N (n-1)/n for all the ranks that are complete before (n a power of two), where MPICH's exchanges between pairs need 5 N a
//! round. Waits: log2 n, rounded up, in place up to one more, and one to leave. Order: own, neighbouring ranks left to right,
//! `((r0 + r1) + (r2 + r3))`: nothing is commuted. Source: Hillis and Steele, "Data parallel algorithms", 1986; a scan by recursive
//! doubling is what MPI libraries call it.

use super::{Algorithm, Build::Plain, Order};
use crate::builder::{Builder, Region};
use crate::collective;

/// The registry line of scan.
pub(super) static SCAN: Algorithm = Algorithm {
    name: "recursive_doubling",
    collective: &collective::SCAN,
    order: Order::Own,
    summary: "each rank adds the sum of the rank 1, 2, 4, .. before it",
    source: "Hillis and Steele 1986",
    build: Plain(|b| double(b, 0)),
};

/// The registry line of exscan.
pub(super) static EXSCAN: Algorithm = Algorithm {
    name: "recursive_doubling",
    collective: &collective::EXSCAN,
    order: Order::Own,
    summary: "by doubling, each rank computes the sum that ends one rank before it",
    source: "Hillis and Steele 1986",
    build: Plain(|b| double(b, 1)),
};

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
