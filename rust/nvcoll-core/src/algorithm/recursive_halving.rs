//! recursive_halving reduce_scatter: pairs of ranks halve their ranges until each rank has its own part.
//!
//! ```text
//!           r0     r1     r2     r3
//! d = 2     01..   01..   ..23   ..23     with the rank at distance d: fold my half of our parts, you fold yours
//! d = 1     0...   .1..   ..2.   ...3
//! ```
//!
//! Sums lie in scratch until the last round, because an input must stay unchanged. If n = p + e is no power of two, the algorithm
//! runs on p [participants](super::participants): the rank that acts for a pair first adds the other rank's whole input, then
//! halves for both ranks, and at the end each rank of the pair gets its part. Steps per rank: log2 p, up to three more in a pair. Bytes per rank: 3 N (n-1)/n + 4 N e/n^2 on
//! average. Order: own, `((r0 + r2) + (r1 + r3))`. Source: Thakur, Rabenseifner and Gropp, "Optimization of collective
//! communication operations in MPICH", 2005.

use std::ops::Range;

use super::participants::Participants;
use crate::builder::Builder;

/// Writes reduce_scatter.
pub(super) fn reduce_scatter(b: &mut Builder) {
    let participants = Participants::of(b.world_size());
    let whole = b.chunks(1);
    for (other, acting) in participants.pairs() {
        let sum = b.scratch(acting, 0, whole.clone());
        b.fold(&[b.input(other, whole.clone()), b.input(acting, whole.clone())], &[sum]);
    }
    for distance in participants.distances().rev() {
        (0..participants.count()).for_each(|i| fold_half(b, &participants, i, distance));
    }
    for (rank, acting) in participants.pairs().flat_map(|(other, acting)| [(other, acting), (acting, acting)]) {
        let sum = b.scratch(acting, 0, rank);
        b.copy(&sum, &[b.output(rank, rank)]);
    }
}

/// Folds, for a participant, its own and its partner's parts of its block of `distance` participants.
fn fold_half(b: &mut Builder, participants: &Participants, participant: u32, distance: u32) {
    let first = participant & !(distance - 1);
    let parts: Range<u32> = participants.ranks(first..first + distance);
    let is_first = 2 * distance == participants.count();
    let both = [participant & !distance, participant | distance].map(|i| {
        let rank = participants.rank(i);
        let is_input = is_first && !participants.is_pair(i);
        if is_input {
            b.input(rank, parts.clone())
        } else {
            b.scratch(rank, 0, parts.clone())
        }
    });
    let rank = participants.rank(participant);
    let into = if parts.len() == 1 { b.output(rank, parts) } else { b.scratch(rank, 0, parts) };
    b.fold(&both, &[into]);
}
