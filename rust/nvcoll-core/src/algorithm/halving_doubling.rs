//! halving_doubling all_reduce: pairs of ranks halve their ranges until each rank has the sum of one chunk; then they double
//! the ranges again.
//!
//! ```text
//!           r0     r1     r2     r3
//! d = 1     01..   ..23   01..   ..23     with the rank at distance d: fold my half of our range, you fold yours
//! d = 2     0...   ..2.   .1..   ...3     each has the sum of one chunk
//! d = 2     01..   ..23   01..   ..23     fetch the range of the rank at distance d
//! d = 1     0123   0123   0123   0123
//! ```
//!
//! The largest ranges travel between neighbours. A rank never writes data that its partner reads in the same round, so no scratch
//! is needed. If n = p + e is no power of two, the algorithm runs on p [participants](super::participants): in each pair, one
//! rank first adds the whole input of the other, and the other rank copies the whole result at the end.
//!
//! Steps per rank: 2 log2 p, and one or two more in a pair. Bytes per rank: 5 N (n-1)/n on average; 5 N (p-1)/p and 3 N more for a
//! rank that acts for a pair. Order: own, neighbours first; results are bitwise identical with recursive_doubling. Source:
//! Rabenseifner, "Optimization of collective reduction operations", 2004; the pairs are from Thakur, Rabenseifner and Gropp,
//! "Optimization of collective communication operations in MPICH", 2005.

use std::ops::Range;

use super::participants::Participants;
use crate::builder::Builder;

/// Writes all_reduce.
pub(super) fn all_reduce(b: &mut Builder) {
    let participants = Participants::of(b.world_size());
    let whole = b.chunks(participants.count());
    for (other, acting) in participants.pairs() {
        let both = [b.input(other, whole.clone()), b.input(acting, whole.clone())];
        b.fold(&both, &[b.output(acting, whole.clone())]);
    }
    let ranges = halve(b, &participants, whole.clone());
    double(b, &participants, ranges);
    for (other, acting) in participants.pairs() {
        b.copy(&b.output(acting, whole.clone()), &[b.output(other, whole.clone())]);
    }
}

/// Reduces until every participant has the sum of some chunks; returns these chunks for each participant.
fn halve(b: &mut Builder, participants: &Participants, whole: Range<u32>) -> Vec<Range<u32>> {
    let mut ranges = vec![whole; participants.count() as usize];
    for distance in participants.distances() {
        for i in 0..participants.count() {
            let Range { start, end } = ranges[i as usize];
            let middle = start + (end - start) / 2;
            let mine = if i & distance == 0 { start..middle } else { middle..end };
            let both = [i & !distance, i | distance].map(|participant| {
                let rank = participants.rank(participant);
                let is_summed = distance > 1 || participants.is_pair(participant);
                if is_summed {
                    b.output(rank, mine.clone())
                } else {
                    b.input(rank, mine.clone())
                }
            });
            b.fold(&both, &[b.output(participants.rank(i), mine.clone())]);
            ranges[i as usize] = mine;
        }
    }
    ranges
}

/// Copies all ranges to every participant.
fn double(b: &mut Builder, participants: &Participants, mut ranges: Vec<Range<u32>>) {
    for distance in participants.distances().rev() {
        for i in 0..participants.count() {
            let (partner, theirs) = (i ^ distance, ranges[(i ^ distance) as usize].clone());
            b.copy(&b.output(participants.rank(partner), theirs.clone()), &[b.output(participants.rank(i), theirs)]);
        }
        let joined = |i: u32| {
            let (mine, theirs) = (&ranges[i as usize], &ranges[(i ^ distance) as usize]);
            mine.start.min(theirs.start)..mine.end.max(theirs.end)
        };
        ranges = (0..participants.count()).map(joined).collect();
    }
}
