//! recursive_doubling: ranks at distance 1 exchange all their data, then ranks at distance 2, 4, 8, and so on.
//!
//! ```text
//! all_reduce   everybody has a sum of d ranks; with the partner at distance d it becomes one of 2d
//! all_gather   each rank has d parts; with the d parts of its partner at distance d it has 2d neighbouring parts
//!
//!  r0    r1    r2    r3           each round of all_reduce folds into memory that no rank reads in this round:
//!   ╰─┬──╯      ╰─┬──╯   d = 1    two layers of scratch in turn, and the output in the last round
//!  01    01    23    23           (in place with p = 2, the only round reads the output, so it folds into scratch)
//!   ╰─────┬──────╯       d = 2
//!   ╰──── ┼─────╯
//! ```
//!
//! If n = p + e is no power of two, the algorithm runs on p [participants](super::participants): in each pair, the acting rank
//! first adds (or copies) the other rank's data, and the other rank copies the result at the end. Steps per rank: log2 p, and one
//! or two more in a pair. Bytes per rank: all_reduce (3p log2 p + 5e)/n N, and 2p/n N more in place if p = 2; all_gather 2 N, in place 2 N (n-1)/n.
//! Order: own, neighbours first: `((r0 + r1) + (r2 + r3))`. Source: Thakur, Rabenseifner and Gropp, "Optimization of collective
//! communication operations in MPICH", 2005; all_gather uses the pairs of their all_reduce.

use super::participants::Participants;
use super::row::place_own_parts;
use crate::builder::{Builder, Region};

/// Writes all_reduce.
pub(super) fn all_reduce(b: &mut Builder) {
    let participants = Participants::of(b.world_size());
    let mut have: Vec<Region> = (0..participants.count()).map(|i| b.input(participants.rank(i), 0)).collect();
    for (pair, (other, acting)) in participants.pairs().enumerate() {
        let into = b.scratch(acting, 1, 0);
        have[pair] = b.fold(&[b.input(other, 0), b.input(acting, 0)], &[into]);
    }
    let is_output_read = b.is_in_place() && participants.count() == 2;
    for (round, distance) in participants.distances().enumerate() {
        let is_last = 2 * distance == participants.count() && !is_output_read;
        let exchange = |i: u32| {
            let rank = participants.rank(i);
            let into = if is_last { b.output(rank, 0) } else { b.scratch(rank, round as u16 % 2, 0) };
            let pair = [i & !distance, i | distance].map(|participant| have[participant as usize].clone());
            b.fold(&pair, &[into])
        };
        have = (0..participants.count()).map(exchange).collect();
    }
    for (i, sum) in have.iter().enumerate() {
        b.copy(sum, &[b.output(participants.rank(i as u32), 0)]);
    }
    for (other, acting) in participants.pairs() {
        b.copy(&b.output(acting, 0), &[b.output(other, 0)]);
    }
}

/// Writes all_gather.
pub(super) fn all_gather(b: &mut Builder) {
    let (n, participants) = (b.world_size(), Participants::of(b.world_size()));
    place_own_parts(b);
    for (other, acting) in participants.pairs() {
        b.copy(&b.output(other, other), &[b.output(acting, other)]);
    }
    for distance in participants.distances() {
        for i in 0..participants.count() {
            let partner = i ^ distance;
            let first = partner & !(distance - 1);
            let parts = participants.ranks(first..first + distance);
            b.copy(&b.output(participants.rank(partner), parts.clone()), &[b.output(participants.rank(i), parts)]);
        }
    }
    for (other, acting) in participants.pairs() {
        for parts in [0..other, other + 1..n].into_iter().filter(|parts| !parts.is_empty()) {
            b.copy(&b.output(acting, parts.clone()), &[b.output(other, parts)]);
        }
    }
}
